// tools/cli/serve/layer_runner.h -- really runs one decoder layer for planned calls and checks sampled rows.
// SPDX-License-Identifier: Apache-2.0
//
// A layer's stages are the steps of models/layers/layer_program.h: for every argument of an operation the buffer that
// it reads or writes. Buffers are shared by name, so the output of one stage is the input of a later one; weights
// belong to their stage. The stages run one after the other as in a server; no stage writes what another one has read,
// so that afterwards each output can be compared with OpDef::reference. With ranks, each has a runner; they compare
// together, as what should have come out of an operation that communicates follows from the operands of all.
#pragma once
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "jit/fabric/core/channel.h"
#include "models/layers/layer_program.h"
#include "tools/cli/ranks/rank_call_clock.h"
#include "tools/cli/serve/call_clock.h"
#include "tools/cli/serve/lookup_stream.h"

namespace seqtile::cli {

struct LayerReport {
  int64_t layers = 0;                 ///< decoder layers run
  int64_t executed = 0;               ///< operations run
  int64_t verified = 0;               ///< operations with every sampled row inside the tolerance
  double max_rel_err = 0;             ///< of an element, relative to it or to its row's root mean square
  std::vector<std::string> failures;  ///< one line for each operation that was outside
  Reservoir call_us;                  ///< entry to first program; with ranks of the operations that communicate
  Reservoir layer_us;                 ///< with ranks: of all operations of a layer, waits for peers included
};

class LayerRunner {
 public:
  /// `operations` are those of the model.
  LayerRunner(const autotune::Registry& registry, const models::Model& model,
              std::span<const ServedOperation> operations, Device& device, CallClock& clock);
  /// A rank's. run() is collective then.
  LayerRunner(const autotune::Registry& registry, const models::Model& model,
              std::span<const ServedOperation> operations, Channel& channel);

  /// Runs the layer's operations for `call` and verifies them. Errors: timeout where a rank gave up waiting for
  /// another, internal where they did not agree what to run.
  void run(const PlannedCall& call);
  LayerReport& report() { return report_; }

 private:
  struct Buffer {
    std::vector<std::byte> bytes;
    void* data();
    size_t size() const;
    std::span<std::byte> all() { return {static_cast<std::byte*>(data()), size()}; }
    bool resize(size_t bytes_needed);  ///< true when it has grown; its contents are then new
  };
  struct Stage {
    const ServedOperation* operation;
    const autotune::OpDef* op;
    autotune::Schema schema;
    std::vector<std::string> buffers;  ///< one an argument
    std::vector<models::CachedRows> cached;
  };

  void add_stages(const std::vector<models::Step>& steps);
  void add_stage(const models::Step& step);
  void compute(const PlannedCall& call);
  void meet_ranks();
  void call_stage(const Stage& stage, const autotune::Problem& problem);
  autotune::Problem bind(const Stage& stage, const PlannedCall& call);
  void bind_argument(const Stage& stage, size_t arg, autotune::Problem& problem, const PlannedCall& call);
  void fill_indices(const std::string& name, const Tensor& tensor, const PlannedCall& call);
  void extend_cache(const models::CachedRows& cached, const PlannedCall& call);
  void verify(const Stage& stage, const autotune::Problem& problem);
  std::vector<std::vector<double>> reference(const Stage& stage, const autotune::Problem& problem,
                                             std::span<const int64_t> rows);

  const autotune::Registry& registry_;
  const models::Model model_;
  std::span<const ServedOperation> operations_;
  Device& device_;
  CallClock* clock_ = nullptr;               ///< of one rank alone
  Channel* channel_ = nullptr;               ///< of ranks
  std::optional<RankCallClock> rank_clock_;  ///< of ranks on CPUs
  std::vector<Stage> stages_;
  std::map<std::string, Buffer> buffers_;
  std::map<std::string, autotune::Problem> problems_;  ///< of the layer that was run last, by label
  size_t cache_row_bytes_ = 0;                         ///< of one token's keys in one layer
  std::mt19937_64 random_{1};                          ///< of the ranks each its own: their weights differ
  LayerReport report_;
};

}  // namespace seqtile::cli

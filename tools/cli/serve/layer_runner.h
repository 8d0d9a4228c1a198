// tools/cli/serve/layer_runner.h -- executes one decoder layer for planned calls and checks sampled rows.
// SPDX-License-Identifier: Apache-2.0
//
// The stages of a layer are the steps of seqtile/model.h: for each argument of an operation, the buffer
// that it reads or writes. Buffers are shared by name, so that the output of a stage is the input of a later stage;
// weights belong to their stage. The stages run one after the other, as in a server. No stage overwrites a buffer that
// another stage has read, so that each output can be compared with OpDef::reference afterwards. With ranks, each rank
// has a runner. The ranks compare together, because the result of an operation that communicates depends on all ranks'
// operands.
#pragma once
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "seqtile/fabric.h"
#include "seqtile/model.h"
#include "tools/cli/ranks/rank_call_clock.h"
#include "tools/cli/serve/call_clock.h"
#include "tools/cli/serve/lookup_stream.h"

namespace seqtile::cli {

struct LayerReport {
  int64_t layers = 0;      ///< decoder layers run
  int64_t executed = 0;    ///< operations run
  int64_t verified = 0;    ///< operations with all sampled rows inside the tolerance
  double max_rel_err = 0;  ///< largest error of an element, relative to the element or to its row's root mean square
  std::vector<std::string> failures;  ///< one line for each operation outside the tolerance
  /// Time from entry to first program; with ranks only of operations that communicate.
  Reservoir call_us;
  Reservoir layer_us;  ///< with ranks: time of all operations of a layer, including waits for peers
};

class LayerRunner {
 public:
  /// `operations` are the model's.
  LayerRunner(const autotune::Registry& registry, const models::Model& model,
              std::span<const ServedOperation> operations, Device& device, CallClock& clock);
  /// The runner of a rank; run() is then collective.
  LayerRunner(const autotune::Registry& registry, const models::Model& model,
              std::span<const ServedOperation> operations, Channel& channel);

  /// Runs the layer's operations for `call` and verifies them. Errors: timeout if a rank gave up waiting for another
  /// rank; internal if the ranks did not agree on the operation.
  void run(const PlannedCall& call);
  LayerReport& report() { return report_; }

 private:
  struct Buffer {
    std::vector<std::byte> bytes;
    void* data();
    size_t size() const;
    std::span<std::byte> all() { return {static_cast<std::byte*>(data()), size()}; }
    bool resize(size_t bytes_needed);  ///< true if the buffer has grown; its contents are then new
  };
  struct Stage {
    const ServedOperation* operation;
    const autotune::OpDef* op;
    autotune::Schema schema;
    std::vector<std::string> buffers;  ///< one buffer for each argument
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
  CallClock* clock_ = nullptr;               ///< set without ranks
  Channel* channel_ = nullptr;               ///< set with ranks
  std::optional<RankCallClock> rank_clock_;  ///< set with ranks on CPUs
  std::vector<Stage> stages_;
  std::map<std::string, Buffer> buffers_;
  std::map<std::string, autotune::Problem> problems_;  ///< problems of the last layer run, by label
  size_t cache_row_bytes_ = 0;                         ///< bytes of one token's keys in one layer
  std::mt19937_64 random_{1};                          ///< each rank has its own seed, because weights of ranks differ
  LayerReport report_;
};

}  // namespace seqtile::cli

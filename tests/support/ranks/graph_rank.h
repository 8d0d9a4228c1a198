// tests/support/ranks/graph_rank.h -- an operation over ranks, captured on one rank and replayed at any length.
// SPDX-License-Identifier: Apache-2.0
//
// Any operation of the library works, by its workload: the schema gives its tensors and a rank's parts of them.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "seqtile/engine.h"
#include "seqtile/seqpar.h"

namespace seqtile::testing {

/// The outputs of a call: all bytes up to the capacity.
using Outputs = std::vector<std::vector<std::byte>>;

class GraphRank {
 public:
  /// Captures the operation for lengths up to `capacity`. Collective. The stores are in `folder`.
  GraphRank(const std::string& folder, const autotune::Registry& registry, Fabric& fabric,
            const autotune::Workload& workload, int64_t capacity);

  Graph& graph() { return *graph_; }
  GraphSet capture_set_up_to(int64_t capacity);
  Channel& channel() { return channel_; }
  Engine& engine() { return *engine_; }
  /// Number of kernels that a later call hands to the driver.
  int kernels_of_a_call(int64_t length);

  /// Fills in new rows, with NaN behind them, and replays on poisoned outputs, which `outputs` gets. Does not wait.
  void replay(const int64_t& length, Outputs& outputs) {
    replay(length, outputs, [&] { graph_->launch(stream_); });
  }
  void replay(const int64_t& length, Outputs& outputs, const GraphSet& graphs) {
    replay(length, outputs, [&] { graphs.launch(length, stream_); });
  }
  /// Computes the same rows by a call that is pinned to a capacity.
  void call(int64_t length, Outputs& outputs, int64_t capacity);
  void synchronize();

  /// The fault of outputs at this length: a value that is not written, or one too many. Empty: none.
  std::string fault_of(const Outputs& outputs, int64_t length) const;
  /// True if a kernel has written NaN as the values, and nothing behind them.
  bool is_given_up(const Outputs& outputs, int64_t length) const;

 private:
  struct Operand {
    autotune::ArgSpec spec;
    DeviceBuffer buffer;  ///< sized for the capacity
  };

  void replay(const int64_t& length, Outputs& outputs, const std::function<void()>& launch);
  /// The tensor of an argument, with a gap behind each row. It has the rank's own rows of this length, or for a capture
  /// the most rows that the rank may have up to it.
  Tensor tensor_of(const autotune::ArgSpec& spec, void* data, int64_t length, bool is_capture) const;
  kernels::Call call_of(int64_t length, bool is_capture) const;
  std::shared_ptr<const void> capture(int64_t capacity);
  void send(const Operand& operand, int64_t length);
  void into(Outputs& outputs, const std::function<void()>& run);

  const autotune::Workload workload_;
  const autotune::OpDef& op_;
  const autotune::Schema schema_;
  Fabric& fabric_;
  Device& device_;
  const int64_t capacity_;
  std::unique_ptr<Engine> engine_;
  Channel channel_;
  kernels::seqpar::RankHandle handle_;
  std::deque<Operand> operands_;
  DeviceBuffer length_;
  OwnedStream stream_;
  uint64_t seed_;
  std::deque<std::vector<std::byte>> sent_;  ///< kept until the device has copied them
  std::shared_ptr<const void> kept_;
  std::unique_ptr<Graph> graph_;
};

/// Runs `work(rank, captured)` on a thread for each rank of simulated GPUs. Errors: any rank's.
void on_graph_ranks(const std::string& target, autotune::Workload workload, int64_t capacity,
                    const std::function<void(int, GraphRank&)>& work);

}  // namespace seqtile::testing

// tests/support/ranks/graph_rank.h -- an operation over ranks, captured on one of them and replayed at any length.
// SPDX-License-Identifier: Apache-2.0
//
// Any operation of the library, by its workload: its schema says which tensors it has and what a rank owns of them.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autotune/engine/graph_set.h"
#include "kernels/seqpar/fused_handle.h"

namespace seqtile::testing {

/// What a call has left in each output: all bytes up to the capacity.
using Outputs = std::vector<std::vector<std::byte>>;

class GraphRank {
 public:
  /// Collective. Captures the operation for lengths up to `capacity`; the stores are in `folder`.
  GraphRank(const std::string& folder, const autotune::Registry& registry, Fabric& fabric,
            const autotune::Workload& workload, int64_t capacity);

  Graph& graph() { return *graph_; }
  GraphSet capture_set_up_to(int64_t capacity);
  Channel& channel() { return channel_; }
  Engine& engine() { return *engine_; }
  /// Kernels that a call hands to the driver, after the first one.
  int kernels_of_a_call(int64_t length);

  /// New rows than before, NaN behind them; what the outputs hold after a replay on poison. Waits for nothing.
  void replay(const int64_t& length, Outputs& outputs) {
    replay(length, outputs, [&] { graph_->launch(stream_); });
  }
  void replay(const int64_t& length, Outputs& outputs, const GraphSet& graphs) {
    replay(length, outputs, [&] { graphs.launch(length, stream_); });
  }
  /// The same rows by a call that is pinned to a capacity.
  void call(int64_t length, Outputs& outputs, int64_t capacity);
  void synchronize();

  /// What is wrong with outputs at this length: a value that is not written, or one too many. Empty: nothing.
  std::string fault_of(const Outputs& outputs, int64_t length) const;
  /// NaN that a kernel has written where values belong, and nothing behind.
  bool is_given_up(const Outputs& outputs, int64_t length) const;

 private:
  struct Operand {
    autotune::ArgSpec spec;
    DeviceBuffer buffer;  ///< as long as at the capacity
  };

  void replay(const int64_t& length, Outputs& outputs, const std::function<void()>& launch);
  /// With a gap behind each row. Of own rows as many as the rank has at this length, for a capture those that it may
  /// have up to it.
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
  std::deque<std::vector<std::byte>> sent_;  ///< until the device has them
  std::shared_ptr<const void> kept_;
  std::unique_ptr<Graph> graph_;
};

/// `work(rank, captured)` on a thread for each rank of simulated GPUs; throws what one of them throws.
void on_graph_ranks(const std::string& target, autotune::Workload workload, int64_t capacity,
                    const std::function<void(int, GraphRank&)>& work);

}  // namespace seqtile::testing

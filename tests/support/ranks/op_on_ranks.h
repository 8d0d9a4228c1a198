// tests/support/ranks/op_on_ranks.h -- any operation over ranks on any fabric: random operands, compared with f64.
// SPDX-License-Identifier: Apache-2.0
//
// The operands of a call are parts of the operands of one rank that has all rows and all weights, filled as the tuner
// fills them. Rows are cut by the layout, columns and shares of weights in the order of the ranks. The expected results
// are cut alike; they come from the operation's reference for a world of one. If each rank has an x of its own, to be
// summed up or sent by one rank, there is such a call for each rank.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/kernels/guarded_call.h"
#include "tests/support/ranks/rank_run.h"

namespace seqtile::testing {

/// A launch on all ranks. Equal calls have equal operands and must give equal bits.
struct OpCall {
  int64_t length;
  uint64_t seed = 1;
  auto operator<=>(const OpCall&) const = default;
};

class OpOnRanks {
 public:
  /// `device` as in RankOptions. The default configuration is the longest call's.
  OpOnRanks(const autotune::Workload& workload, const std::string& device, std::vector<OpCall> calls,
            std::optional<autotune::Config> config = {});

  const autotune::OpDef& op() const { return op_; }
  const autotune::Workload& workload() const { return workload_; }
  const autotune::Config& config() const { return config_; }
  int64_t longest() const;
  std::unique_ptr<ir::Function> kernel() const;
  /// The calls by rank and launch; outputs hold poison at first.
  const std::vector<std::vector<RankCall>>& calls() const { return calls_; }
  /// Makes room on the channel for calls of its capacity.
  void enlarge(ChannelOptions& options) const;

  /// Runs alone on a channel, with the operation's device and number of ranks. Returns the fault, or "".
  std::string run(RankOptions options);
  /// The first fault of all launches: a value that is missing, one too many, one further from f64 than the operation's
  /// tolerance, or different bits of equal calls. Empty: none.
  std::string fault() const;
  /// The bytes of all outputs, by rank and launch.
  std::vector<std::vector<std::byte>> bytes() const;

 private:
  /// The call of one rank that has all data.
  struct Whole {
    std::vector<std::unique_ptr<GuardedCall>> calls;  ///< one call for each rank if each rank has its own x
    std::vector<std::vector<double>> wanted;          ///< expected values by output
  };
  struct Output {
    size_t arg;
    Tensor tensor;
    std::vector<std::byte> bytes;
  };

  Whole whole_of(const OpCall& call) const;
  const Tensor& whole_tensor(const OpCall& call, int rank, size_t arg) const;
  Tensor part(int rank, size_t arg, int64_t length, void* data) const;
  void add(int rank, const OpCall& call);
  /// Visits the elements of a rank's tensor: offset, and row and column in the whole tensor.
  template <class Visit>
  void for_each_place(int rank, const OpCall& call, size_t arg, const Tensor& tensor, const Visit& visit) const;
  std::string fault_of(int rank, const OpCall& call, const Output& output, const std::vector<double>& wanted) const;

  const autotune::OpDef& op_;
  const std::string device_;
  const autotune::Workload workload_, whole_workload_;
  const autotune::Schema schema_;
  const int world_size_;
  const Target target_;
  const std::vector<OpCall> order_;
  autotune::Config config_;
  std::map<OpCall, Whole> wholes_;
  /// Inputs by rank and call, then by argument.
  std::map<std::pair<int, OpCall>, std::vector<std::vector<std::byte>>> inputs_;
  std::vector<std::vector<RankCall>> calls_;
  std::vector<std::vector<std::vector<Output>>> outputs_;  ///< outputs by rank and launch
};

/// A RankOptions::before_launch that sometimes delays one of the first four ranks.
void straggle(int rank, int epoch);
/// The error of a run that should have ended well, or "".
std::string problem_of(const RankOutcome& outcome, uint64_t last_epoch);

}  // namespace seqtile::testing

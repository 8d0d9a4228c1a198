// tests/support/ranks/op_on_ranks.h -- any operation over ranks, on any fabric: random operands, results against f64.
// SPDX-License-Identifier: Apache-2.0
//
// A call's operands are those of one rank that has all rows and all weights, filled as the tuner fills them, and cut:
// rows by the layout, columns and shares of weights one rank's after the other's. So are the results that are wanted,
// which the operation's reference gives for a world of one. Where ranks have an x of their own, to be summed up or sent
// by one of them, there is such a call for each rank.
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

/// A launch on all ranks; equal ones have equal operands, and must give equal bits.
struct OpCall {
  int64_t length;
  uint64_t seed = 1;
  auto operator<=>(const OpCall&) const = default;
};

class OpOnRanks {
 public:
  /// `device` as of RankOptions. Without a configuration: the default one of the longest call.
  OpOnRanks(const autotune::Workload& workload, const std::string& device, std::vector<OpCall> calls,
            std::optional<autotune::Config> config = {});

  const autotune::OpDef& op() const { return op_; }
  const autotune::Workload& workload() const { return workload_; }
  const autotune::Config& config() const { return config_; }
  int64_t longest() const;
  std::unique_ptr<ir::Function> kernel() const;
  /// By rank and launch; outputs hold poison at first.
  const std::vector<std::vector<RankCall>>& calls() const { return calls_; }
  /// Room on the channel for calls of its capacity.
  void enlarge(ChannelOptions& options) const;

  /// Runs alone on a channel. Device and number of ranks are those of the operation. What is wrong, or "".
  std::string run(RankOptions options);
  /// Of all launches: a value that is missing, too many or further from f64 than the operation's tolerance; or, of
  /// equal calls, bits that differ. Empty: nothing.
  std::string fault() const;
  /// The bytes of all outputs, by rank and launch.
  std::vector<std::vector<std::byte>> bytes() const;

 private:
  /// One call of everything on one rank.
  struct Whole {
    std::vector<std::unique_ptr<GuardedCall>> calls;  ///< one for each rank where each has its own x
    std::vector<std::vector<double>> wanted;          ///< by output
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
  /// Visits the elements of a rank's tensor: offset, row and column in the whole.
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
  std::map<std::pair<int, OpCall>, std::vector<std::vector<std::byte>>> inputs_;  ///< by rank, then by argument
  std::vector<std::vector<RankCall>> calls_;
  std::vector<std::vector<std::vector<Output>>> outputs_;  ///< by rank and launch
};

/// RankOptions::before_launch: now and then one of the first four ranks comes late.
void straggle(int rank, int epoch);
/// What ranks say of a run that should have ended well, or "".
std::string problem_of(const RankOutcome& outcome, uint64_t last_epoch);

}  // namespace seqtile::testing

// tests/support/ranks/rank_op_run.h -- runs any operation over ranks on all ranks, by workload and configuration.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "seqtile/op.h"
#include "tests/support/protocol/flag_recorder.h"
#include "tests/support/ranks/rank_run.h"

namespace seqtile::testing {

/// Builds the kernel without the parameter by which graphs know the length.
std::unique_ptr<ir::Function> rank_kernel(const autotune::Workload& workload, const autotune::Config& config,
                                          const Target& target);
/// Makes room for calls of the channel's capacity, which fixes the length of segments.
void enlarge(ChannelOptions& options, const autotune::Workload& workload, const autotune::Config& config);
/// A launch without its tensors.
RankCall launch_of(const autotune::Workload& workload, const autotune::Config& config, int64_t length);

/// Runs the kernel of a configuration. require_success() compares the flags of simulated GPUs with the protocol's
/// model.
RankOutcome run_rank_op(const autotune::Workload& workload, const autotune::Config& config,
                        const std::vector<int64_t>& lengths, RankOptions options,
                        const std::vector<std::vector<RankCall>>& calls);
/// Fails the test if a rank has thrown or given up, or if the flags are no path of the model.
void require_success(const RankOutcome& outcome);

/// Calls of an operation that is known by its schema alone; inputs are random.
class AnyRankRun {
 public:
  AnyRankRun(const autotune::Workload& workload, autotune::Config config, std::vector<int64_t> lengths);

  /// Runs the calls. The first call compiles, so that all calls must name the same kind of device.
  RankOutcome on(const RankOptions& options);
  const std::vector<std::vector<RankCall>>& calls() const { return calls_; }
  /// All bytes of the outputs, by call and rank.
  std::vector<std::byte> outputs() const;
  /// Empty, or the first output with an unwritten value.
  std::string fault() const;

 private:
  struct Buffer {
    std::string name;  ///< name of an output and its rank; empty for other tensors
    Tensor tensor;
    std::vector<std::byte> bytes;
  };
  Tensor make(const autotune::OpDef& op, const autotune::ArgSpec& arg, int rank, int64_t length);

  const autotune::Workload workload_;
  const autotune::Config config_;
  const std::vector<int64_t> lengths_;
  std::optional<KernelBinary> binary_;
  std::deque<Buffer> buffers_;
  std::vector<std::vector<RankCall>> calls_;
};

}  // namespace seqtile::testing

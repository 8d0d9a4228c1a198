// tests/support/ranks/rank_run.h -- fused kernels on several ranks: threads, processes, simulated GPUs, or one for all.
// SPDX-License-Identifier: Apache-2.0
//
// A run is a number of launches on every rank, one epoch each. Its user fills the tensors of each launch and looks at
// them afterwards; tensors and staging hold NaN where nobody has written.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/op_def.h"
#include "jit/device/kernel.h"
#include "jit/device/target.h"
#include "jit/fabric/core/channel.h"
#include "jit/ir/builder.h"
#include "jit/ir/function.h"

namespace seqtile::test {
class FlagRecorder;
}

namespace seqtile::testing {

/// One launch of one rank: tensors in the order of the kernel's parameters, without those of the channel.
/// Workspaces that the kernel has before the counters hold zeros.
struct RankCall {
  Grid grid;
  std::vector<Tensor> tensors;
  int64_t num_counters = 1;
  std::vector<autotune::Workspace> workspaces = {};
  std::vector<int64_t> symbols = {};  ///< by which they have their sizes
  size_t kernel = 0;                  ///< of the run's; its number on the channel too
};

struct RankOptions {
  std::string device = "threads";  ///< "threads", "processes", "nodes", "sim:sm_80", "virtual:sm_80", ...
  int world_size = 2;
  int threads = 1;         ///< of each rank: device "threads"
  ChannelOptions channel;  ///< rows, staging and flags are the kernel's
  uint32_t seed = 0;       ///< of the schedule of simulated GPUs; threads: of random pauses, 0: none
  int slow_rank = -1;      ///< this rank pauses more than others
  std::chrono::nanoseconds patience = std::chrono::minutes(5);  ///< as of make_virtual_fabric()
  std::function<std::string(std::string)> edit_ptx =
      nullptr;                                           ///< simulated GPUs: what runs instead of the kernel's text
  std::function<void(Channel&)> with_channel = nullptr;  ///< on each rank's thread, before the first launch
  std::function<void(int rank, int epoch)> before_launch = nullptr;  ///< on the rank's own thread or process
};

struct RankOutcome {
  std::vector<uint64_t> epochs;                     ///< at the end, by rank
  std::vector<std::optional<AbortRecord>> records;  ///< by rank
  std::vector<std::string> errors;                  ///< processes: what a rank has thrown, by rank
  std::vector<int> statuses;                        ///< processes: how they ended (waitpid)
  std::shared_ptr<const test::FlagRecorder> flags;  ///< of run_rank_op()
};

/// What the kernels of a run are compiled for. Under a sanitizer generated code is watched too, and its checks know
/// accesses of up to 16 bytes.
Target target_of(const RankOptions& options);
/// Warps, stages and alignment, as the engine sets them for kernels of GPUs.
void schedule_for_gpu(KernelBuilder& b, const autotune::Config& config);

/// As run_ranks() does; the text is edited when it runs.
KernelBinary compiled_for_ranks(const ir::Function& function, const RankOptions& options);
/// calls[rank][epoch].
/// Errors: what the PTX machine reports, what a rank's device throws.
RankOutcome run_binaries(std::vector<KernelBinary> binaries, const RankOptions& options,
                         const std::vector<std::vector<RankCall>>& calls);
RankOutcome run_ranks(std::span<const ir::Function* const> functions, const RankOptions& options,
                      const std::vector<std::vector<RankCall>>& calls);
inline RankOutcome run_ranks(const ir::Function& function, const RankOptions& options,
                             const std::vector<std::vector<RankCall>>& calls) {
  return run_ranks(std::array{&function}, options, calls);
}

}  // namespace seqtile::testing

// tests/support/ranks/rank_run.h -- runs fused kernels on ranks: threads, processes, simulated GPUs, or one GPU for
// all.
// SPDX-License-Identifier: Apache-2.0
//
// A run is a number of launches on all ranks, one epoch each. The caller fills the tensors of each launch and looks at
// them afterwards. Unwritten elements of tensors and staging hold NaN.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "seqtile/builder.h"
#include "seqtile/device.h"
#include "seqtile/fabric.h"
#include "seqtile/ir.h"
#include "seqtile/op.h"
#include "seqtile/target.h"

namespace seqtile::test {
class FlagRecorder;
}

namespace seqtile::testing {

/// One launch of one rank. The tensors are in the order of the kernel's parameters, without the channel's tensors. The
/// workspaces before the counters hold zeros.
struct RankCall {
  Grid grid;
  std::vector<Tensor> tensors;
  int64_t num_counters = 1;
  std::vector<autotune::Workspace> workspaces = {};
  std::vector<int64_t> symbols = {};  ///< symbols that give the sizes of the workspaces
  size_t kernel = 0;                  ///< index of the kernel in the run, and its op id on the channel
};

struct RankOptions {
  std::string device = "threads";  ///< "threads", "processes", "nodes", "sim:sm_80", "virtual:sm_80", ...
  int world_size = 2;
  int threads = 1;         ///< of each rank: device "threads"
  ChannelOptions channel;  ///< rows, staging and flags are the kernel's
  uint32_t seed = 0;       ///< of the schedule of simulated GPUs; threads: of random pauses, 0: none
  int slow_rank = -1;      ///< this rank pauses more than others
  std::chrono::nanoseconds timeout = std::chrono::minutes(5);  ///< as of make_virtual_fabric()
  std::function<std::string(std::string)> edit_ptx =
      nullptr;                                           ///< simulated GPUs: what runs instead of the kernel's text
  std::function<void(Channel&)> with_channel = nullptr;  ///< on each rank's thread, before the first launch
  std::function<void(int rank, int epoch)> before_launch = nullptr;  ///< on the rank's own thread or process
};

struct RankOutcome {
  std::vector<uint64_t> epochs;                     ///< epochs at the end, by rank
  std::vector<std::optional<AbortRecord>> records;  ///< by rank
  std::vector<std::string> errors;                  ///< processes: errors that ranks have thrown, by rank
  std::vector<int> statuses;                        ///< processes: exit statuses (waitpid)
  std::shared_ptr<const test::FlagRecorder> flags;  ///< flags of run_rank_op()
};

/// The target of a run's kernels. Under a sanitizer generated code is watched too, and the sanitizer's checks know
/// accesses of up to 16 bytes.
Target target_of(const RankOptions& options);
/// Sets warps, stages and alignment as the engine does for kernels of GPUs.
void schedule_for_gpu(KernelBuilder& b, const autotune::Config& config);

/// Compiles as run_ranks() does. `edit_ptx` changes the text only at the run.
KernelBinary compiled_for_ranks(const ir::Function& function, const RankOptions& options);
/// `calls` is calls[rank][epoch]. Errors: reports of the PTX machine, errors of a rank's device.
RankOutcome run_binaries(std::vector<KernelBinary> binaries, const RankOptions& options,
                         const std::vector<std::vector<RankCall>>& calls);
RankOutcome run_ranks(std::span<const ir::Function* const> functions, const RankOptions& options,
                      const std::vector<std::vector<RankCall>>& calls);
inline RankOutcome run_ranks(const ir::Function& function, const RankOptions& options,
                             const std::vector<std::vector<RankCall>>& calls) {
  return run_ranks(std::array{&function}, options, calls);
}

}  // namespace seqtile::testing

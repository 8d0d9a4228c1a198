// tests/support/kernels/kernel_cases.h -- the one test body of all kernels: every dtype, length and shape of
// configuration
// against the f64 reference, on poisoned memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autotune/op_def.h"
#include "tests/support/kernels/guarded_call.h"
#include "tests/support/kernels/kernel_runner.h"

namespace seqtile::testing {

struct KernelCase {
  std::string operation;
  autotune::Fields fields;
};

/// The lengths every kernel is tested at: 1, primes, tile - 1, tile, tile + 1.
inline const std::vector<int64_t>& test_lengths() {
  static const std::vector<int64_t> lengths = {1, 2, 3, 7, 16, 17, 63, 64, 65, 127, 257, 1000};
  return lengths;
}
inline const std::vector<int64_t> kTestLengths = test_lengths();

/// The operation's definition in the library's registry.
const autotune::OpDef& library_op(const std::string& name);
autotune::Workload normalized(const KernelCase& test_case, DType dtype, int threads = 2);
/// Targets that this machine executes, best first.
std::vector<Target> executable_targets();

/// `most` configurations for `length` that differ as much as possible, or all where the space has fewer: the default,
/// then others so that every value of every textual parameter and the extremes of the numeric ones are present.
std::vector<autotune::Config> diverse_configs(const autotune::OpDef& op, const autotune::Workload& workload,
                                              int64_t length, const Target& target, size_t most);

/// Some for a device of rank_run.h: the default among them, for a call that is not short.
std::vector<autotune::Config> configs_on(const std::string& device, const autotune::Workload& workload);

/// Runs the case in interpreted tile IR. Use small shapes.
void check_interpreted(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths);
/// Compiles for every executable target and runs each configuration twice: the second run must give the same bits. The
/// best target takes all lengths, each other one a third of them; the emulated one takes half of the short ones. f16,
/// which differs from bf16 by its conversions, takes a third of the lengths on this machine's target.
void check_compiled(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths = kTestLengths);
/// The same with all lengths on all targets. For slow tests.
void check_compiled_at_all(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths);

/// The GPUs that every kernel is simulated on.
inline constexpr const char* kSimulatedGpus[] = {"sim:sm_80", "sim:sm_90a"};
/// As devices of ranks: simulated too, one for all of them.
inline constexpr const char* kSharedGpus[] = {"virtual:sm_80", "virtual:sm_90a"};
inline constexpr const char* kSimulatedRanks[] = {"sim:sm_80", "sim:sm_90a", "virtual:sm_80", "virtual:sm_90a"};
/// Compiles to PTX and executes the text on all of them, with all of the machine's checks.
void check_simulated(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths = kTestLengths);
/// The same on one GPU: the tensors and all that is around them are copied there and back.
void check_on(Device& device, const KernelCase& test_case, DType dtype,
              const std::vector<int64_t>& lengths = kTestLengths);
/// The same for a call that a test has filled, aligned to kGpuAlignment.
void check_call_on(Device& device, GuardedCall& call, const autotune::Workload& workload, int64_t length);
/// Calls `work` with each of the simulated GPUs.
void on_simulated_gpus(const std::function<void(Device&)>& work);

/// The first GPU of this machine, or null with the reason on standard output.
std::unique_ptr<Device> open_gpu();

}  // namespace seqtile::testing

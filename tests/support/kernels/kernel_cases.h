// tests/support/kernels/kernel_cases.h -- the test body of all kernels: all dtypes, lengths and configurations, on
// poisoned memory, against the f64 reference.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "seqtile/op.h"
#include "tests/support/kernels/guarded_call.h"
#include "tests/support/kernels/kernel_runner.h"

namespace seqtile::testing {

struct KernelCase {
  std::string operation;
  autotune::Fields fields;
};

/// The lengths of all kernel tests: 1, primes, tile - 1, tile, tile + 1.
inline const std::vector<int64_t>& test_lengths() {
  static const std::vector<int64_t> lengths = {1, 2, 3, 7, 16, 17, 63, 64, 65, 127, 257, 1000};
  return lengths;
}
inline const std::vector<int64_t> kTestLengths = test_lengths();

/// The operation's definition in the library's registry.
const autotune::OpDef& library_op(const std::string& name);
autotune::Workload normalized(const KernelCase& test_case, DType dtype, int threads = 2);
/// The targets that this machine executes, best first.
std::vector<Target> executable_targets();

/// `most` configurations for `length` that differ as much as possible, or all if the space has fewer. The default comes
/// first. The others are chosen so that all values of textual parameters and the extremes of numeric ones occur.
std::vector<autotune::Config> diverse_configs(const autotune::OpDef& op, const autotune::Workload& workload,
                                              int64_t length, const Target& target, size_t most);

/// Configurations for a device of rank_run.h, the default of a long call among them.
std::vector<autotune::Config> configs_on(const std::string& device, const autotune::Workload& workload);

/// Runs the case as interpreted tile IR. Use small shapes.
void check_interpreted(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths);
/// Compiles for all executable targets and runs each configuration twice; both runs must give the same bits. The best
/// target takes all lengths, each other target a third of them; the emulated target takes half of the short ones. f16
/// takes a third of the lengths on this machine's target, because it differs from bf16 only by its conversions.
void check_compiled(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths = kTestLengths);
/// As check_compiled(), with all lengths on all targets. For slow tests.
void check_compiled_at_all(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths);

/// The GPUs on which all kernels are simulated.
inline constexpr const char* kSimulatedGpus[] = {"sim:sm_80", "sim:sm_90a"};
/// The same GPUs as devices of ranks; "virtual:" is one simulated GPU for all ranks.
inline constexpr const char* kSharedGpus[] = {"virtual:sm_80", "virtual:sm_90a"};
inline constexpr const char* kSimulatedRanks[] = {"sim:sm_80", "sim:sm_90a", "virtual:sm_80", "virtual:sm_90a"};
/// Compiles to PTX and executes it on all simulated GPUs, with all checks of the PTX machine.
void check_simulated(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths = kTestLengths);
/// As check_simulated(), on one GPU. The tensors and the memory around them are copied there and back.
void check_on(Device& device, const KernelCase& test_case, DType dtype,
              const std::vector<int64_t>& lengths = kTestLengths);
/// As check_on(), for a call that a test has filled, aligned to kGpuAlignment.
void check_call_on(Device& device, GuardedCall& call, const autotune::Workload& workload, int64_t length);
/// Calls `work` with each simulated GPU.
void on_simulated_gpus(const std::function<void(Device&)>& work);

/// The first GPU of this machine; null, with the reason on standard output, if there is none.
std::unique_ptr<Device> open_gpu();

}  // namespace seqtile::testing

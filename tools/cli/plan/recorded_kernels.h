// tools/cli/plan/recorded_kernels.h -- the planner's kernel times from the tuning records of a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "planner/prices/kernel_times.h"
#include "tools/cli/options.h"
#include "tools/cli/serve/time_curve.h"

namespace seqtile::cli {

/// Times of the registered operation that does a call's work, at the call's static fields, interpolated between the
/// measured lengths. Modelled records do not count as measured. Requires: the registry outlives the object.
class RecordedKernels {
 public:
  /// Errors: as open_device_of(), and as open_store_of() for an existing --cache.
  RecordedKernels(const autotune::Registry& registry, const Options& options);

  /// Seconds of a call, or nullopt without records.
  std::optional<double> seconds(const planner::KernelCall& call);
  /// Hashes of the records of all kernels that seconds() was asked for, by kernel (operation and static fields). The
  /// hash is empty for a kernel without records.
  std::map<std::string, std::string> used() const;
  /// True if the records of these kernels still have these hashes. The kernels then count as asked for.
  bool still_has(const std::map<std::string, std::string>& used);
  /// Device, threads and release of the records, as JSON.
  std::string environment() const;

 private:
  struct Kernel {
    TimeCurve curve;
    std::string hash;
  };
  const Kernel& kernel_of(const autotune::Workload& workload);
  Kernel read(const autotune::Workload& workload);

  const autotune::Registry& registry_;
  const int threads_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<cache::TuningStore> store_;
  std::map<std::string, Kernel> kernels_;
};

/// The times of `records`, and of `otherwise` for calls without records.
planner::KernelTimes recorded_kernel_times(std::shared_ptr<RecordedKernels> records, planner::KernelTimes otherwise);

}  // namespace seqtile::cli

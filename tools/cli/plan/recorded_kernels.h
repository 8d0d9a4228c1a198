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

/// Times of the registered operation that a call is, at its static fields, between the lengths that were measured.
/// Modelled records are not measured. The registry outlives it.
class RecordedKernels {
 public:
  /// Errors: as open_device_of() and open_store_of() for an existing --cache.
  RecordedKernels(const autotune::Registry& registry, const Options& options);

  /// Nothing where there are no records.
  std::optional<double> seconds(const planner::KernelCall& call);
  /// By kernel, operation and static fields, a hash of its records: of all that seconds() was asked for, empty where
  /// there are none.
  std::map<std::string, std::string> used() const;
  /// Whether the records of these kernels are still those. Such kernels are counted as asked for.
  bool still_has(const std::map<std::string, std::string>& used);
  /// Device, threads and release of the records, as a text.
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

/// The times of `records`; of other calls those of `otherwise`.
planner::KernelTimes recorded_kernel_times(std::shared_ptr<RecordedKernels> records, planner::KernelTimes otherwise);

}  // namespace seqtile::cli

// tools/cli/recorded_kernels.h -- the planner's kernel times from the tuning records of a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "autotune/plan/kernel_times.h"
#include "tools/cli/options.h"

namespace seqtile::cli {

/// Times of the registered operation that a call is, at its static fields, between the lengths that were measured; of
/// other calls those of `otherwise`. Modelled records are not measured. The registry outlives the result.
/// Errors: as open_device_of() and open_store_of() for an existing --cache.
plan::KernelTimes recorded_kernel_times(const autotune::Registry& registry, const Options& options,
                                        plan::KernelTimes otherwise);

}  // namespace seqtile::cli

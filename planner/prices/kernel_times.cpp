// planner/prices/kernel_times.cpp -- see kernel_times.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/prices/kernel_times.h"

#include <algorithm>

namespace seqtile::planner {

KernelTimes roofline(const DeviceFacts& facts) {
  return [facts](const KernelCall& call) {
    const double busy = std::max(call.flops / facts.peak_flops, call.bytes / facts.bandwidth);
    return KernelTime{facts.launch_s + busy, false};
  };
}

}  // namespace seqtile::planner

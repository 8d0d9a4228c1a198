// jit/runtime/cpu/cpu_device.h -- facts of the host CPU, for device.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "seqtile/device.h"

namespace seqtile::cpu {

/// Model, target, cores and caches of the running machine, without starting a thread.
DeviceInfo describe_host();

}  // namespace seqtile::cpu

// jit/runtime/cpu/host_memory.h -- device memory and streams where kernels run in this process, at once.
// SPDX-License-Identifier: Apache-2.0
//
// Both are without state and thread-safe. There is one stream, the null one, whose work is done when its call returns.
#pragma once
#include "jit/device.h"

namespace seqtile::cpu {

/// Ordinary memory of this process.
DeviceMemory& host_memory();
/// Nothing to wait for; events take the clock; capture is unsupported.
DeviceStreams& host_streams();

}  // namespace seqtile::cpu

// jit/runtime/cpu/host_memory.h -- device memory and streams where kernels run in this process, at once.
// SPDX-License-Identifier: Apache-2.0
//
// Memory and streams have no state and are thread-safe. There is one stream, the null one. Its work is done when the
// call returns.
#pragma once
#include "seqtile/device.h"

namespace seqtile::cpu {

/// Ordinary memory of this process.
DeviceMemory& host_memory();
/// Streams that never wait. Events take the host's clock; capture is unsupported.
DeviceStreams& host_streams();

}  // namespace seqtile::cpu

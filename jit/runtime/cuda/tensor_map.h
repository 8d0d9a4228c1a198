// jit/runtime/cuda/tensor_map.h -- descriptors that the tensor memory accelerator copies tiles by.
// SPDX-License-Identifier: Apache-2.0
//
// A kernel of the Hopper form takes, after its argument slots, one 128-byte descriptor for each view that it copies
// tiles of. The driver makes a descriptor from base, sizes and strides in about a microsecond, too long for a launch;
// so each thread keeps the descriptors that it used last. A descriptor depends only on the key here, and never goes
// stale.
#pragma once
#include <span>

#include "jit/device/gpu_launch.h"
#include "jit/runtime/cuda/cuda_context.h"
#include "seqtile/device.h"

namespace seqtile::cuda {

/// The descriptor of the view in `slots`. The reference holds until the next call on this thread.
/// Errors: invalid_argument when base or strides are not multiples of 16 bytes, or the driver refuses the tile.
const CUtensorMap& tensor_map(const Context& context, const TensorMapSpec& spec, std::span<const uint64_t> slots);

}  // namespace seqtile::cuda

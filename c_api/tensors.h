// c_api/tensors.h -- DLPack's tensors as the engine takes them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

#include "seqtile.h"
#include "seqtile/op.h"
#include "seqtile/operation.h"

namespace seqtile::c_api {

/// Adds the tensors of a call. `specs`: the arguments that the caller gives; the handle checks shapes and dtypes by
/// them. `gpu`: the number of the engine's GPU, or kHost or kNoGpu. Errors: invalid_argument, naming the argument: a
/// number of tensors that is not that of `specs`, a null tensor or shape, more dimensions than there are, memory of
/// another device, an element type that there is not.
void add_tensors(std::span<const DLTensor* const> tensors, std::span<const autotune::ArgSpec> specs, int gpu,
                 kernels::Call& call);

}  // namespace seqtile::c_api

// kernels/registry.h -- the library's own operations, one line each in registry.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"

namespace seqtile::kernels {

/// All operations of the library; a program adds its own to it.
autotune::Registry make_registry();

}  // namespace seqtile::kernels

// jit/compiler.h -- what stores of binaries ask of the compiler.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "seqtile/compiler.h"

namespace seqtile {

/// Whether `binary`, which may come from a store, is what compile() gives for `target`: its name, and for GPUs stage
/// and architecture.
bool is_made_for(const KernelBinary& binary, const Target& target);

}  // namespace seqtile

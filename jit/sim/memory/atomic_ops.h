// jit/sim/memory/atomic_ops.h -- the results of read-modify-writes: atom, red, and the reductions of bulk copies.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "jit/sim/decode/program.h"

namespace seqtile::sim {

/// The element after the operation, as bits; `compare` matters to cas only.
uint64_t apply_atomic(AtomicOp op, PtxType type, uint64_t old, uint64_t value, uint64_t compare);

}  // namespace seqtile::sim

// jit/abi/program_fn.h -- the calling convention between compiled CPU kernels and the runtime that calls them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>

namespace seqtile::cpu {

/// Runs one program. `slots`: the launch's argument block (ir::num_slots). A view has its base, its sizes and its
/// strides in elements; a scalar has its bits in the low bytes. `pid`, `grid`: three i64 each. `arena`:
/// KernelBinary::arena_bytes of scratch memory, 64-byte aligned, contents undefined, not shared with another running
/// program.
using ProgramFn = void (*)(const uint64_t* slots, const int64_t* pid, const int64_t* grid, std::byte* arena);

}  // namespace seqtile::cpu

// jit/codegen/cpu/object.h -- LLVM module -> machine code -> one relocation-free block.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "seqtile/device.h"
#include "seqtile/target.h"

namespace llvm {
class Module;
}  // namespace llvm

namespace seqtile::cpu {

/// Optimises `module` (which it consumes), generates code for its one external function and resolves every
/// relocation inside one block. The checks of `sanitizer` are added after the passes. Calls `dump` with "ll"
/// (after the passes) and "asm" when it is not empty. Errors: compile_failed naming an external symbol or a relocation
/// that cannot be resolved at compile time.
KernelBinary emit_blob(llvm::Module& module, const Target& target, const StageDump& dump,
                       Sanitizer sanitizer = Sanitizer::none);

}  // namespace seqtile::cpu

// jit/compiler.h -- the spine: tile IR -> passes -> lowering -> LLVM IR -> object -> blob, or PTX text for GPUs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <string_view>

#include "jit/ir/function.h"
#include "jit/kernel.h"
#include "jit/target.h"

namespace seqtile {

/// Called once a stage with its name ("tile", "ll", "asm" or "ptx") and text; an empty function asks for nothing.
using StageDump = std::function<void(std::string_view stage, std::string_view text)>;

/// Compiles `function` (verified first) for `target`. Thread-safe: each call has its own LLVM context.
/// Errors: compile_failed, naming the operation that has no lowering or the external symbol that is left.
KernelBinary compile(const ir::Function& function, const Target& target, const StageDump& dump = {});

/// Whether this build's LLVM generates code for `target`; AArch64 is left out where LLVM is linked statically.
bool can_compile_for(const Target& target);

/// Version text of everything that the machine code depends on besides the IR: "seqtile 0.1.0, LLVM 19.1.7, codegen 5".
std::string_view toolchain_version();

}  // namespace seqtile

// include/seqtile/compiler.h -- tile IR to machine code of the host, or to PTX.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

#include "seqtile/device.h"
#include "seqtile/ir.h"
#include "seqtile/target.h"

namespace seqtile {

/// Compiles `function` (verified first) for `target`. Thread-safe: each call has its own LLVM context.
/// For GPUs the result is a cubin where `target` names an architecture that ptxas knows, else PTX.
/// Errors: compile_failed, naming the operation that has no lowering, the external symbol that is left or the complaint
/// of ptxas; unsupported where a cubin is asked for and there is no ptxas. A binary for a sanitizer holds addresses of
/// this process and must not be stored; unsupported where the process has no such sanitizer.
KernelBinary compile(const ir::Function& function, const Target& target, const StageDump& dump = {},
                     Sanitizer sanitizer = Sanitizer::none);

/// Whether this build's LLVM generates code for `target`; AArch64 is left out where LLVM is linked statically.
bool can_compile_for(const Target& target);

/// `target` for cubins of the GPU `arch` ("sm_89"; empty: of the target itself) where this machine has a ptxas that
/// works (docs/env.md), else `target` as it is: the driver compiles the PTX.
Target assembled(Target target, std::string_view arch = {});

/// Version text of everything that the machine code depends on besides the IR: "seqtile 0.1.0, LLVM 19.1.7, codegen
/// <n>".
std::string_view toolchain_version();
/// toolchain_version(), and the version of the ptxas if one makes the cubins of `target`: all that the bytes of a
/// binary depend on.
std::string toolchain_version(const Target& target);

}  // namespace seqtile

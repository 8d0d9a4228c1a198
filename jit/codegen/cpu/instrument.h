// jit/codegen/cpu/instrument.h -- checks in generated code for the sanitizer of this process; for tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "seqtile/target.h"

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace seqtile::cpu {

/// Adds the checks of loads, stores and atomics. The checks call the sanitizer's run-time by its address in this
/// process. LLVM checks accesses of up to 16 bytes: compile for a target whose vectors are no longer and know no masks.
/// Errors: unsupported where this process has no such run-time, or the build no such passes.
void instrument(llvm::Module& module, llvm::TargetMachine& machine, Sanitizer sanitizer);

}  // namespace seqtile::cpu

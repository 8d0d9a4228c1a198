// tests/support/ptx/llvm_kernel.h -- kernels for tests below the lowering: from LLVM IR, text or built, to a loaded
// kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <string_view>

#include "jit/compiler.h"
#include "jit/device/kernel.h"
#include "jit/device/target.h"

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace seqtile::testing {

/// Machine code for the one external function of `text` (LLVM assembly), which takes the arguments of ProgramFn.
KernelBinary compile_llvm(std::string_view text, const Target& target, uint32_t num_slots, const StageDump& dump = {});

/// Gives y for x (both f32, scalar or vector).
using EmitFn = std::function<llvm::Value*(llvm::IRBuilderBase&, llvm::Value* x)>;

/// A kernel that maps an f32 array: slots are input, output, count; count is a multiple of `lanes`, the width in
/// which `emit` works (1: scalars).
KernelBinary compile_map(const EmitFn& emit, int lanes, const Target& target);

}  // namespace seqtile::testing

// tests/support/ptx/llvm_kernel.h -- compiles kernels from LLVM IR, for tests below the lowering.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <string_view>

#include "seqtile/compiler.h"
#include "seqtile/device.h"
#include "seqtile/target.h"

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace seqtile::testing {

/// Compiles the one external function of `text` (LLVM assembly), which takes the arguments of ProgramFn.
KernelBinary compile_llvm(std::string_view text, const Target& target, uint32_t num_slots, const StageDump& dump = {});

/// Emits y for x; both are f32, scalar or vector.
using EmitFn = std::function<llvm::Value*(llvm::IRBuilderBase&, llvm::Value* x)>;

/// A kernel that maps an f32 array; its slots are input, output, count. `lanes` is the width in which `emit` works (1:
/// scalars). Requires: count is a multiple of `lanes`.
KernelBinary compile_map(const EmitFn& emit, int lanes, const Target& target);

}  // namespace seqtile::testing

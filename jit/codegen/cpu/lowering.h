// jit/codegen/cpu/lowering.h -- tile IR -> LLVM IR for CPU targets.
// SPDX-License-Identifier: Apache-2.0
//
// One tile-IR function becomes one LLVM function that runs one program of the grid (see program_fn.h). docs/design.md
// describes the stages: dimension classes, contraction loops, dots on packed buffers, fused row loops.
#pragma once
#include <cstdint>
#include <memory>

#include "seqtile/ir.h"
#include "seqtile/target.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace seqtile::cpu {

struct LoweredModule {
  std::unique_ptr<llvm::Module> module;  ///< one externally visible function, named after the tile-IR function
  uint64_t arena_bytes = 0;
};

/// Errors: compile_failed naming the operation that has no lowering.
LoweredModule lower(const ir::Function& function, const Target& target, llvm::LLVMContext& context);

}  // namespace seqtile::cpu

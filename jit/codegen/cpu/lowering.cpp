// jit/codegen/cpu/lowering.cpp -- see lowering.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/lowering.h"

#include "jit/codegen/cpu/program.h"
#include "llvm/IR/Module.h"

namespace seqtile::cpu {

LoweredModule lower(const ir::Function& function, const Target& target, llvm::LLVMContext& context) {
  auto module = std::make_unique<llvm::Module>(function.name(), context);
  module->setTargetTriple(target.triple);
  Program program(*module, target, function);
  program.lower();
  return {std::move(module), static_cast<uint64_t>(program.arena_bytes())};
}

}  // namespace seqtile::cpu

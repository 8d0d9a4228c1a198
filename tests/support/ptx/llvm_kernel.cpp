// tests/support/ptx/llvm_kernel.cpp -- see llvm_kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ptx/llvm_kernel.h"

#include <stdexcept>

#include "jit/codegen/cpu/object.h"

#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/SourceMgr.h>

namespace seqtile::testing {

KernelBinary compile_llvm(std::string_view text, const Target& target, uint32_t num_slots, const StageDump& dump) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic diagnostic;
  const auto module = llvm::parseAssemblyString(text, diagnostic, context);
  if (!module) throw std::runtime_error("test kernel: " + diagnostic.getMessage().str());
  KernelBinary binary = cpu::emit_blob(*module, target, dump);
  binary.num_slots = num_slots;
  return binary;
}

KernelBinary compile_map(const EmitFn& emit, int lanes, const Target& target) {
  llvm::LLVMContext context;
  llvm::Module module("map", context);
  llvm::IRBuilder<> b(context);
  auto* pointer = b.getPtrTy();
  auto* type = llvm::FunctionType::get(b.getVoidTy(), {pointer, pointer, pointer, pointer}, false);
  auto* function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, "map", module);
  auto* entry = llvm::BasicBlock::Create(context, "entry", function);
  auto* loop = llvm::BasicBlock::Create(context, "loop", function);
  auto* done = llvm::BasicBlock::Create(context, "done", function);

  b.SetInsertPoint(entry);
  const auto slot = [&](int index, llvm::Type* as) {
    return b.CreateLoad(as, b.CreateConstGEP1_64(b.getInt64Ty(), function->getArg(0), index));
  };
  llvm::Value *in = slot(0, pointer), *out = slot(1, pointer), *count = slot(2, b.getInt64Ty());
  b.CreateBr(loop);

  b.SetInsertPoint(loop);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2);
  llvm::Type* value_type =
      lanes == 1 ? b.getFloatTy() : static_cast<llvm::Type*>(llvm::FixedVectorType::get(b.getFloatTy(), lanes));
  llvm::Value* x = b.CreateAlignedLoad(value_type, b.CreateGEP(b.getFloatTy(), in, i), llvm::Align(4));
  b.CreateAlignedStore(emit(b, x), b.CreateGEP(b.getFloatTy(), out, i), llvm::Align(4));
  llvm::Value* next = b.CreateAdd(i, b.getInt64(static_cast<uint64_t>(lanes)));
  i->addIncoming(b.getInt64(0), entry);
  i->addIncoming(next, loop);
  b.CreateCondBr(b.CreateICmpULT(next, count), loop, done);

  b.SetInsertPoint(done);
  b.CreateRetVoid();
  KernelBinary binary = cpu::emit_blob(module, target, {});
  binary.num_slots = 3;
  return binary;
}

}  // namespace seqtile::testing

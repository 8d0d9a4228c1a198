// jit/codegen/control_flow.cpp -- see control_flow.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/control_flow.h"

#include <llvm/IR/IRBuilder.h>

namespace seqtile::codegen {

using llvm::BasicBlock;
using llvm::Value;

std::vector<Value*> emit_loop(llvm::IRBuilderBase& b, Value* lo, Value* hi, Value* step, std::vector<Value*> inits,
                              const LoopBody& body) {
  BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* head = BasicBlock::Create(b.getContext(), "loop", function);
  auto* inside = BasicBlock::Create(b.getContext(), "body", function);
  auto* after = BasicBlock::Create(b.getContext(), "done", function);
  b.CreateBr(head);
  b.SetInsertPoint(head);
  llvm::PHINode* index = b.CreatePHI(lo->getType(), 2);
  index->addIncoming(lo, before);
  std::vector<llvm::PHINode*> phis;
  std::vector<Value*> carried;
  for (Value* init : inits) {
    phis.push_back(b.CreatePHI(init->getType(), 2));
    phis.back()->addIncoming(init, before);
    carried.push_back(phis.back());
  }
  b.CreateCondBr(b.CreateICmpSLT(index, hi), inside, after);
  b.SetInsertPoint(inside);
  const std::vector<Value*> next = body(index, carried);
  Value* next_index = b.CreateAdd(index, step);
  BasicBlock* latch = b.GetInsertBlock();
  b.CreateBr(head);
  index->addIncoming(next_index, latch);
  for (size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(next[i], latch);
  b.SetInsertPoint(after);
  return carried;
}

void emit_if(llvm::IRBuilderBase& b, Value* condition, const std::function<void()>& body) {
  llvm::Function* function = b.GetInsertBlock()->getParent();
  auto* inside = BasicBlock::Create(b.getContext(), "then", function);
  auto* after = BasicBlock::Create(b.getContext(), "endif", function);
  b.CreateCondBr(condition, inside, after);
  b.SetInsertPoint(inside);
  body();
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

}  // namespace seqtile::codegen

// jit/codegen/control_flow.cpp -- see control_flow.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/control_flow.h"

#include <llvm/IR/IRBuilder.h>

namespace seqtile::codegen {

using llvm::BasicBlock;
using llvm::Value;

void emit_while(llvm::IRBuilderBase& b, const std::vector<Value*>& inits,
                const std::function<Value*(std::vector<Value*>)>& test,
                const std::function<std::vector<Value*>()>& body) {
  BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* head = BasicBlock::Create(b.getContext(), "loop", function);
  auto* inside = BasicBlock::Create(b.getContext(), "body", function);
  auto* after = BasicBlock::Create(b.getContext(), "done", function);
  b.CreateBr(head);
  b.SetInsertPoint(head);
  std::vector<llvm::PHINode*> phis;
  for (Value* init : inits) {
    phis.push_back(b.CreatePHI(init->getType(), 2));
    phis.back()->addIncoming(init, before);
  }
  Value* goes_on = test({phis.begin(), phis.end()});
  b.CreateCondBr(goes_on, inside, after);
  b.SetInsertPoint(inside);
  const std::vector<Value*> next = body();
  for (size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(next[i], b.GetInsertBlock());
  b.CreateBr(head);
  b.SetInsertPoint(after);
}

std::vector<Value*> emit_loop(llvm::IRBuilderBase& b, Value* lo, Value* hi, Value* step, std::vector<Value*> inits,
                              const LoopBody& body) {
  Value* index = nullptr;
  std::vector<Value*> carried;
  inits.insert(inits.begin(), lo);
  emit_while(
      b, inits,
      [&](std::vector<Value*> values) {
        index = values.front();
        carried.assign(values.begin() + 1, values.end());
        return b.CreateICmpSLT(index, hi);
      },
      [&] {
        std::vector<Value*> next = body(index, carried);
        next.insert(next.begin(), b.CreateAdd(index, step));
        return next;
      });
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

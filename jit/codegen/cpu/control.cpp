// jit/codegen/cpu/control.cpp -- loops and branches: scalars are carried in registers, tiles in the arena.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/program.h"

namespace seqtile::cpu {

using ir::Op;
using llvm::Value;

// Writes the yielded tiles into the buffers of `carried` and collects the yielded scalars. All values are read before
// any is overwritten: tiles that are not already in place go through a copy.
void Program::yield_into(const std::vector<ir::Value*>& yielded, size_t first,
                         const std::vector<const ir::Value*>& carried, std::vector<Value*>& next_scalars) {
  struct Move {
    Buffer from, to;
    const ir::Type* type;
  };
  std::vector<Move> moves;
  for (size_t i = 0; i < carried.size(); ++i) {
    const ir::Value* value = yielded[first + i];
    if (!value->type.is_tile()) continue;
    const Buffer& home = buffers_.at(carried[i]);
    if (const auto it = buffers_.find(value); it != buffers_.end() && it->second.offset == home.offset) continue;
    if (const auto it = buffers_.find(value); it != buffers_.end() && it->second.strides == home.strides) {
      moves.push_back({it->second, home, &value->type});
      continue;
    }
    const Buffer copy = reserve_tile(value->type);
    add_root({Root::Kind::materialise, nullptr, value, copy, 0});
    moves.push_back({copy, home, &value->type});
  }
  flush();
  for (const Move& move : moves) copy_buffer(move.from, move.to, *move.type);
  for (size_t i = 0; i < carried.size(); ++i)
    if (!yielded[first + i]->type.is_tile()) next_scalars.push_back(scalars_.at(yielded[first + i]));
}

void Program::copy_buffer(const Buffer& from, const Buffer& to, const ir::Type& type) {
  const int64_t row = type.rank == 0 ? 1 : type.shape[type.rank - 1];
  const int width = row % e_.lanes == 0 || from.strides[0] > 1 || type.rank == 1 ? e_.lanes : 1;
  std::vector<Value*> at;
  const auto loops = [&](const auto& self, int d) -> void {
    const int step = d + 1 == type.rank ? width : 1;
    e_.loop(e_.i64(0), e_.i64(type.shape[d]), step, [&](Value* i) {
      at.push_back(i);
      if (d + 1 < type.rank) {
        self(self, d + 1);
      } else {
        const std::vector<Value*> outer(at.begin(), at.end() - 1);
        const Index index = column_index(outer, i, width);
        write_buffer(to, read_buffer(from, index), index);
      }
      at.pop_back();
    });
  };
  loops(loops, 0);
}

void Program::lower_for(const Op& op) {
  flush();
  if (lower_contraction(op)) return;
  hoist_operands(*op.regions[0]);
  const ir::Block& body = *op.regions[0];
  std::vector<const ir::Value*> carried(body.arguments.begin() + 1, body.arguments.end());
  std::vector<Value*> inits;
  for (size_t i = 0; i < carried.size(); ++i) {
    const ir::Value* init = op.operands[3 + i];
    if (init->type.is_tile()) {
      const bool product = init->type.rank == 2 && init->type.dtype == DType::f32;
      const Buffer home = product ? product_buffer(init->type) : reserve_tile(init->type);
      copy_to(init, home);
      buffers_[carried[i]] = home;
    } else {
      inits.push_back(scalars_.at(init));
    }
  }
  const auto bound = [&](int i) { return scalars_.at(op.operands[i]); };
  const auto last = e_.loop(bound(0), bound(1), bound(2), inits, [&](Value* index, std::vector<Value*> values) {
    scalars_[body.arguments[0]] = index;
    size_t next = 0;
    for (const ir::Value* value : carried)
      if (!value->type.is_tile()) scalars_[value] = values[next++];
    std::vector<Value*> next_scalars;
    scope_.push_back(&body);
    for (const Op* inner : body.ops) {
      current_ = inner;
      if (inner->kind == ir::OpKind::yield) yield_into(inner->operands, 0, carried, next_scalars);
      else lower_op(*inner);
    }
    scope_.pop_back();
    return next_scalars;
  });
  current_ = &op;
  size_t next = 0;
  for (size_t i = 0; i < carried.size(); ++i) {
    if (carried[i]->type.is_tile()) buffers_[op.results[i]] = buffers_.at(carried[i]);
    else scalars_[op.results[i]] = last[next++];
  }
}

void Program::lower_if(const Op& op) {
  flush();
  const std::vector<const ir::Value*> results(op.results.begin(), op.results.end());
  for (const ir::Value* result : results)
    if (result->type.is_tile()) buffers_[result] = reserve_tile(result->type);
  llvm::Function* fn = e_.b.GetInsertBlock()->getParent();
  auto* after = llvm::BasicBlock::Create(e_.context, "endif", fn);
  llvm::BasicBlock* sides[2] = {llvm::BasicBlock::Create(e_.context, "then", fn),
                                llvm::BasicBlock::Create(e_.context, "else", fn)};
  e_.b.CreateCondBr(scalars_.at(op.operands[0]), sides[0], sides[1]);
  std::vector<Value*> values[2];
  llvm::BasicBlock* ends[2];
  for (int side = 0; side < 2; ++side) {
    e_.b.SetInsertPoint(sides[side]);
    const ir::Block& block = *op.regions[side];
    scope_.push_back(&block);
    for (const Op* inner : block.ops) {
      current_ = inner;
      if (inner->kind == ir::OpKind::yield) yield_into(inner->operands, 0, results, values[side]);
      else lower_op(*inner);
    }
    flush();
    scope_.pop_back();
    ends[side] = e_.b.GetInsertBlock();
    e_.b.CreateBr(after);
  }
  e_.b.SetInsertPoint(after);
  current_ = &op;
  size_t next = 0;
  for (const ir::Value* result : results) {
    if (result->type.is_tile()) continue;
    llvm::PHINode* phi = e_.b.CreatePHI(e_.type_of(result->type.dtype), 2);
    for (int side = 0; side < 2; ++side) phi->addIncoming(values[side][next], ends[side]);
    scalars_[result] = phi;
    ++next;
  }
}

void Program::lower_while(const Op& op) {
  flush();
  const ir::Block &condition = *op.regions[0], &body = *op.regions[1];
  llvm::Function* fn = e_.b.GetInsertBlock()->getParent();
  auto* header = llvm::BasicBlock::Create(e_.context, "while", fn);
  auto* inside = llvm::BasicBlock::Create(e_.context, "body", fn);
  auto* after = llvm::BasicBlock::Create(e_.context, "done", fn);
  std::vector<const ir::Value*> at_test(condition.arguments.begin(), condition.arguments.end());
  std::vector<std::pair<const ir::Value*, llvm::PHINode*>> phis;
  for (size_t i = 0; i < at_test.size(); ++i) {
    if (!at_test[i]->type.is_tile()) continue;
    const Buffer home = reserve_tile(at_test[i]->type);
    copy_to(op.operands[i], home);
    buffers_[at_test[i]] = buffers_[body.arguments[i]] = buffers_[op.results[i]] = home;
  }
  llvm::BasicBlock* before = e_.b.GetInsertBlock();
  e_.b.CreateBr(header);
  e_.b.SetInsertPoint(header);
  for (size_t i = 0; i < at_test.size(); ++i) {
    if (at_test[i]->type.is_tile()) continue;
    llvm::PHINode* phi = e_.b.CreatePHI(e_.type_of(at_test[i]->type.dtype), 2);
    phi->addIncoming(scalars_.at(op.operands[i]), before);
    scalars_[at_test[i]] = phi;
    phis.push_back({at_test[i], phi});
  }
  std::vector<Value*> next_scalars, tested;  // what the condition passes on is what body and results see
  const auto region = [&](const ir::Block& block, size_t skip, std::vector<Value*>& scalars) {
    Value* test = nullptr;
    scope_.push_back(&block);
    for (const Op* inner : block.ops) {
      current_ = inner;
      if (inner->kind != ir::OpKind::yield) {
        lower_op(*inner);
        continue;
      }
      if (skip) test = scalars_.at(inner->operands[0]);
      yield_into(inner->operands, skip, at_test, scalars);
    }
    scope_.pop_back();
    return test;
  };
  Value* test = region(condition, 1, tested);
  size_t passed = 0;
  for (size_t i = 0; i < at_test.size(); ++i)
    if (!at_test[i]->type.is_tile()) scalars_[body.arguments[i]] = scalars_[op.results[i]] = tested[passed++];
  e_.b.CreateCondBr(test, inside, after);
  e_.b.SetInsertPoint(inside);
  region(body, 0, next_scalars);
  for (size_t i = 0; i < phis.size(); ++i) phis[i].second->addIncoming(next_scalars[i], e_.b.GetInsertBlock());
  e_.b.CreateBr(header);
  e_.b.SetInsertPoint(after);
  current_ = &op;
}

}  // namespace seqtile::cpu

// jit/codegen/nvptx/layout/masks.cpp -- masks that hold for a whole tile are not applied.
// SPDX-License-Identifier: Apache-2.0
//
// A causal mask cuts only the tiles on the diagonal, a mask of the length only the last; applied to every tile it would
// be a third of what attention computes beside its products. Masks are made of positions, whose least and greatest are
// known without looking at the elements: where they show that the mask holds everywhere, a branch skips it.
#include <limits>

#include "jit/codegen/nvptx/hopper/hopper.h"
#include "jit/codegen/nvptx/pipeline/overlap.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

// The bounds are those of integers that do not wrap; comparisons look whether they fit the tile's own.
std::optional<Program::Bounds> Program::bounds_of(const ir::Value* tile) {
  const Op* op = tile->def;
  if (!op || tile->type.dtype != DType::i32) return std::nullopt;
  const auto operand = [&](size_t i) { return bounds_of(op->operands[i]); };
  switch (op->kind) {
    case OpKind::iota: return Bounds{e_.i64(0), e_.i64(tile->type.shape[0] - 1)};
    case OpKind::full: {
      Value* value = e_.b.CreateSExt(scalars_.at(op->operands[0]), e_.b.getInt64Ty());
      return Bounds{value, value};
    }
    case OpKind::expand:
    case OpKind::broadcast:
    case OpKind::trans: return operand(0);
    case OpKind::add:
    case OpKind::sub: {
      const auto a = operand(0), b = operand(1);
      if (!a || !b) return std::nullopt;
      if (op->kind == OpKind::add) return Bounds{e_.b.CreateAdd(a->least, b->least), e_.b.CreateAdd(a->most, b->most)};
      return Bounds{e_.b.CreateSub(a->least, b->most), e_.b.CreateSub(a->most, b->least)};
    }
    case OpKind::min:
    case OpKind::max: {
      const auto a = operand(0), b = operand(1);
      if (!a || !b) return std::nullopt;
      const auto pick = op->kind == OpKind::min ? llvm::Intrinsic::smin : llvm::Intrinsic::smax;
      return Bounds{e_.b.CreateBinaryIntrinsic(pick, a->least, b->least),
                    e_.b.CreateBinaryIntrinsic(pick, a->most, b->most)};
    }
    case OpKind::select: {  // the condition is not looked at
      const auto a = operand(1), b = operand(2);
      if (!a || !b) return std::nullopt;
      return Bounds{e_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a->least, b->least),
                    e_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a->most, b->most)};
    }
    default: return std::nullopt;
  }
}

// Whether every element of the i1 tile is surely true, or null where that takes a look at them.
Value* Program::holds_everywhere(const ir::Value* mask) {
  const Op* op = mask->def;
  if (!op || (op->kind != OpKind::cmp && op->kind != OpKind::bit_and)) return nullptr;
  if (op->kind == OpKind::bit_and) {
    Value* a = holds_everywhere(op->operands[0]);
    Value* b = a ? holds_everywhere(op->operands[1]) : nullptr;
    return b ? e_.b.CreateAnd(a, b) : nullptr;
  }
  const std::string_view predicate = op->string_attr("predicate");
  if (predicate == "eq" || predicate == "ne") return nullptr;
  auto low = bounds_of(op->operands[0]), high = bounds_of(op->operands[1]);
  if (!low || !high) return nullptr;
  if (predicate[0] == 'g') std::swap(low, high);
  Value* holds =
      predicate[1] == 'e' ? e_.b.CreateICmpSLE(low->most, high->least) : e_.b.CreateICmpSLT(low->most, high->least);
  using Limits = std::numeric_limits<int32_t>;
  Value* fits = e_.b.CreateAnd(e_.b.CreateICmpSGE(low->least, e_.i64(Limits::min())),
                               e_.b.CreateICmpSLE(high->most, e_.i64(Limits::max())));
  return e_.b.CreateAnd(holds, fits);
}

// select(mask, tile, constant), by a branch around it where that is worth one; nothing elsewhere.
std::optional<std::vector<Value*>> Program::masked(const Op& op, const LinearLayout& layout) {
  constexpr int kWorthABranch = 32;  // registers
  const ir::Value* otherwise = op.operands.back();
  if (op.kind != OpKind::select || layout.num_registers() < kWorthABranch) return std::nullopt;
  if (!op.operands[0]->type.is_tile() || !otherwise->def || otherwise->def->kind != OpKind::full) return std::nullopt;
  Value* holds = holds_everywhere(op.operands[0]);
  if (!holds) return std::nullopt;
  std::vector<Value*> whole = pull(op.operands[1], layout);
  if (overlap_ && op.operands[1] == overlap_->first->results[0]) hopper::copy_sums(e_, whole);
  return e_.choose(
      e_.b.CreateNot(holds),
      [&] {
        const Scope scope = open_scope();
        const std::vector<Value*> cut = elementwise(op, layout);
        close_scope(scope);
        return cut;
      },
      whole);
}

}  // namespace seqtile::nvptx

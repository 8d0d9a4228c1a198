// jit/codegen/cpu/rows/reductions.cpp -- reductions: how partial results combine, and those that are not along a row.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/rows/reductions.h"

#include <algorithm>
#include <bit>

#include "jit/codegen/cpu/program.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpKind;
using llvm::Value;

Value* combine(Emitter& e, std::string_view kind, DType dtype, Value* a, Value* b) {
  const bool real = is_float(dtype);
  if (kind == "sum") return real ? e.b.CreateFAdd(a, b) : e.b.CreateAdd(a, b);
  if (kind == "prod") return real ? e.b.CreateFMul(a, b) : e.b.CreateMul(a, b);
  if (kind == "any") return e.b.CreateOr(a, b);
  Value* greater = real ? e.b.CreateFCmpOGT(a, b) : e.b.CreateICmpSGT(a, b);
  return kind == "max" ? e.b.CreateSelect(greater, a, b) : e.b.CreateSelect(greater, b, a);
}

llvm::Constant* identity(Emitter& e, std::string_view kind, DType dtype) {
  llvm::Type* type = e.type_of(dtype);
  if (kind == "sum" || kind == "any") return llvm::Constant::getNullValue(type);
  if (kind == "prod") return is_float(dtype) ? llvm::ConstantFP::get(type, 1.0) : llvm::ConstantInt::get(type, 1);
  if (is_float(dtype)) return llvm::ConstantFP::getInfinity(type, kind == "max");
  const unsigned bits = type->getIntegerBitWidth();
  return llvm::ConstantInt::get(
      type, kind == "max" ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getSignedMaxValue(bits));
}

DType accumulator_dtype(DType dtype) { return is_float(dtype) && dtype != DType::f64 ? DType::f32 : dtype; }

Value* horizontal(Emitter& e, std::string_view kind, DType dtype, Value* vector) {
  for (int width = width_of(vector); width > 1; width /= 2) {
    std::vector<int> low, high;
    for (int i = 0; i < width / 2; ++i) low.push_back(i), high.push_back(width / 2 + i);
    vector = combine(e, kind, dtype, e.b.CreateShuffleVector(vector, low), e.b.CreateShuffleVector(vector, high));
    if (width == 2) return e.b.CreateExtractElement(vector, uint64_t{0});
  }
  return vector;
}

void Program::finish_reductions(const std::vector<Root*>& roots, const std::vector<Value*>& outer,
                                const std::vector<Value*>& partial, int64_t unroll) {
  size_t next = 0;
  for (const Root* root : roots) {
    if (root->kind != Root::Kind::reduce) continue;
    const DType dtype = root->value->type.dtype, wide = accumulator_dtype(dtype);
    const auto kind = root->op->string_attr("kind");
    Value* total = partial[next];
    for (int64_t u = 1; u < unroll; ++u) total = combine(e_, kind, wide, total, partial[next + static_cast<size_t>(u)]);
    next += static_cast<size_t>(unroll);
    total = e_.convert(horizontal(e_, kind, wide, total), wide, dtype);
    Index index{1, {}, nullptr};
    for (Value* i : outer) index.axes.push_back({i});
    write_buffer(root->buffer, total, index);
  }
}

// A reduction over an axis that is not the last: columns outside, the reduced axis inside.
void Program::reduce_outer(const Op& op) {
  flush();
  const ir::Value *tile = op.operands[0], *result = op.results[0];
  const int axis = static_cast<int>(op.int_attr("axis")), rank = tile->type.rank;
  const DType dtype = tile->type.dtype, wide = accumulator_dtype(dtype);
  const auto kind = op.string_attr("kind");
  const int64_t columns = tile->type.shape[rank - 1];
  const int width = static_cast<int>(std::min<int64_t>(e_.lanes, std::bit_ceil(static_cast<uint64_t>(columns))));
  const Buffer buffer = reserve_tile(result->type);
  std::vector<Value*> at(rank, nullptr);
  const auto column = [&](Value* c) {
    Value* init = e_.splat(identity(e_, kind, wide), width);
    const auto total = e_.loop(e_.i64(0), e_.i64(tile->type.shape[axis]), e_.i64(1), {init},
                               [&](Value* i, std::vector<Value*> carried) {
                                 at[axis] = i, at[rank - 1] = c;
                                 row_memo_.clear(), memo_.clear();
                                 Index index = column_index({at.begin(), at.end() - 1}, c, width);
                                 if (columns % width)
                                   index.mask = e_.lanes_below(e_.b.CreateSub(e_.i64(columns), c), width);
                                 Value* value = e_.splat(e_.convert(eval(tile, index), dtype, wide), width);
                                 return std::vector<Value*>{combine(e_, kind, wide, carried[0], value)};
                               });
    std::vector<Value*> kept;
    for (int d = 0; d + 1 < rank; ++d)
      if (d != axis) kept.push_back(at[d]);
    write_buffer(buffer, e_.convert(total[0], wide, dtype), column_index(kept, c, width));
  };
  const auto loops = [&](const auto& self, int d) -> void {
    if (d == axis) return self(self, d + 1);
    if (d + 1 == rank) return e_.loop(e_.i64(0), e_.i64(columns), width, column);
    e_.loop(e_.i64(0), e_.i64(tile->type.shape[d]), 1, [&](Value* i) { at[d] = i, self(self, d + 1); });
  };
  loops(loops, 0);
  row_memo_.clear();
  buffers_[result] = buffer;
}

// Prefix sums and arg-reductions along the last axis go element by element.
void Program::lower_ordered(const Op& op) {
  flush();
  const ir::Value* tile = op.operands[0];
  const int rank = tile->type.rank;
  if (op.int_attr("axis") != rank - 1) fail(op, "runs along the last axis on the CPU");
  const DType dtype = tile->type.dtype;
  const bool is_scan = op.kind == OpKind::scan, maximum = op.string_attr("kind") == "max";
  std::vector<Buffer> outputs;
  for (const ir::Value* result : op.results) outputs.push_back(reserve_tile(result->type));
  std::vector<Value*> at;
  const auto row = [&] {
    const auto element = [&](Value* c) {
      memo_.clear(), row_memo_.clear();
      Index index{1, {}, nullptr};
      for (Value* i : at) index.axes.push_back({i});
      index.axes.push_back({c});
      return std::pair{e_.convert(eval(tile, index), dtype, is_float(dtype) ? DType::f32 : dtype), index};
    };
    const DType wide = is_float(dtype) ? DType::f32 : dtype;
    const auto better = [&](Value* x, Value* best) {
      if (is_float(wide)) return maximum ? e_.b.CreateFCmpOGT(x, best) : e_.b.CreateFCmpOLT(x, best);
      return maximum ? e_.b.CreateICmpSGT(x, best) : e_.b.CreateICmpSLT(x, best);
    };
    Value* first = element(e_.i64(0)).first;
    if (is_scan) write_buffer(outputs[0], e_.convert(first, wide, dtype), element(e_.i64(0)).second);
    const auto last =
        e_.loop(e_.i64(1), e_.i64(tile->type.shape[rank - 1]), e_.i64(1), {first, e_.i32(0)},
                [&](Value* c, std::vector<Value*> carried) {
                  const auto [x, index] = element(c);
                  if (is_scan && !maximum) {
                    carried[0] = is_float(wide) ? e_.b.CreateFAdd(carried[0], x) : e_.b.CreateAdd(carried[0], x);
                  } else {
                    Value* wins = better(x, carried[0]);
                    carried[0] = e_.b.CreateSelect(wins, x, carried[0]);
                    carried[1] = e_.b.CreateSelect(wins, e_.b.CreateTrunc(c, e_.b.getInt32Ty()), carried[1]);
                  }
                  if (is_scan) write_buffer(outputs[0], e_.convert(carried[0], wide, dtype), index);
                  return carried;
                });
    if (is_scan) return;
    Index index{1, {}, nullptr};
    for (Value* i : at) index.axes.push_back({i});
    write_buffer(outputs[0], e_.convert(last[0], wide, dtype), index);
    write_buffer(outputs[1], last[1], index);
  };
  const auto loops = [&](const auto& self, int d) -> void {
    if (d + 1 == rank) return row();
    e_.loop(e_.i64(0), e_.i64(tile->type.shape[d]), 1, [&](Value* i) {
      at.push_back(i);
      self(self, d + 1);
      at.pop_back();
    });
  };
  loops(loops, 0);
  memo_.clear(), row_memo_.clear();
  for (size_t i = 0; i < outputs.size(); ++i) {
    buffers_[op.results[i]] = outputs[i];
    if (op.results[i]->type.is_scalar()) scalars_[op.results[i]] = read_buffer(outputs[i], Index{});
  }
}

}  // namespace seqtile::cpu

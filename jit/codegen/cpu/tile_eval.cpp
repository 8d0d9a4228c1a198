// jit/codegen/cpu/tile_eval.cpp -- the value of a tile at an index: the expression tree, emitted where it is needed.
// SPDX-License-Identifier: Apache-2.0
//
// An index without a vector axis does not depend on the column: its value is computed once, before the column loop
// (hoist_block_). Out-of-range positions are checked only where neither the view's static size nor the bound that
// already limits the loop covers them. That bound is an upper one: an offset that may be negative is checked too.
#include "jit/codegen/cpu/program.h"
#include "jit/codegen/math.h"
#include "llvm/IR/Intrinsics.h"
#include "seqtile/error.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpKind;
using llvm::Value;

Value* Program::eval(const ir::Value* value, const Index& index) {
  if (value->type.is_scalar()) return scalars_.at(value);
  const bool uniform = !index.has_vector();
  auto& memo = uniform ? row_memo_ : memo_;
  const auto key = std::make_tuple(value, index.lanes, index.axes);
  if (const auto it = memo.find(key); it != memo.end()) return it->second;
  Value* result;
  if (uniform && hoist_block_ && hoist_block_->getTerminator() && e_.b.GetInsertBlock() != hoist_block_) {
    llvm::IRBuilderBase::InsertPointGuard guard(e_.b);
    e_.b.SetInsertPoint(hoist_block_->getTerminator());
    result = compute(value, index);
  } else {
    result = compute(value, index);
  }
  return memo[key] = result;
}

Value* Program::compute(const ir::Value* value, const Index& index) {
  if (const auto it = buffers_.find(value); it != buffers_.end()) return read_buffer(it->second, index);
  if (!value->def) throw Error(ErrorCode::internal, "tile argument without a buffer in " + function_.name());
  const Op& op = *value->def;
  switch (op.info().group) {
    case ir::OpGroup::create:
      if (op.kind == OpKind::full) return scalars_.at(op.operands[0]);
      if (op.kind == OpKind::iota) return compute_iota(index);
      fail(op, "has no lowering on the CPU");
    case ir::OpGroup::shape: return compute_shape(op, value, index);
    case ir::OpGroup::unary:
    case ir::OpGroup::binary: return compute_arithmetic(op, index);
    case ir::OpGroup::memory:
      if (op.kind == OpKind::load) return read_view(op, index);
      if (op.kind == OpKind::gather) return read_gather(op, index);
      [[fallthrough]];
    default: fail(op, "is used before it was computed");
  }
}

Value* Program::compute_iota(const Index& index) {
  const Axis& axis = index.axes[0];
  Value* base = e_.b.CreateTrunc(axis.base, e_.b.getInt32Ty());
  if (!axis.is_vector) return base;
  Value* ids = e_.lane_ids(e_.b.getInt32Ty(), index.lanes);
  if (axis.stride != 1) ids = e_.b.CreateMul(ids, e_.splat(e_.i32(axis.stride), index.lanes));
  return e_.b.CreateAdd(e_.splat(base, index.lanes), ids);
}

Value* Program::compute_shape(const Op& op, const ir::Value* value, const Index& index) {
  const ir::Value* from = op.operands[0];
  Index inner = index;
  switch (op.kind) {
    case OpKind::expand: inner.axes.erase(inner.axes.begin() + op.int_attr("axis")); break;
    case OpKind::broadcast:
      for (int d = 0; d < from->type.rank; ++d)
        if (from->type.shape[d] == 1) inner.axes[d] = {e_.i64(0)};
      break;
    case OpKind::trans: {
      const auto& perm = std::get<std::vector<int64_t>>(op.attributes.at("perm"));
      for (size_t d = 0; d < perm.size(); ++d) inner.axes[perm[d]] = index.axes[d];
      break;
    }
    case OpKind::reshape: {  // only dimensions of size 1 come and go here; other reshapes were materialised
      std::vector<Axis> kept;
      for (size_t d = 0; d < index.axes.size(); ++d)
        if (value->type.shape[d] != 1) kept.push_back(index.axes[d]);
      inner.axes.clear();
      size_t next = 0;
      for (int d = 0; d < from->type.rank; ++d)
        inner.axes.push_back(from->type.shape[d] == 1 ? Axis{e_.i64(0)} : kept.at(next++));
      break;
    }
    case OpKind::split: {
      Axis& last = inner.axes.back();
      last.base = e_.b.CreateAdd(e_.b.CreateShl(last.base, 1), e_.i64(value->index));
      last.stride *= 2;
      break;
    }
    case OpKind::join: return compute_join(op, index);
    default: fail(op, "must be stored or reduced directly on the CPU");
  }
  return eval(from, inner);
}

Value* Program::compute_join(const Op& op, const Index& index) {
  Index inner = index;
  Axis& last = inner.axes.back();
  last.base = e_.b.CreateAShr(index.axes.back().base, 1);
  if (!index.axes.back().is_vector || index.lanes == 1) {
    Value* odd = e_.b.CreateTrunc(index.axes.back().base, e_.b.getInt1Ty());
    return e_.b.CreateSelect(odd, eval(op.operands[1], inner), eval(op.operands[0], inner));
  }
  if (index.axes.back().stride != 1 || index.lanes % 2) fail(op, "is read with a stride, which has no lowering");
  inner.lanes = index.lanes / 2;
  if (inner.lanes == 1) last.is_vector = false;
  if (index.mask) {  // a pair is needed where either of its elements is
    std::vector<int> even, odd;
    for (int i = 0; i < index.lanes; i += 2) even.push_back(i), odd.push_back(i + 1);
    inner.mask = e_.b.CreateOr(e_.b.CreateShuffleVector(index.mask, even), e_.b.CreateShuffleVector(index.mask, odd));
    if (inner.lanes == 1) inner.mask = e_.b.CreateExtractElement(inner.mask, uint64_t{0});
  }
  Value* a = e_.splat(eval(op.operands[0], inner), inner.lanes);
  Value* b = e_.splat(eval(op.operands[1], inner), inner.lanes);
  if (inner.lanes == 1) return e_.b.CreateInsertElement(e_.b.CreateVectorSplat(2, a), b, uint64_t{1});
  std::vector<int> order;
  for (int i = 0; i < inner.lanes; ++i) order.push_back(i), order.push_back(inner.lanes + i);
  return e_.b.CreateShuffleVector(a, b, order);
}

Value* Program::compute_arithmetic(const Op& op, const Index& index) {
  std::vector<Value*> operands;
  int width = 1;
  for (const ir::Value* operand : op.operands) {
    operands.push_back(eval(operand, index));
    width = std::max(width, width_of(operands.back()));
  }
  for (Value*& operand : operands) operand = e_.splat(operand, width);
  return scalar_arithmetic(op, operands);
}

// Elements row[position + lane * lane_stride], one at a time: strided and transposed reads.
Value* Program::lane_loads(DType dtype, Value* row, Value* position, Value* stride, const Index& index,
                           int64_t lane_stride, Value* mask) {
  if (index.lanes == 1) return e_.load(dtype, e_.element_ptr(row, e_.b.CreateMul(position, stride), dtype), 1, mask);
  llvm::Type* type = llvm::FixedVectorType::get(e_.type_of(dtype), index.lanes);
  Value* result = llvm::PoisonValue::get(type);
  for (int lane = 0; lane < index.lanes; ++lane) {
    Value* element = e_.b.CreateMul(e_.b.CreateAdd(position, e_.i64(lane * lane_stride)), stride);
    Value* ok = mask && width_of(mask) > 1 ? e_.b.CreateExtractElement(mask, lane) : mask;
    Value* loaded = e_.load(dtype, e_.element_ptr(row, element, dtype), 1, ok);
    result = e_.b.CreateInsertElement(result, loaded, lane);
  }
  return result;
}

namespace {

// The tile that a load or a store moves.
const ir::Value* tile_of(const Op& access) {
  return access.results.empty() ? access.operands.back() : access.results[0];
}

}  // namespace

bool Program::needs_check(const Op& access, int dim) {
  const ir::Value *view = access.operands[0], *tile = tile_of(access);
  const ir::Value* offset = access.operands[static_cast<size_t>(1 + dim)];
  const int64_t size = view->type.shape[dim];
  if (in_range(offset, tile->type.shape[dim], size)) return false;
  if (!is_limited(tile, dim) || !is_never_negative(offset, access.parent)) return true;
  for (const StoreBound& bound : dims_.of(tile, dim).stores) {
    const bool same_size =
        bound.view == view ? bound.axis == dim : size != ir::kDynamic && bound.view->type.shape[bound.axis] == size;
    if (!same_size || bound.offset != offset) return true;
  }
  return false;
}

Program::RowAddress Program::row_address(const Op& access, const Index& index, bool checks_rows) {
  const ir::Value* view = access.operands[0];
  llvm::IRBuilderBase::InsertPointGuard guard(e_.b);
  if (hoist_block_ && hoist_block_->getTerminator() && e_.b.GetInsertBlock() != hoist_block_)
    e_.b.SetInsertPoint(hoist_block_->getTerminator());
  const ViewRef& ref = views_.at(view);
  RowAddress row{ref.base, nullptr, -1};
  Value* elements = e_.i64(0);
  for (int d = 0; d < view->type.rank; ++d) {
    const Axis& axis = index.axes[static_cast<size_t>(d)];
    if (axis.is_vector) {
      row.vector_axis = d;
      continue;
    }
    Value* position = e_.b.CreateAdd(scalars_.at(access.operands[static_cast<size_t>(1 + d)]), axis.base);
    elements = e_.b.CreateAdd(elements, e_.b.CreateMul(position, ref.strides[static_cast<size_t>(d)]));
    if (!checks_rows || !needs_check(access, d)) continue;
    // Unsigned: negative positions are out of range too.
    Value* ok = e_.b.CreateICmpULT(position, ref.sizes[static_cast<size_t>(d)]);
    row.in_range = row.in_range ? e_.b.CreateAnd(row.in_range, ok) : ok;
  }
  row.pointer = e_.element_ptr(ref.base, elements, view->type.dtype);
  return row;
}

namespace {

Value* both(Emitter& e, Value* a, Value* b) {
  if (!a || !b) return a ? a : b;
  const int width = std::max(width_of(a), width_of(b));
  return e.b.CreateAnd(e.splat(a, width), e.splat(b, width));
}

// Lanes whose position lies in [0, size).
Value* lanes_in_range(Emitter& e, Value* position, Value* size, const Index& index, int64_t stride) {
  Value* ids = e.lane_ids(e.b.getInt64Ty(), index.lanes);
  if (stride != 1) ids = e.b.CreateMul(ids, e.splat(e.i64(stride), index.lanes));
  return e.b.CreateICmpULT(e.b.CreateAdd(e.splat(position, index.lanes), ids), e.splat(size, index.lanes));
}

}  // namespace

// The vector at `column` of a row that may not exist: zeros are then read, from a constant. A select of the address
// before the column loop costs next to nothing; masked loads of 16-bit elements are slow.
Value* Program::load_row_or_zeros(const RowAddress& row, const Op& op, Value* column, int lanes) {
  const DType dtype = op.operands[0]->type.dtype;
  Value *start, *keep;
  {
    llvm::IRBuilderBase::InsertPointGuard guard(e_.b);
    if (hoist_block_ && hoist_block_->getTerminator() && e_.b.GetInsertBlock() != hoist_block_)
      e_.b.SetInsertPoint(hoist_block_->getTerminator());
    Value* first =
        e_.element_ptr(row.pointer, scalars_.at(op.operands[1 + static_cast<size_t>(row.vector_axis)]), dtype);
    start = e_.b.CreateSelect(row.in_range, first, e_.zeros());
    keep = e_.b.CreateSExt(row.in_range, e_.b.getInt64Ty());
  }
  return e_.load(dtype, e_.element_ptr(start, e_.b.CreateAnd(column, keep), dtype), lanes);
}

Value* Program::read_view(const Op& op, const Index& index) {
  const ir::Value* view = op.operands[0];
  const DType dtype = view->type.dtype;
  const RowAddress row = row_address(op, index);
  Value* mask = both(e_, row.in_range, row.vector_axis < 0 ? nullptr : index.mask);
  Value* loaded;
  Value* checked = row.in_range;
  if (row.vector_axis < 0) {
    loaded = e_.load(dtype, row.pointer, 1, row.in_range);
  } else {
    const int d = row.vector_axis;
    const ViewRef& ref = views_.at(view);
    const Axis& axis = index.axes[d];
    Value* position = e_.b.CreateAdd(scalars_.at(op.operands[static_cast<size_t>(1 + d)]), axis.base);
    if (needs_check(op, d)) {
      Value* ok = lanes_in_range(e_, position, ref.sizes[d], index, axis.stride);
      checked = both(e_, checked, ok);
      mask = both(e_, mask, ok);
    }
    const bool contiguous = view->type.contiguous && d == view->type.rank - 1 && axis.stride == 1;
    if (contiguous) {
      Value* address = e_.element_ptr(row.pointer, position, dtype);
      fetch_ahead(op, address, index.lanes);
      const bool is_whole_row_checked = row.in_range && mask == row.in_range && index.lanes > 1;
      loaded = is_whole_row_checked ? load_row_or_zeros(row, op, axis.base, index.lanes)
                                    : e_.load(dtype, address, index.lanes, mask);
    } else {
      loaded = lane_loads(dtype, row.pointer, position, ref.strides[d], index, axis.stride, mask);
    }
  }
  const double fill = op.float_attr("fill");
  if (!checked || fill == 0) return loaded;
  Value* other = is_float(dtype) ? e_.convert(e_.f32(fill), DType::f32, dtype)
                                 : llvm::ConstantInt::get(e_.type_of(dtype), static_cast<uint64_t>(fill));
  const int width = width_of(loaded);
  return e_.b.CreateSelect(e_.splat(checked, width), loaded, e_.splat(other, width));
}

Value* Program::read_gather(const Op& op, const Index& index) {
  const ir::Value* view = op.operands[0];
  const ViewRef& ref = views_.at(view);
  const DType dtype = view->type.dtype;
  if (index.axes[0].is_vector) fail(op, "must be evaluated along its columns");
  Index row_index{1, {index.axes[0]}, nullptr};
  Value* row = eval(op.operands[1], row_index);
  row = e_.b.CreateSExtOrTrunc(row, e_.b.getInt64Ty());
  Value* row_ok = e_.b.CreateICmpULT(row, ref.sizes[0]);
  const Axis& axis = index.axes[1];
  Value* position = e_.b.CreateAdd(scalars_.at(op.operands[2]), axis.base);
  Value* pointer = e_.element_ptr(ref.base, e_.b.CreateMul(row, ref.strides[0]), dtype);
  Value* ok = row_ok;
  if (!in_range(op.operands[2], op.results[0]->type.shape[1], view->type.shape[1]))
    ok = both(e_, ok,
              axis.is_vector ? lanes_in_range(e_, position, ref.sizes[1], index, axis.stride)
                             : e_.b.CreateICmpULT(position, ref.sizes[1]));
  Value* mask = both(e_, ok, axis.is_vector ? index.mask : nullptr);
  Value* loaded = !axis.is_vector || (axis.stride == 1 && view->type.contiguous)
                      ? e_.load(dtype, e_.element_ptr(pointer, position, dtype), axis.is_vector ? index.lanes : 1, mask)
                      : lane_loads(dtype, pointer, position, ref.strides[1], index, axis.stride, mask);
  const double fill = op.float_attr("fill");
  if (fill == 0) return loaded;
  const int width = width_of(loaded);
  Value* other = is_float(dtype) ? e_.convert(e_.f32(fill), DType::f32, dtype)
                                 : llvm::ConstantInt::get(e_.type_of(dtype), static_cast<uint64_t>(fill));
  return e_.b.CreateSelect(e_.splat(ok, width), loaded, e_.splat(other, width));
}

Value* Program::read_buffer(const Buffer& buffer, const Index& index) {
  Value* elements = e_.i64(0);
  int vector_axis = -1;
  for (size_t d = 0; d < index.axes.size(); ++d) {
    if (index.axes[d].is_vector) vector_axis = static_cast<int>(d);
    elements = e_.b.CreateAdd(elements, e_.b.CreateMul(index.axes[d].base, e_.i64(buffer.strides[d])));
  }
  Value* pointer = e_.element_ptr(e_.arena_ptr(buffer.offset), elements, buffer.dtype);
  if (vector_axis < 0) return e_.load(buffer.dtype, pointer, 1);
  const int64_t stride = buffer.strides[vector_axis] * index.axes[vector_axis].stride;
  // Rows are padded to whole vectors, so lanes beyond the mask read the padding.
  if (stride == 1) return e_.load(buffer.dtype, pointer, index.lanes);
  return lane_loads(buffer.dtype, pointer, e_.i64(0), e_.i64(1), index, stride, nullptr);
}

void Program::write_buffer(const Buffer& buffer, Value* value, const Index& index) {
  Value* elements = e_.i64(0);
  for (size_t d = 0; d < index.axes.size(); ++d)
    elements = e_.b.CreateAdd(elements, e_.b.CreateMul(index.axes[d].base, e_.i64(buffer.strides[d])));
  Value* pointer = e_.element_ptr(e_.arena_ptr(buffer.offset), elements, buffer.dtype);
  e_.store(buffer.dtype, e_.splat(value, index.has_vector() ? index.lanes : 1), pointer);
}

void Program::write_view(const Op& op, Value* value, const Index& index) {
  const ir::Value* view = op.operands[0];
  const DType dtype = view->type.dtype;
  const RowAddress row = row_address(op, index, !has_own_rows_);
  Value* pointer = row.pointer;
  Value* mask = both(e_, row.in_range, index.mask);
  int width = 1;
  if (const int d = row.vector_axis; d >= 0) {
    const ViewRef& ref = views_.at(view);
    Value* position = e_.b.CreateAdd(scalars_.at(op.operands[static_cast<size_t>(1 + d)]), index.axes[d].base);
    if (needs_check(op, d)) mask = both(e_, mask, lanes_in_range(e_, position, ref.sizes[d], index, 1));
    width = index.lanes;
    if (!view->type.contiguous || d != view->type.rank - 1) {
      value = e_.splat(value, width);
      for (int lane = 0; lane < width; ++lane) {
        Value* element = e_.b.CreateMul(e_.b.CreateAdd(position, e_.i64(lane)), ref.strides[d]);
        Value* ok = mask && width_of(mask) > 1 ? e_.b.CreateExtractElement(mask, lane) : mask;
        Value* one = width == 1 ? value : e_.b.CreateExtractElement(value, lane);
        e_.store(dtype, one, e_.element_ptr(pointer, element, dtype), ok);
      }
      return;
    }
    pointer = e_.element_ptr(pointer, position, dtype);
  }
  value = e_.splat(value, width);
  if (op.kind == OpKind::store_add) {
    Value* old = e_.load(dtype, pointer, width, mask);
    Value* sum =
        is_float(dtype)
            ? e_.convert(e_.b.CreateFAdd(e_.convert(old, dtype, DType::f32), e_.convert(value, dtype, DType::f32)),
                         DType::f32, dtype)
            : e_.b.CreateAdd(old, value);
    value = sum;
  }
  if (is_streaming_ && !mask && width == e_.lanes && is_whole_rows(op)) return e_.stream(value, pointer);
  e_.store(dtype, value, pointer, mask);
}

}  // namespace seqtile::cpu

// jit/codegen/cpu/kernels/packing.cpp -- copies of x and of weights in the order in which the register kernels read
// them.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/kernels/micro_kernel.h"
#include "jit/codegen/cpu/program.h"

namespace seqtile::cpu {

using llvm::Value;

// Copies rows of x, which it has, into the arena in compute type: columns first_k .. first_k + count_k, zeros up to
// whole vectors, and rows of zeros up to a multiple of mr.
void Program::pack_rows(const Contraction& c, Value* first_k, Value* count_k, Value* rows) {
  if (c.a_is_transposed) return copy_transposed_rows(c, first_k, count_k, rows);
  const ir::Value* view = c.a->operands[0];
  const ViewRef& x = views_.at(view);
  const DType dtype = view->type.dtype;
  const int width = vector_elements(e_, c.compute);
  Value* first_row = scalars_.at(c.a->operands[1]);
  Value* padded = e_.b.CreateMul(e_.b.CreateUDiv(e_.b.CreateAdd(rows, e_.i64(c.mr - 1)), e_.i64(c.mr)), e_.i64(c.mr));
  Value* whole = e_.b.CreateAnd(count_k, e_.i64(-width));
  Value* arena = e_.arena_ptr(c.a_offset);
  const auto target = [&](Value* r, Value* k) {
    return e_.element_ptr(arena, e_.b.CreateAdd(e_.b.CreateMul(r, e_.i64(c.a_stride)), k), c.compute);
  };
  llvm::Type* type = llvm::FixedVectorType::get(e_.type_of(c.compute), static_cast<unsigned>(width));
  const auto put = [&](Value* value, Value* r, Value* k) {
    e_.b.CreateAlignedStore(value, target(r, k), llvm::Align(4));
  };
  e_.loop(e_.i64(0), rows, 1, [&](Value* r) {
    Value* row = e_.b.CreateMul(e_.b.CreateAdd(first_row, r), x.strides[0]);
    Value* source = e_.element_ptr(x.base, e_.b.CreateAdd(row, first_k), dtype);
    e_.loop(e_.i64(0), whole, width, [&](Value* k) {
      put(load_compute(e_, dtype, c.compute, e_.element_ptr(source, k, dtype), nullptr), r, k);
    });
    if (c.k % width == 0) return;
    e_.loop(whole, count_k, width, [&](Value* k) {
      Value* mask = e_.lanes_below(e_.b.CreateSub(count_k, k), width);
      put(load_compute(e_, dtype, c.compute, e_.element_ptr(source, k, dtype), mask), r, k);
    });
  });
  e_.loop(rows, padded, 1, [&](Value* r) {
    e_.loop(e_.i64(0), count_k, width, [&](Value* k) { put(llvm::Constant::getNullValue(type), r, k); });
  });
}

void Program::pack_weight(const Contraction& c, size_t which, Value* first_k, Value* count_k, Value* column,
                          int64_t panel_offset) {
  const Weight& weight = c.weights[which];
  if (weight.packed) return copy_packed_weight(c, which, first_k, count_k, column, panel_offset);
  if (weight.transposed)
    return copy_columns(*weight.load, c.compute, first_k, count_k, column, c.nr,
                        e_.arena_ptr(panel_offset + static_cast<int64_t>(which) * c.nr * 4),
                        int64_t{c.nr} * static_cast<int64_t>(c.weights.size()) * 4);
  const ir::Value *view = weight.load->operands[0], *offset = weight.load->operands[1];
  const ViewRef& w = views_.at(view);
  const DType dtype = view->type.dtype;
  const int width = vector_elements(e_, c.compute);
  const int64_t step_bytes = int64_t{c.nr} * static_cast<int64_t>(c.weights.size()) * 4;
  const int64_t n = view->type.shape[0];
  const bool aligned = n != ir::kDynamic && n % c.nr == 0 && c.block_n % c.nr == 0 && known_divisor(offset) % c.nr == 0;
  Value* last = aligned ? nullptr : e_.b.CreateSub(w.sizes[0], e_.i64(1));
  Value* first_row = e_.b.CreateAdd(scalars_.at(offset), column);
  Value* base = e_.element_ptr(w.base, first_k, dtype);
  Value* panel = e_.arena_ptr(panel_offset + static_cast<int64_t>(which) * c.nr * 4);
  Value* stride_bytes = e_.b.CreateMul(w.strides[0], e_.i64(dtype_bytes(dtype)));
  llvm::Function* fn = transpose_kernel({dtype, c.compute, last != nullptr, c.k % width != 0});
  e_.loop(e_.i64(0), e_.i64(c.nr), e_.lanes, [&](Value* j) {
    Value* row = e_.b.CreateAdd(first_row, j);
    Value* columns = e_.element_ptr(panel, j, DType::f32);
    Value* source = e_.element_ptr(base, e_.b.CreateMul(row, w.strides[0]), dtype);
    Value* left = last ? e_.b.CreateSub(last, row) : e_.i64(e_.lanes - 1);
    e_.b.CreateCall(fn, {source, stride_bytes, left, count_k, count_k, columns, e_.i64(step_bytes)});
  });
}

// Weights that were packed when the handle was made: rows of nr columns are copied (and converted) as they are.
void Program::copy_packed_weight(const Contraction& c, size_t which, Value* first_k, Value* count_k, Value* column,
                                 int64_t panel_offset) {
  const ir::Value* view = c.weights[which].load->operands[0];
  const ViewRef& w = views_.at(view);
  const DType dtype = view->type.dtype;
  const int64_t step_bytes = int64_t{c.nr} * static_cast<int64_t>(c.weights.size()) * 4,
                units = elements_per_unit(c.compute);
  Value* index = e_.b.CreateAdd(scalars_.at(c.weights[which].load->operands[1]), e_.b.CreateUDiv(column, e_.i64(c.nr)));
  Value* source = e_.element_ptr(w.base, e_.b.CreateMul(index, w.strides[0]), dtype);
  Value* panel = e_.arena_ptr(panel_offset + static_cast<int64_t>(which) * c.nr * 4);
  const auto row = [&](Value* k, Value* j) {
    Value* element = e_.b.CreateAdd(e_.b.CreateMul(e_.b.CreateAdd(first_k, k), w.strides[1]), j);
    return e_.element_ptr(source, element, dtype);
  };
  e_.loop(e_.i64(0), count_k, units, [&](Value* k) {
    Value* step = e_.b.CreateMul(e_.b.CreateUDiv(k, e_.i64(units)), e_.i64(step_bytes));
    e_.loop(e_.i64(0), e_.i64(c.nr), e_.lanes, [&](Value* j) {
      Value* value = units == 1 ? e_.load_f32(dtype, row(k, j), e_.lanes)
                                : interleave(e_.load(dtype, row(k, j), e_.lanes),
                                             e_.load(dtype, row(e_.b.CreateAdd(k, e_.i64(1)), j), e_.lanes));
      Value* address = e_.element_ptr(e_.b.CreateInBoundsGEP(e_.b.getInt8Ty(), panel, step), j, DType::f32);
      e_.b.CreateAlignedStore(value, address, llvm::Align(4));
    });
  });
}

// A tensor [k, n], as weights may be and both operands of a gradient of weights are: `columns` columns from `column` of
// the tile on are copied and converted, a step of k at a time. Columns beyond n and the row after an odd last one are
// zeros.
void Program::copy_columns(const ir::Op& load, DType compute, Value* first_k, Value* count_k, Value* column,
                           int64_t columns, Value* panel, int64_t step_bytes) {
  const ViewRef& view = views_.at(load.operands[0]);
  const DType dtype = load.operands[0]->type.dtype;
  const int64_t units = elements_per_unit(compute);
  Value* first = e_.b.CreateAdd(scalars_.at(load.operands[2]), column);
  Value* source = e_.element_ptr(view.base, e_.b.CreateAdd(e_.b.CreateMul(first_k, view.strides[0]), first), dtype);
  std::vector<Value*> masks;  // of the columns that exist
  for (int64_t j = 0; j < columns; j += e_.lanes) {
    Value* left = e_.b.CreateSub(view.sizes[1], e_.b.CreateAdd(first, e_.i64(j)));
    masks.push_back(e_.lanes_below(e_.max_i64(left, e_.i64(0)), e_.lanes));
  }
  Value* none = llvm::Constant::getNullValue(masks[0]->getType());
  e_.loop(e_.i64(0), count_k, units, [&](Value* k) {
    Value *next = e_.b.CreateAdd(k, e_.i64(1)), *has_next = e_.b.CreateICmpSLT(next, count_k);
    Value* target = e_.b.CreateMul(e_.b.CreateUDiv(k, e_.i64(units)), e_.i64(step_bytes));
    target = e_.b.CreateInBoundsGEP(e_.b.getInt8Ty(), panel, target);
    for (size_t v = 0; v < masks.size(); ++v) {
      Value* j = e_.i64(static_cast<int64_t>(v) * e_.lanes);
      const auto row = [&](Value* r) {
        return e_.element_ptr(source, e_.b.CreateAdd(e_.b.CreateMul(r, view.strides[0]), j), dtype);
      };
      Value* value = units == 1
                         ? e_.load_f32(dtype, row(k), e_.lanes, masks[v])
                         : interleave(e_.load(dtype, row(k), e_.lanes, masks[v]),
                                      e_.load(dtype, row(next), e_.lanes, e_.b.CreateSelect(has_next, masks[v], none)));
      e_.b.CreateAlignedStore(value, e_.element_ptr(target, j, DType::f32), llvm::Align(4));
    }
  });
}

// Rows that are columns in memory, as panels of mr of them: [panel][unit of k][row]. Nothing is transposed, because the
// register kernel broadcasts elements of a from any place.
void Program::copy_transposed_rows(const Contraction& c, Value* first_k, Value* count_k, Value* rows) {
  const int64_t step_bytes = round_up(c.mr, e_.lanes) * 4;
  e_.loop(e_.i64(0), rows, c.mr,
          [&](Value* i) { copy_columns(*c.a, c.compute, first_k, count_k, i, c.mr, panel_of(c, i), step_bytes); });
}

Value* Program::interleave(Value* even, Value* odd) {
  std::vector<int> order;
  const int width = width_of(even);
  for (int i = 0; i < width; ++i) order.push_back(i), order.push_back(width + i);
  return e_.b.CreateShuffleVector(even, odd, order);
}

}  // namespace seqtile::cpu

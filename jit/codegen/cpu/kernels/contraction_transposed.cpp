// jit/codegen/cpu/kernels/contraction_transposed.cpp -- the outer-product form with exchanged roles: y^T = w x^T.
// SPDX-License-Identifier: Apache-2.0
//
//   for each block of kc:  transpose x[rows, kc] into panels of mr rows                  (stay in L1 or L2)
//     for each nr rows of w, read where they lie:
//       for each panel:  kernel: vectors along the rows of x, broadcast elements of w     (registers)
//   transpose the sums
//
// Nothing of w is packed and no lanes are summed, so that a few rows of x already reach the speed of many. Packing x
// instead costs 8 / block_n of the arithmetic; with many rows the panels no longer stay near.
#include "jit/codegen/cpu/kernels/micro_kernel.h"
#include "jit/codegen/cpu/program.h"

namespace seqtile::cpu {

using llvm::Value;

// Elements of w go from memory into all lanes as they are: in the compute type, in whole units. The sums start at zero.
bool Program::fits_transposed(const Contraction& c) const {
  const DType dtype = c.weights[0].load->operands[0]->type.dtype;
  return !c.accumulate && c.weights[0].is_plain() && dtype == c.compute && c.k % elements_per_unit(c.compute) == 0;
}

/// Values that the parts of one contraction share.
struct Program::TransposedPlan {
  Contraction c;
  int64_t sums, sums_bytes, stride;  ///< y^T of the weights: arena offset, bytes of each, f32 elements of a row
  int64_t copied, copied_stride;     ///< matrix registers: nr rows of w, arena offset, bytes of a row
  llvm::Function *whole_fn, *pair_fn, *rows_fn, *column_fn;
  Value *rows, *whole_rows, *pair_rows;  ///< those of whole panels, and those with the pairs of vectors after them
};

void Program::contract_transposed(const Contraction& found) {
  TransposedPlan plan{found};
  Contraction& c = plan.c;
  const int64_t units = elements_per_unit(c.compute), lanes = e_.lanes, rows_padded = round_up(c.block_m, c.mr);
  c.kc = std::min(c.k, round_up(c.kc, vector_elements(e_, c.compute)));
  c.a_stride = round_up(c.kc, vector_elements(e_, c.compute)) / units * c.mr * 4;  // bytes of a panel
  c.a_offset = e_.reserve(rows_padded / c.mr * c.a_stride);
  plan.stride = rows_padded + lanes;
  plan.sums_bytes = round_up(c.block_n, lanes) * plan.stride * 4;
  plan.sums = e_.reserve(plan.sums_bytes * static_cast<int64_t>(c.weights.size()));
  // A line more than a power of two: the rows of a register lie in different sets of the cache.
  plan.copied_stride = round_up(c.kc, 2 * kMatrixRows) * dtype_bytes(c.compute) + 64;
  if (c.in_matrix_registers) plan.copied = e_.reserve(c.nr * plan.copied_stride);
  const int vectors = static_cast<int>(c.mr / lanes);
  const auto kernel = [&](int w_rows, int nv) {
    const bool in_matrix_registers = c.in_matrix_registers && w_rows % kMatrixRows == 0;
    return outer_kernel({w_rows, nv, 1, 0, plan.stride, 0, c.compute, vectors, 1, in_matrix_registers});
  };
  // Whole panels, what is left of the rows as two vectors and one, and what is left of the columns one by one.
  plan.whole_fn = kernel(c.nr, vectors), plan.pair_fn = vectors > 2 ? kernel(c.nr, 2) : nullptr;
  plan.rows_fn = kernel(c.nr, 1), plan.column_fn = kernel(1, 1);
  plan.rows = c.rows;
  // In vectors, the last of which may be partly zeros: a panel that lacks no whole vector is a whole one.
  Value* filled = e_.b.CreateUDiv(e_.b.CreateAdd(plan.rows, e_.i64(lanes - 1)), e_.i64(lanes));
  Value* whole = e_.b.CreateMul(e_.b.CreateUDiv(filled, e_.i64(vectors)), e_.i64(vectors));
  Value* pairs = e_.b.CreateAnd(e_.b.CreateSub(filled, whole), e_.i64(-2));
  plan.whole_rows = vectors == 1 ? e_.i64(0) : e_.b.CreateMul(whole, e_.i64(lanes));
  plan.pair_rows = e_.b.CreateMul(e_.b.CreateAdd(whole, pairs), e_.i64(lanes));
  Value* columns = c.columns;
  std::vector<Value*> valid;  // columns that each weight has
  for (const Weight& weight : c.weights) valid.push_back(e_.min_i64(columns, columns_of(c, weight)));
  e_.loop(e_.i64(0), e_.i64(c.k), c.kc, [&](Value* k) {
    Value* count = c.k % c.kc == 0 ? e_.i64(c.kc) : e_.min_i64(e_.i64(c.kc), e_.b.CreateSub(e_.i64(c.k), k));
    pack_columns(c, k, count, plan.rows);
    for (size_t w = 0; w < c.weights.size(); ++w)
      multiply_columns(plan, w, valid[w], k, e_.b.CreateUDiv(count, e_.i64(units)));
  });
  for (size_t w = 0; w < c.weights.size(); ++w) transpose_result(plan, w, columns, valid[w]);
}

// One slice of k: all rows of x with the first `columns` rows of w, nr at a time.
void Program::multiply_columns(const TransposedPlan& plan, size_t which, Value* columns, Value* k, Value* steps) {
  const Contraction& c = plan.c;
  const ir::Op* load = c.weights[which].load;
  const ViewRef& w = views_.at(load->operands[0]);
  Value* stride_bytes = e_.b.CreateMul(w.strides[0], e_.i64(dtype_bytes(c.compute)));
  const auto source_of = [&](Value* j) {
    Value* row = e_.b.CreateAdd(scalars_.at(load->operands[1]), j);
    return e_.element_ptr(w.base, e_.b.CreateAdd(e_.b.CreateMul(row, w.strides[0]), k), c.compute);
  };
  const auto call = [&](llvm::Function* fn, Value* source, Value* j, Value* i) {
    Value* stride = c.in_matrix_registers && fn != plan.column_fn ? e_.i64(plan.copied_stride) : stride_bytes;
    Value* element = e_.b.CreateAdd(e_.b.CreateMul(j, e_.i64(plan.stride)), i);
    Value* sums = e_.arena_ptr(plan.sums + static_cast<int64_t>(which) * plan.sums_bytes);
    Value* out = e_.element_ptr(sums, element, DType::f32);
    e_.b.CreateCall(fn, {source, stride, panel_of(c, i), out, steps, e_.b.CreateICmpNE(k, e_.i64(0))});
  };
  Value* whole = e_.b.CreateMul(e_.b.CreateUDiv(columns, e_.i64(c.nr)), e_.i64(c.nr));
  e_.loop(e_.i64(0), whole, c.nr, [&](Value* j) {
    Value* source = source_of(j);
    if (c.in_matrix_registers) source = copy_rows(plan, source, stride_bytes, steps);
    else prefetch_rows(source, stride_bytes, e_.i64(c.nr), e_.i64(2 * c.nr), c.kc * dtype_bytes(c.compute));
    e_.loop(e_.i64(0), plan.whole_rows, c.mr, [&](Value* i) { call(plan.whole_fn, source, j, i); });
    if (plan.pair_fn)
      e_.loop(plan.whole_rows, plan.pair_rows, 2 * e_.lanes, [&](Value* i) { call(plan.pair_fn, source, j, i); });
    Value* single = plan.pair_fn ? plan.pair_rows : plan.whole_rows;
    e_.loop(single, plan.rows, e_.lanes, [&](Value* i) { call(plan.rows_fn, source, j, i); });
  });
  e_.loop(whole, columns, 1, [&](Value* j) {
    Value* source = source_of(j);
    e_.loop(e_.i64(0), plan.rows, e_.lanes, [&](Value* i) { call(plan.column_fn, source, j, i); });
  });
}

// Rows of w that lie a power of two apart share a few sets of the cache: nr of them are copied out of each other's way.
Value* Program::copy_rows(const TransposedPlan& plan, Value* source, Value* stride_bytes, Value* steps) {
  Value* target = e_.arena_ptr(plan.copied);
  const auto at = [&](Value* base, Value* bytes) { return e_.b.CreateInBoundsGEP(e_.b.getInt8Ty(), base, bytes); };
  auto* line = llvm::FixedVectorType::get(e_.b.getInt32Ty(), kMatrixRows);
  Value* next = e_.b.CreateMul(stride_bytes, e_.i64(plan.c.nr));
  constexpr int64_t kLine = 64;
  e_.loop(e_.i64(0), e_.i64(plan.c.nr), 1, [&](Value* r) {
    Value* from = at(source, e_.b.CreateMul(r, stride_bytes));
    Value* to = at(target, e_.b.CreateMul(r, e_.i64(plan.copied_stride)));
    e_.loop(e_.i64(0), e_.b.CreateMul(steps, e_.i64(4)), kLine, [&](Value* k) {
      prefetch(e_, at(at(from, next), k));
      e_.b.CreateAlignedStore(e_.b.CreateAlignedLoad(line, at(from, k), llvm::Align(2)), at(to, k), llvm::Align(kLine));
    });
  });
  return target;
}

// Where row `i` of x begins in the panels.
Value* Program::panel_of(const Contraction& c, Value* i) {
  Value* offset = e_.b.CreateAdd(e_.b.CreateMul(e_.b.CreateUDiv(i, e_.i64(c.mr)), e_.i64(c.a_stride)),
                                 e_.b.CreateMul(e_.b.CreateURem(i, e_.i64(c.mr)), e_.i64(4)));
  return e_.b.CreateInBoundsGEP(e_.b.getInt8Ty(), e_.arena_ptr(c.a_offset), offset);
}

// Panels of mr rows of x, transposed: [panel][unit of k][row]. Rows beyond the end are zeros.
void Program::pack_columns(const Contraction& c, Value* first_k, Value* count_k, Value* rows) {
  const ir::Value* view = c.a->operands[0];
  const ViewRef& x = views_.at(view);
  const DType dtype = view->type.dtype;
  const bool has_tail = c.k % vector_elements(e_, c.compute) != 0;
  llvm::Function* fn = transpose_kernel({dtype, c.compute, true, has_tail});
  Value* stride_bytes = e_.b.CreateMul(x.strides[0], e_.i64(dtype_bytes(dtype)));
  Value* last = e_.b.CreateSub(x.sizes[0], e_.i64(1));
  Value* padded = e_.b.CreateMul(e_.b.CreateUDiv(e_.b.CreateAdd(rows, e_.i64(c.mr - 1)), e_.i64(c.mr)), e_.i64(c.mr));
  e_.loop(e_.i64(0), padded, e_.lanes, [&](Value* r) {
    Value* row = e_.b.CreateAdd(scalars_.at(c.a->operands[1]), r);
    Value* source = e_.element_ptr(x.base, e_.b.CreateAdd(e_.b.CreateMul(row, x.strides[0]), first_k), dtype);
    e_.b.CreateCall(fn, {source, stride_bytes, e_.b.CreateSub(last, row), count_k, count_k, panel_of(c, r),
                         e_.i64(int64_t{c.mr} * 4)});
  });
}

// y^T [columns, rows] to y [rows, columns], whole vectors of both; zeros where there is no weight.
void Program::transpose_result(const TransposedPlan& plan, size_t which, Value* columns, Value* valid) {
  const Buffer& y = plan.c.weights[which].c;
  llvm::Function* fn = transpose_kernel({DType::f32, DType::f32, true, false});
  Value* sums = e_.arena_ptr(plan.sums + static_cast<int64_t>(which) * plan.sums_bytes);
  Value* vectors = e_.b.CreateUDiv(e_.b.CreateAdd(plan.rows, e_.i64(e_.lanes - 1)), e_.i64(e_.lanes));
  Value* padded = e_.b.CreateMul(vectors, e_.i64(e_.lanes));
  e_.loop(e_.i64(0), columns, e_.lanes, [&](Value* j) {
    Value* from = e_.element_ptr(sums, e_.b.CreateMul(j, e_.i64(plan.stride)), DType::f32);
    Value* to = e_.element_ptr(e_.arena_ptr(y.offset), j, DType::f32);
    Value* last = e_.b.CreateSub(e_.b.CreateSub(valid, e_.i64(1)), j);
    e_.b.CreateCall(fn, {from, e_.i64(plan.stride * 4), last, padded, padded, to, e_.i64(y.strides[0] * 4)});
  });
}

}  // namespace seqtile::cpu

// jit/codegen/cpu/contraction_transposed.cpp -- the outer-product form with exchanged roles: y^T = w x^T.
// SPDX-License-Identifier: Apache-2.0
//
//   for each block of kc:  transpose x[rows, kc] into panels of mr rows                  (stay in L1 or L2)
//     for each nr rows of w, read where they lie:
//       for each panel:  kernel: vectors along the rows of x, broadcast elements of w     (registers)
//   transpose the sums
//
// Nothing of w is packed and no lanes are summed, so that a few rows of x already reach the speed of many. Packing x
// instead costs 8 / block_n of the arithmetic; with many rows the panels no longer stay near.
#include "jit/codegen/cpu/micro_kernel.h"
#include "jit/codegen/cpu/program.h"

namespace seqtile::cpu {

using llvm::Value;

namespace {

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

// Elements of w go from memory into all lanes as they are: in the compute type, in whole units. The sums start at zero.
bool Program::fits_transposed(const Contraction& c) const {
  const DType dtype = c.weights[0].load->operands[0]->type.dtype;
  return !c.accumulate && !c.weights[0].packed && dtype == c.compute && c.k % elements_per_unit(c.compute) == 0;
}

void Program::contract_transposed(const Contraction& found) {
  Contraction c = found;
  const int64_t units = elements_per_unit(c.compute), lanes = e_.lanes, rows_padded = round_up(c.block_m, c.mr);
  c.kc = std::min(c.k, round_up(c.kc, vector_elements(e_, c.compute)));
  c.a_stride = round_up(c.kc, vector_elements(e_, c.compute)) / units * c.mr * 4;  // bytes of a panel
  c.a_offset = e_.reserve(rows_padded / c.mr * c.a_stride);
  const int64_t stride = rows_padded + lanes, sums_bytes = round_up(c.block_n, lanes) * stride * 4;
  const int64_t sums = e_.reserve(sums_bytes * static_cast<int64_t>(c.weights.size()));
  const int vectors = static_cast<int>(c.mr / lanes);
  const auto kernel = [&](int w_rows, int nv) {
    return outer_kernel({w_rows, nv, 1, 0, stride, 0, c.compute, vectors});
  };
  // Whole panels, what is left of the rows a vector at a time, and what is left of the columns one by one.
  llvm::Function *whole_fn = kernel(c.nr, vectors), *rows_fn = kernel(c.nr, 1), *column_fn = kernel(1, 1);
  Value *rows = limit(c.loop->results[0], 0).count, *columns = limit(c.loop->results[0], 1).count;

  const auto tile = [&](const Weight& weight, int64_t out_offset, Value* j, Value* k, Value* steps, Value* whole,
                        llvm::Function* last_fn) {
    const ViewRef& w = views_.at(weight.load->operands[0]);
    Value* row = e_.b.CreateAdd(scalars_.at(weight.load->operands[1]), j);
    Value* source = e_.element_ptr(w.base, e_.b.CreateAdd(e_.b.CreateMul(row, w.strides[0]), k), c.compute);
    Value* stride_bytes = e_.b.CreateMul(w.strides[0], e_.i64(dtype_bytes(c.compute)));
    if (last_fn == rows_fn)
      prefetch_rows(source, stride_bytes, e_.i64(c.nr), e_.i64(2 * c.nr), c.kc * dtype_bytes(c.compute));
    const auto call = [&](Value* i, llvm::Function* fn) {
      Value* element = e_.b.CreateAdd(e_.b.CreateMul(j, e_.i64(stride)), i);
      Value* out = e_.element_ptr(e_.arena_ptr(out_offset), element, DType::f32);
      e_.b.CreateCall(fn, {source, stride_bytes, panel_of(c, i), out, steps, e_.b.CreateICmpNE(k, e_.i64(0))});
    };
    e_.loop(e_.i64(0), whole, c.mr, [&](Value* i) { call(i, whole_fn); });
    e_.loop(whole, rows, lanes, [&](Value* i) { call(i, last_fn); });
  };
  e_.loop(e_.i64(0), e_.i64(c.k), c.kc, [&](Value* k) {
    Value* count = c.k % c.kc == 0 ? e_.i64(c.kc) : e_.min_i64(e_.i64(c.kc), e_.b.CreateSub(e_.i64(c.k), k));
    Value* steps = e_.b.CreateUDiv(count, e_.i64(units));
    pack_columns(c, k, count, rows);
    const auto multiple = [&](Value* size, int64_t of) {
      return e_.b.CreateMul(e_.b.CreateUDiv(size, e_.i64(of)), e_.i64(of));
    };
    // More than one vector of rows is left: a panel that is partly zeros is faster than single vectors.
    Value* whole_rows = multiple(e_.b.CreateAdd(rows, e_.i64(c.mr - lanes - 1)), c.mr);
    if (vectors == 1) whole_rows = e_.i64(0);
    Value* whole_columns = multiple(columns, c.nr);
    for (size_t w = 0; w < c.weights.size(); ++w) {
      const int64_t out = sums + static_cast<int64_t>(w) * sums_bytes;
      e_.loop(e_.i64(0), whole_columns, c.nr,
              [&](Value* j) { tile(c.weights[w], out, j, k, steps, whole_rows, rows_fn); });
      e_.loop(whole_columns, columns, 1, [&](Value* j) { tile(c.weights[w], out, j, k, steps, e_.i64(0), column_fn); });
    }
  });
  for (size_t w = 0; w < c.weights.size(); ++w)
    transpose_result(c.weights[w], sums + static_cast<int64_t>(w) * sums_bytes, stride, rows, columns);
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

// sums [columns, rows] to c [rows, columns], whole vectors of both.
void Program::transpose_result(const Weight& weight, int64_t source, int64_t source_stride, Value* rows,
                               Value* columns) {
  llvm::Function* fn = transpose_kernel({DType::f32, DType::f32, true, false});
  Value* padded =
      e_.b.CreateMul(e_.b.CreateUDiv(e_.b.CreateAdd(rows, e_.i64(e_.lanes - 1)), e_.i64(e_.lanes)), e_.i64(e_.lanes));
  e_.loop(e_.i64(0), columns, e_.lanes, [&](Value* j) {
    Value* from = e_.element_ptr(e_.arena_ptr(source), e_.b.CreateMul(j, e_.i64(source_stride)), DType::f32);
    Value* to = e_.element_ptr(e_.arena_ptr(weight.c.offset), j, DType::f32);
    e_.b.CreateCall(fn, {from, e_.i64(source_stride * 4), e_.i64(e_.lanes - 1), padded, padded, to,
                         e_.i64(weight.c.strides[0] * 4)});
  });
}

}  // namespace seqtile::cpu

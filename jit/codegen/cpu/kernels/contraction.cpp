// jit/codegen/cpu/kernels/contraction.cpp -- loops `acc = dot(load x, trans(load w), acc)` over the whole of k, or of w
// [k, n].
// SPDX-License-Identifier: Apache-2.0
//
// The loop nest is replaced by one that is built around the registers (micro_kernel.h). Outer-product form:
//
//   for each block of kc:  copy x[rows, kc] into rows of the compute type               (stays in L2)
//     for each panel of nr columns:  transpose w[nr, kc] into the panel                 (stays in L1)
//       for each mr rows:  kernel                                                       (registers)
//
// Packing w costs about 8 / rows of the arithmetic (one transposition for every `rows` multiplications), so it pays
// from a few dozen rows. Operands that lie as [k, m] and [k, n], as those of a weight's gradient do, are copied in
// steps of k, without any transposition. Dot-product form: x is copied once, w is read where it lies, once. Transposed
// form (contraction_transposed.cpp): y^T = w x^T. The result stays in the arena; what follows the loop (bias,
// activation, residual) reads it from there, row by row.
#include <algorithm>

#include "jit/analysis/streams.h"
#include "jit/codegen/cpu/kernels/micro_kernel.h"
#include "jit/codegen/cpu/program.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int64_t kCacheLine = 64, kUnrolledBytes = 32 * kCacheLine;

std::string kernel_name(const char* form, std::initializer_list<int64_t> numbers) {
  std::string name = form;
  for (int64_t n : numbers) name += "_" + std::to_string(n);
  return name;
}

}  // namespace

llvm::Function* Program::outer_kernel(const OuterKernel& k) {
  const char* form = k.in_matrix_registers ? "matrix" : "outer";
  const std::string name = kernel_name(form, {k.mr, k.nv, k.weights, k.a_stride, k.c_stride, k.c_weight_stride,
                                              static_cast<int>(k.compute), k.panel_nv, k.a_step});
  llvm::Function*& fn = kernels_[name];
  uses_matrix_registers_ |= k.in_matrix_registers;
  if (!fn) fn = k.in_matrix_registers ? emit_matrix_kernel(e_, k, name) : emit_outer_kernel(e_, k, name);
  return fn;
}

llvm::Function* Program::dot_kernel(const DotKernel& k) {
  const std::string name = kernel_name("dot", {k.mr, k.nr, k.a_stride, k.c_stride, static_cast<int>(k.w_dtype),
                                               static_cast<int>(k.compute), k.has_tail});
  llvm::Function*& fn = kernels_[name];
  if (!fn) fn = emit_dot_kernel(e_, k, name);
  return fn;
}

llvm::Function* Program::transpose_kernel(const TransposeKernel& k) {
  const std::string name =
      kernel_name("transpose", {static_cast<int>(k.dtype), static_cast<int>(k.compute), k.checks_rows, k.has_tail});
  llvm::Function*& fn = kernels_[name];
  if (!fn) fn = emit_transpose_kernel(e_, k, name);
  return fn;
}

// How far the sum runs. Operands that end before the others are zero from there on.
Value* Program::depth(const Contraction& c) {
  if (c.k != ir::kDynamic) return e_.i64(c.k);
  Value* end = views_.at(c.a->operands[0]).sizes[c.a_is_transposed ? 0 : 1];
  for (const Weight& weight : c.weights) end = e_.min_i64(end, views_.at(weight.load->operands[0]).sizes[0]);
  return end;
}

// The loop's attributes carry the schedule; where they are absent or do not fit the target a plain choice is made.
void Program::choose_schedule(Contraction& c) const {
  const Op& loop = *c.loop;
  const int64_t lanes = e_.lanes, weights = static_cast<int64_t>(c.weights.size());
  const std::string_view form = loop.string_attr("form", "outer");
  if (form == "dot" && c.weights[0].is_plain()) c.form = Contraction::Form::dot;
  if ((form == "transposed" || form == "matrix") && fits_transposed(c)) c.form = Contraction::Form::transposed;
  const bool is_outer = c.form == Contraction::Form::outer, is_dot = c.form == Contraction::Form::dot;
  c.mr = static_cast<int>(loop.int_attr("mr", 4));
  c.nr = static_cast<int>(loop.int_attr("nr", is_outer ? 2 * lanes : 4));
  c.kc = round_up(loop.int_attr("kc", 256), 4 * vector_elements(e_, c.compute));
  if (c.k != ir::kDynamic) c.kc = std::min(c.kc, c.k);
  if (is_dot) c.nr = static_cast<int>(std::min<int64_t>(c.nr, lanes));  // a row's sums fill at most one vector
  if (c.weights[0].packed) c.nr = static_cast<int>(c.weights[0].load->operands[0]->type.shape[2]);
  if (is_outer) c.nr = static_cast<int>(std::min(round_up(c.nr, lanes), round_up(c.block_n, lanes)));
  c.mr = std::clamp<int>(c.mr, 1, static_cast<int>(c.block_m));
  if (c.form == Contraction::Form::transposed) {
    c.mr = static_cast<int>(round_up(c.mr, lanes));
    c.in_matrix_registers = form == "matrix" && fits_matrix_registers(c, c.nr, c.mr / lanes);
    if (c.in_matrix_registers) return;
    c.nr = std::clamp<int>(c.nr, 1, static_cast<int>(c.block_n));
    c.mr = static_cast<int>(std::min<int64_t>(c.mr, target_registers() / 3 * lanes));  // at least two columns
    const int64_t vectors = c.mr / lanes;
    while (c.nr > 1 && (c.nr + 1) * vectors > target_registers()) --c.nr;
    return;
  }
  const int64_t vectors = is_dot ? c.nr : c.nr / lanes * weights;
  c.in_matrix_registers = form == "matrix" && !c.a_is_transposed && fits_matrix_registers(c, c.mr, vectors);
  if (c.in_matrix_registers) return;
  while (c.mr > 1 && c.mr * vectors + std::min<int64_t>(vectors, c.mr) > target_registers()) --c.mr;
}

bool Program::lower_contraction(const Op& loop) {
  Contraction c;
  if (!match(loop, c)) return false;
  for (size_t i = 0; i < c.weights.size(); ++i) c.accumulate |= !codegen::is_zero(loop.operands[3 + i]);
  choose_schedule(c);
  const bool is_outer = c.form == Contraction::Form::outer;
  const int64_t rows = round_up(c.block_m, c.mr), columns = round_up(c.block_n, is_outer ? c.nr : e_.lanes) + e_.lanes;
  for (size_t i = 0; i < c.weights.size(); ++i) {
    Buffer& buffer = c.weights[i].c;
    buffer = {e_.reserve(rows * columns * 4), DType::f32, {columns, 1}};
    if (c.accumulate) copy_to(loop.operands[3 + i], buffer);
    buffers_[loop.results[i]] = buffer;
  }
  Value *end_row = limit(loop.results[0], 0).count, *most_columns = e_.i64(0);
  for (const Weight& weight : c.weights) most_columns = e_.max_i64(most_columns, columns_of(c, weight));
  c.rows = e_.min_i64(end_row, rows_of(c));
  c.columns = e_.min_i64(limit(loop.results[0], 1).count, most_columns);
  switch (c.form) {
    case Contraction::Form::outer: contract_outer(c); break;
    case Contraction::Form::dot: contract_dot(c); break;
    case Contraction::Form::transposed: contract_transposed(c); break;
  }
  if (c.accumulate) return true;
  clear(c, c.rows, end_row, e_.i64(0));
  clear(c, e_.i64(0), c.rows, c.columns);
  return true;
}

// Rows of the tile that the operand has.
Value* Program::rows_of(const Contraction& c) {
  const auto axis = static_cast<size_t>(c.a_is_transposed ? 1 : 0);
  Value* size = views_.at(c.a->operands[0]).sizes[axis];
  return e_.max_i64(e_.i64(0), e_.b.CreateSub(size, scalars_.at(c.a->operands[1 + axis])));
}

// Columns of the tile that a weight has.
Value* Program::columns_of(const Contraction& c, const Weight& weight) {
  const auto axis = static_cast<size_t>(weight.transposed ? 1 : 0);
  Value* size = views_.at(weight.load->operands[0]).sizes[axis];
  Value* left = e_.b.CreateSub(size, scalars_.at(weight.load->operands[1 + axis]));
  return e_.max_i64(e_.i64(0), weight.packed ? e_.b.CreateMul(left, e_.i64(c.nr)) : left);
}

// Sums of rows and columns that an operand does not have are zero, whatever the other operand is: they are stored
// without a product.
void Program::clear(const Contraction& c, Value* first_row, Value* end_row, Value* first_column) {
  auto* type = llvm::FixedVectorType::get(e_.b.getFloatTy(), static_cast<unsigned>(e_.lanes));
  Value *zeros = llvm::Constant::getNullValue(type), *end = e_.i64(c.block_n);
  e_.loop(first_row, end_row, 1, [&](Value* i) {
    for (const Weight& weight : c.weights) {
      Value* row = e_.b.CreateMul(i, e_.i64(weight.c.strides[0]));
      e_.loop(first_column, end, e_.lanes, [&](Value* j) {
        Value* at = e_.element_ptr(e_.arena_ptr(weight.c.offset), e_.b.CreateAdd(row, j), DType::f32);
        e_.b.CreateAlignedStore(zeros, at, llvm::Align(4));
      });
    }
  });
}

void Program::contract_outer(const Contraction& found) {
  Contraction c = found;
  const int64_t units = elements_per_unit(c.compute), weights = static_cast<int64_t>(c.weights.size());
  const int width = vector_elements(e_, c.compute);
  const int64_t kc = round_up(c.kc, width), a_step = c.a_is_transposed ? round_up(c.mr, e_.lanes) : 1;
  c.a_stride = kc + width;  // one vector more than a power of two: rows start in different sets of the cache
  if (c.a_is_transposed) c.a_stride = kc / units * a_step * 4;
  const int64_t a_rows = round_up(c.block_m, c.mr);
  c.a_offset =
      e_.reserve(c.a_is_transposed ? a_rows / c.mr * c.a_stride : a_rows * c.a_stride * dtype_bytes(c.compute));
  const bool direct = c.weights[0].packed && weights == 1 && c.compute == DType::f32 &&
                      c.weights[0].load->operands[0]->type.dtype == DType::f32;
  const int64_t panel = direct ? 0 : e_.reserve(kc / units * c.nr * weights * 4);
  const Buffer& first = c.weights[0].c;
  OuterKernel kernel{c.mr, c.nr / e_.lanes, static_cast<int>(weights), c.a_stride / units, first.strides[0],
                     0,    c.compute};
  if (c.a_is_transposed) kernel.a_stride = 1, kernel.a_step = a_step;
  kernel.in_matrix_registers = c.in_matrix_registers;
  if (weights > 1) kernel.c_weight_stride = (c.weights[1].c.offset - first.offset) / 4;
  llvm::Function* fn = outer_kernel(kernel);
  Value *rows = c.rows, *columns = c.columns;
  const bool is_whole = c.k != ir::kDynamic && c.k % c.kc == 0;
  Value* depth_k = depth(c);
  const auto block = [&](Value* k) {
    Value* count = is_whole ? e_.i64(c.kc) : e_.min_i64(e_.i64(c.kc), e_.b.CreateSub(depth_k, k));
    Value* steps = e_.b.CreateUDiv(e_.b.CreateAdd(count, e_.i64(units - 1)), e_.i64(units));
    Value* accumulate = c.accumulate ? e_.b.getTrue() : e_.b.CreateICmpNE(k, e_.i64(0));
    pack_rows(c, k, count, rows);
    e_.loop(e_.i64(0), columns, c.nr, [&](Value* j) {
      Value* b = direct ? nullptr : e_.arena_ptr(panel);
      if (direct) b = packed_panel(c, k, j);
      else
        for (size_t w = 0; w < c.weights.size(); ++w) pack_weight(c, w, k, count, j, panel);
      e_.loop(e_.i64(0), rows, c.mr, [&](Value* i) {
        Value* a = c.a_is_transposed
                       ? panel_of(c, i)
                       : e_.element_ptr(e_.arena_ptr(c.a_offset), e_.b.CreateMul(i, e_.i64(c.a_stride)), c.compute);
        Value* element = e_.b.CreateAdd(e_.b.CreateMul(i, e_.i64(first.strides[0])), j);
        Value* out = e_.element_ptr(e_.arena_ptr(first.offset), element, DType::f32);
        prefetch_next(c, k, j, i, rows, columns);
        e_.b.CreateCall(fn, {a, e_.i64(0), b, out, steps, accumulate});
      });
    });
  };
  // If the run-time k is 0, one iteration of no steps still runs: it writes the zeros.
  e_.loop(e_.i64(0), c.k == ir::kDynamic ? e_.max_i64(depth_k, e_.i64(1)) : depth_k, c.kc, block);
}

// Whole registers of rows, of columns and along k.
bool Program::fits_matrix_registers(const Contraction& c, int64_t rows, int64_t vectors) const {
  return e_.target.has_matrix_registers && c.compute == DType::bf16 && rows % kMatrixRows == 0 && c.k != ir::kDynamic &&
         c.k % vector_elements(e_, c.compute) == 0 &&
         matrix_registers(static_cast<int>(rows), static_cast<int>(vectors)) <= kMatrixRegisters;
}

void Program::prefetch_rows(Value* base, Value* stride_bytes, Value* from, Value* to, int64_t row_bytes) {
  const int64_t step = row_bytes <= kUnrolledBytes ? round_up(row_bytes, kCacheLine) : kCacheLine;
  e_.loop(from, to, 1, [&](Value* r) {
    Value* row = e_.b.CreateGEP(e_.b.getInt8Ty(), base, e_.b.CreateMul(r, stride_bytes));
    e_.loop(e_.i64(0), e_.i64(row_bytes), step, [&](Value* k) {
      for (int64_t line = 0; line < step; line += kCacheLine)
        prefetch(e_, e_.b.CreateGEP(e_.b.getInt8Ty(), row, e_.b.CreateAdd(k, e_.i64(line))));
    });
  });
}

// While the kernel computes, the memory of the next panel of w and of the next block of x is fetched, a few rows at
// each call: both are read a kilobyte from every row, too short for the hardware to notice.
void Program::prefetch_next(const Contraction& c, Value* k, Value* j, Value* i, Value* rows, Value* columns) {
  const auto bytes_of = [&](const ir::Value* view) { return dtype_bytes(view->type.dtype); };
  Value* next_j = e_.b.CreateAdd(j, e_.i64(c.nr));
  Value* is_last = e_.b.CreateICmpSGE(next_j, columns);
  Value* next_k = e_.b.CreateAdd(k, e_.i64(c.kc));
  if (c.weights[0].is_plain()) {
    Value* calls = e_.b.CreateUDiv(e_.b.CreateAdd(rows, e_.i64(c.mr - 1)), e_.i64(c.mr));
    Value* share = e_.b.CreateUDiv(e_.b.CreateAdd(calls, e_.i64(c.nr - 1)), calls);
    Value* from = e_.b.CreateMul(e_.b.CreateUDiv(i, e_.i64(c.mr)), share);
    Value* to = e_.min_i64(e_.i64(c.nr), e_.b.CreateAdd(from, share));
    for (const Weight& weight : c.weights) {
      const ir::Value* view = weight.load->operands[0];
      const ViewRef& w = views_.at(view);
      Value* row = e_.b.CreateAdd(scalars_.at(weight.load->operands[1]), e_.b.CreateSelect(is_last, e_.i64(0), next_j));
      Value* element = e_.b.CreateAdd(e_.b.CreateMul(row, w.strides[0]), e_.b.CreateSelect(is_last, next_k, k));
      prefetch_rows(e_.element_ptr(w.base, element, view->type.dtype),
                    e_.b.CreateMul(w.strides[0], e_.i64(bytes_of(view))), from, to, c.kc * bytes_of(view));
    }
  }
  if (c.kc == c.k || c.a_is_transposed) return;  // x is packed whole, or its rows are long
  const ir::Value* view = c.a->operands[0];
  const ViewRef& x = views_.at(view);
  const int64_t panels = std::max<int64_t>(1, c.block_n / c.nr), row_bytes = c.kc * bytes_of(view);
  const int64_t part = round_up((row_bytes + panels - 1) / panels, kCacheLine);
  Value* row = e_.b.CreateAdd(scalars_.at(c.a->operands[1]), i);
  Value* element = e_.b.CreateAdd(e_.b.CreateMul(row, x.strides[0]), next_k);
  Value* base = e_.element_ptr(x.base, element, view->type.dtype);
  base = e_.b.CreateInBoundsGEP(e_.b.getInt8Ty(), base, e_.b.CreateMul(e_.b.CreateUDiv(j, e_.i64(c.nr)), e_.i64(part)));
  prefetch_rows(base, e_.b.CreateMul(x.strides[0], e_.i64(bytes_of(view))), e_.i64(0), e_.i64(c.mr), part);
}

// A panel that is read where it lies.
Value* Program::packed_panel(const Contraction& c, Value* k, Value* column) {
  const ViewRef& w = views_.at(c.weights[0].load->operands[0]);
  Value* index = e_.b.CreateAdd(scalars_.at(c.weights[0].load->operands[1]), e_.b.CreateUDiv(column, e_.i64(c.nr)));
  Value* element = e_.b.CreateAdd(e_.b.CreateMul(index, w.strides[0]), e_.b.CreateMul(k, e_.i64(c.nr)));
  return e_.element_ptr(w.base, element, DType::f32);
}

void Program::contract_dot(const Contraction& found) {
  Contraction c = found;
  const int width = vector_elements(e_, c.compute);
  c.kc = std::min(round_up(c.kc, width), c.k);
  c.a_stride = round_up(c.k, width) + width;
  c.a_offset = e_.reserve(round_up(c.block_m, c.mr) * c.a_stride * dtype_bytes(c.compute));
  Value *rows = c.rows, *columns = c.columns;
  pack_rows(c, e_.i64(0), e_.i64(c.k), rows);
  const DType w_dtype = c.weights[0].load->operands[0]->type.dtype;
  const DotKernel kernel{c.mr, c.nr, c.a_stride, c.weights[0].c.strides[0], w_dtype, c.compute, c.k % width != 0};
  llvm::Function* fn = dot_kernel(kernel);
  const auto tile = [&](Value* k, Value* j, const Weight& weight) {
    const ViewRef& w = views_.at(weight.load->operands[0]);
    Value* row = e_.b.CreateAdd(scalars_.at(weight.load->operands[1]), j);
    Value* last = e_.b.CreateSub(e_.b.CreateSub(w.sizes[0], e_.i64(1)), row);
    Value* source = e_.element_ptr(w.base, e_.b.CreateAdd(e_.b.CreateMul(row, w.strides[0]), k), w_dtype);
    Value* count = e_.min_i64(e_.i64(c.kc), e_.b.CreateSub(e_.i64(c.k), k));
    Value* accumulate = c.accumulate ? e_.b.getTrue() : e_.b.CreateICmpNE(k, e_.i64(0));
    Value *vectors = e_.b.CreateUDiv(count, e_.i64(width)), *tail = e_.b.CreateURem(count, e_.i64(width));
    e_.loop(e_.i64(0), rows, c.mr, [&](Value* i) {
      Value* a =
          e_.element_ptr(e_.arena_ptr(c.a_offset), e_.b.CreateAdd(e_.b.CreateMul(i, e_.i64(c.a_stride)), k), c.compute);
      Value* element = e_.b.CreateAdd(e_.b.CreateMul(i, e_.i64(kernel.c_stride)), j);
      Value* out = e_.element_ptr(e_.arena_ptr(weight.c.offset), element, DType::f32);
      e_.b.CreateCall(fn, {a, source, w.strides[0], last, out, vectors, tail, accumulate});
    });
  };
  e_.loop(e_.i64(0), e_.i64(c.k), c.kc, [&](Value* k) {
    e_.loop(e_.i64(0), columns, c.nr, [&](Value* j) {
      for (const Weight& weight : c.weights) tile(k, j, weight);
    });
  });
}

}  // namespace seqtile::cpu

// jit/codegen/cpu/kernels/micro_kernel.h -- register kernels: a small block of a product with its accumulators in
// registers.
// SPDX-License-Identifier: Apache-2.0
//
// Two forms. *Outer product*: accumulators are vectors along n; each step broadcasts one element of every row of a and
// multiplies it with a row of a packed panel of b. *Dot product*: accumulators are vectors along k; each step
// multiplies vectors of rows of a with vectors of rows of w, and a tree of shuffles sums the lanes at the end; w is
// read where it lies. Both compute in f32, or in pairs of bf16 summed in f32 (vdpbf16ps): a "step" of k is then two
// elements, and everything is laid out in units of 32 bits. Outer products of pairs also have a kernel for matrix
// registers.
#pragma once
#include "jit/base/cdiv.h"
#include "jit/codegen/cpu/emitter.h"

namespace seqtile::cpu {

/// 32-bit units: one f32, or a pair of bf16.
constexpr int64_t elements_per_unit(DType compute) { return compute == DType::bf16 ? 2 : 1; }

struct OuterKernel {
  int mr, nv;                   ///< rows; vectors of columns of one weight
  int weights = 1;              ///< panels side by side: columns of weight w follow those of weight w - 1
  int64_t a_stride;             ///< units between rows of a; 0: given in bytes at run time; 1: a is a panel itself
  int64_t c_stride;             ///< f32 elements between rows of c
  int64_t c_weight_stride = 0;  ///< f32 elements between the c of two weights
  DType compute;
  int panel_nv = 0;    ///< vectors of one step of the panel; 0: weights * nv
  int64_t a_step = 1;  ///< units between steps of a
  bool in_matrix_registers = false;
  auto operator<=>(const OuterKernel&) const = default;
};

/// void(ptr a, i64 a_stride, ptr panel, ptr c, i64 steps, i1 accumulate): c (+)= a panel; panel is
/// [steps][panel_nv * lanes] units.
llvm::Function* emit_outer_kernel(Emitter& e, const OuterKernel& kernel, const std::string& name);

/// Matrix registers (AMX): their number, and the rows of each; a row has as many units as the register has rows.
constexpr int kMatrixRegisters = 8, kMatrixRows = 16;

/// Number of matrix registers that a kernel of `mr` rows and `nv` vectors of columns takes: sums, rows of a, columns of
/// b.
constexpr int matrix_registers(int mr, int nv) {
  const int rows = static_cast<int>(cdiv(mr, kMatrixRows));
  return rows * nv + rows + nv;
}

/// The function of emit_outer_kernel() in matrix registers. Requires: mr, and the steps of each call, are multiples of
/// kMatrixRows; the registers are configured before. They are released at the program's end: configuring and releasing
/// take longer than a small product.
llvm::Function* emit_matrix_kernel(Emitter& e, const OuterKernel& kernel, const std::string& name);
void configure_matrix_registers(Emitter& e);
void release_matrix_registers(Emitter& e);

struct DotKernel {
  int mr, nr;
  int64_t a_stride;  ///< compute elements between rows of a; rows are padded with zeros to whole vectors
  int64_t c_stride;
  DType w_dtype, compute;
  bool has_tail;  ///< k is not a multiple of a vector
  auto operator<=>(const DotKernel&) const = default;
};

/// void(ptr a, ptr w, i64 w_stride, i64 last, ptr c, i64 vectors, i64 tail, i1 accumulate): c[i, j] (+)= sum over k of
/// a[i, k] w[min(j, last), k] for k < vectors * vector length + tail; columns after `last` get 0. `last` may be
/// negative: nothing is then read through w but row 0 + last, which the caller makes valid.
llvm::Function* emit_dot_kernel(Emitter& e, const DotKernel& kernel, const std::string& name);

/// acc + a * b: fused where the target can, or the bf16 pair product.
llvm::Value* multiply_add(Emitter& e, DType compute, llvm::Value* acc, llvm::Value* a, llvm::Value* b);

/// Asks for the cache line of `address`, into L2; any address will do.
void prefetch(Emitter& e, llvm::Value* address);

/// Elements of `compute` in one vector register.
inline int vector_elements(const Emitter& e, DType compute) {
  return static_cast<int>(e.lanes * elements_per_unit(compute));
}

/// Loads `count` elements of `dtype` (count = vector_elements) as one register of units (<lanes x float> or
/// <2 * lanes x i16>); mask may be null.
llvm::Value* load_compute(Emitter& e, DType dtype, DType compute, llvm::Value* ptr, llvm::Value* mask);

/// Copies `lanes` rows of memory into a panel, transposed and in the compute type.
struct TransposeKernel {
  DType dtype, compute;
  bool checks_rows;  ///< rows after `last`, which may be negative, are zeros; row `last` is read in their place
  bool has_tail;     ///< `valid` may be less than `total`, or not whole vectors
  auto operator<=>(const TransposeKernel&) const = default;
};

/// void(ptr rows, i64 stride_bytes, i64 last, i64 valid, i64 total, ptr panel, i64 step_bytes): unit u of row r goes to
/// panel + u * step_bytes + 4 r, for `total` elements of every row; those from `valid` on are zeros.
llvm::Function* emit_transpose_kernel(Emitter& e, const TransposeKernel& kernel, const std::string& name);

}  // namespace seqtile::cpu

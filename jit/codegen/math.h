// jit/codegen/math.h -- transcendental functions as LLVM IR, for f32 scalars and vectors of any width.
// SPDX-License-Identifier: Apache-2.0
//
// At most 2 ulp over the range kernels use (tests/jit/codegen/math_test.cpp measures it): straight-line code, no
// tables, no calls. NaN stays NaN. exp2 and its users handle infinities: a masked score of -inf gives exactly 0.
#pragma once

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace seqtile::codegen {

llvm::Value* emit_exp2(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_log2(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_tanh(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_erf(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_sin(llvm::IRBuilderBase& b, llvm::Value* x);  ///< |x| up to 2^20 (angles of rotary embeddings)
llvm::Value* emit_cos(llvm::IRBuilderBase& b, llvm::Value* x);

/// A float in [0, 1) of 24 random bits: Philox 4x32-10 with the counter (counter, 0, 0, 0) and an i64 seed as its key.
/// Scalars. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3.
llvm::Value* emit_philox(llvm::IRBuilderBase& b, llvm::Value* seed, llvm::Value* counter);

}  // namespace seqtile::codegen

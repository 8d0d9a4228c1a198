// jit/codegen/cpu/rows/reductions.h -- how partial results of a reduction combine.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>

#include "jit/codegen/cpu/emitter.h"

namespace seqtile::cpu {

/// a (+) b for `kind` sum max min prod any; scalars and vectors of `dtype`.
llvm::Value* combine(Emitter& e, std::string_view kind, DType dtype, llvm::Value* a, llvm::Value* b);
/// The value that leaves the other side of combine() unchanged.
llvm::Constant* identity(Emitter& e, std::string_view kind, DType dtype);
/// 16-bit floats are accumulated in f32.
DType accumulator_dtype(DType dtype);
/// Folds a vector to a scalar in log2(width) steps.
llvm::Value* horizontal(Emitter& e, std::string_view kind, DType dtype, llvm::Value* vector);

}  // namespace seqtile::cpu

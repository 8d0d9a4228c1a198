// kernels/op/tolerance.h -- how far a result may be from the f64 reference, from one function.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "autotune/op_def.h"

namespace seqtile::kernels {

/// Relative distance between neighbours of a storage format: the result's own rounding is half of it.
constexpr double storage_epsilon(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : 0x1p-23;
}

/// For results of order 1 that are sums of `k` products accumulated in f32 (k = 1: elementwise) and rounded to `dtype`
/// once. Rounding errors of a sum add up like a random walk, hence sqrt(k); 2 ulp for each transcendental function.
inline autotune::OpDef::Tolerance tolerance(DType dtype, int64_t k) {
  const double sum = 0x1p-22 * (4 + std::sqrt(static_cast<double>(k)));
  return {sum, dtype == DType::f32 ? 0x1p-19 : 0.75 * storage_epsilon(dtype)};
}

/// Sums of order 1 may differ by this where GPUs round the operands of f32 products to ten bits of mantissa: it is five
/// standard deviations.
constexpr double kTf32Error = 0x1p-9;

}  // namespace seqtile::kernels

// jit/ir/row_alignment.h -- the alignment of a tensor's rows that follows from its static sizes.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "seqtile/tensor.h"

namespace seqtile {

/// Alignment in bytes that kernels for GPUs ask of bases and rows, as far as static sizes allow.
constexpr int kGpuAlignment = 16;

/// Alignment in bytes, at most `most`, of the base and the rows of a dense tensor with these sizes (ir::kDynamic where
/// unknown). Rows start at multiples of the innermost size. A tensor of rank 1 promises `most` if its size is static.
int row_alignment(DType dtype, std::span<const int64_t> sizes, int most);

}  // namespace seqtile

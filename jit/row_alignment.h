// jit/row_alignment.h -- what the static sizes of a tensor say about the alignment of its rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "jit/dtype.h"

namespace seqtile {

/// Bytes that kernels for GPUs ask of bases and rows, as far as static sizes allow.
constexpr int kGpuAlignment = 16;

/// Bytes that bases and rows of a dense tensor with these sizes (ir::kDynamic where unknown) are multiples of, up to
/// `most`: rows start at multiples of the innermost size; a tensor of one row promises `most` where its size is static.
int row_alignment(DType dtype, std::span<const int64_t> sizes, int most);

}  // namespace seqtile

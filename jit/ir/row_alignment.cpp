// jit/ir/row_alignment.cpp -- see row_alignment.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ir/row_alignment.h"

#include "seqtile/ir.h"

namespace seqtile {

int row_alignment(DType dtype, std::span<const int64_t> sizes, int most) {
  int64_t alignment = dtype_bytes(dtype);
  if (sizes.empty() || sizes.back() == ir::kDynamic) return static_cast<int>(alignment);
  const int64_t row_bytes = sizes.size() == 1 ? most : sizes.back() * alignment;
  while (alignment < most && row_bytes % (2 * alignment) == 0) alignment *= 2;
  return static_cast<int>(alignment);
}

}  // namespace seqtile

// kernels/linear/linear_weights.cpp -- packing of linear's weights.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>

#include "seqtile/error.h"
#include "seqtile/ops/linear.h"

namespace seqtile::kernels {

int64_t default_panel(const Target& target) { return 2 * target.lanes_f32(); }

int64_t packed_linear_elements(int64_t n, int64_t k, int64_t panel) { return (n + panel - 1) / panel * panel * k; }

void pack_linear_weight(const Tensor& weight, const Tensor& packed) {
  const int64_t n = weight.sizes[0], k = weight.sizes[1], panel = packed.sizes[2];
  const bool fits = weight.rank == 2 && packed.rank == 3 && panel > 0 && packed.sizes[0] == (n + panel - 1) / panel &&
                    packed.sizes[1] == k && packed.dtype == weight.dtype && packed.strides[2] == 1 &&
                    packed.strides[1] == panel && packed.strides[0] == k * panel;
  if (!fits)
    throw Error(ErrorCode::invalid_argument, "pack_linear_weight: a weight [" + std::to_string(n) + ", " +
                                                 std::to_string(k) +
                                                 "] needs a dense [ceil(n / panel), k, panel] tensor " +
                                                 "of the same dtype; see packed_linear_elements()");
  const int64_t bytes = dtype_bytes(weight.dtype);
  const auto* from = static_cast<const std::byte*>(weight.data);
  auto* to = static_cast<std::byte*>(packed.data);
  std::memset(to, 0, static_cast<size_t>(packed_linear_elements(n, k, panel) * bytes));
  for (int64_t column = 0; column < n; ++column)
    for (int64_t kk = 0; kk < k; ++kk)
      std::memcpy(to + ((column / panel * k + kk) * panel + column % panel) * bytes,
                  from + (column * weight.strides[0] + kk * weight.strides[1]) * bytes, static_cast<size_t>(bytes));
}

}  // namespace seqtile::kernels

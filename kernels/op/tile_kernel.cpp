// kernels/op/tile_kernel.cpp -- see tile_kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/tile_kernel.h"

namespace seqtile::kernels {

autotune::Cost traffic_of(const autotune::Schema& schema, std::span<const int64_t> symbols) {
  autotune::Cost cost;
  for (const autotune::ArgSpec& arg : schema.args) {
    if (std::ranges::any_of(schema.indices, [&](const auto& rule) {
          return rule.kind != autotune::IndexRule::Kind::places && (rule.arg == arg.name || rule.counts == arg.name);
        }))
      continue;
    int64_t bytes = dtype_bytes(arg.dtype);
    for (const autotune::Dim& dim : arg.dims) bytes *= size_of(dim, schema, symbols);
    (arg.role == autotune::ArgRole::output ? cost.bytes_written : cost.bytes_read) += static_cast<double>(bytes);
  }
  return cost;
}

}  // namespace seqtile::kernels

// kernels/typed_op.cpp -- see typed_op.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/typed_op.h"

namespace seqtile::kernels {

bool fill_as_declared(const SchemaMaker& declared, const Tensor& tensor, size_t arg, uint64_t seed) {
  constexpr double kDeviation = 0.1;
  if (const auto rows = declared.rows_of[arg]) fill_uniform_int(tensor, 0, *rows - 1, seed);
  else if (const auto mean = declared.means[arg]) fill_normal(tensor, *mean, kDeviation, seed);
  else return false;
  return true;
}

}  // namespace seqtile::kernels

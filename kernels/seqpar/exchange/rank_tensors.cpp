// kernels/seqpar/exchange/rank_tensors.cpp -- see rank_tensors.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/rank_tensors.h"

#include <algorithm>

namespace seqtile::kernels::seqpar {

bool needs_sequence(const autotune::Schema& schema) {
  return std::ranges::none_of(schema.args, [](const autotune::ArgSpec& arg) { return arg.dims[0].symbol == "length"; });
}

Tensor sequence_tensor(int64_t length) {
  static char any;  // nobody reads it
  return make_tensor(&any, DType::i8, {length});
}

}  // namespace seqtile::kernels::seqpar

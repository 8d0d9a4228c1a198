// kernels/seqpar/exchange/rank_tensors.h -- the tensors of a call with the rows of all ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "seqtile/operation.h"
#include "seqtile/tensor.h"

namespace seqtile::kernels::seqpar {

/// No tensor of the operation has the rows of all ranks: the tensor `sequence` [length], of which only the size is
/// read, says how many there are.
bool needs_sequence(const autotune::Schema& schema);
Tensor sequence_tensor(int64_t length);

/// The tensors of a call with `length` rows of all ranks, without the channel's.
template <class Op>
Call pack_rows(const Op& op, const typename Op::Args& args, int64_t length) {
  Call call = pack(op, args);
  call.length = length;
  if (needs_sequence(schema_of(op).schema)) call.add(sequence_tensor(length));
  return call;
}

}  // namespace seqtile::kernels::seqpar

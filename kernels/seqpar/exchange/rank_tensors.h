// kernels/seqpar/exchange/rank_tensors.h -- tensors of which a rank has its own rows, or its own heads' columns.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/op/op_tensors.h"
#include "kernels/seqpar/exchange/ranks.h"

namespace seqtile {
struct Protocol;
}

namespace seqtile::kernels::seqpar {

struct ExchangeShape;

inline constexpr Extent kOwnRows{"own_rows"}, kOwnColumns{"own_columns"}, kOwnKvColumns{"own_kv_columns"};

/// A tensor of a contained operation that has other sizes here.
struct Cut {
  std::string_view name;
  Extent rows;
  std::optional<Extent> columns = {};  ///< absent: as they are
};

/// Passes the tensors of a contained operation on, the tensors of the list with their own sizes.
template <class Visitor>
class CutTensors : public TensorVisitor<CutTensors<Visitor>> {
 public:
  CutTensors(Visitor& to, std::initializer_list<Cut> cuts) : to_(to), cuts_(cuts) {}
  template <class Slot>
  void visit(autotune::ArgRole role, std::string_view name, Slot& slot, Extents extents, const TensorOptions& options) {
    const auto cut = std::ranges::find(cuts_, name, &Cut::name);
    if (cut == cuts_.end()) to_.visit(role, name, slot, extents, options);
    else to_.visit(role, name, slot, {cut->rows, cut->columns.value_or(extents.begin()[1])}, options);
  }

 private:
  Visitor& to_;
  const std::vector<Cut> cuts_;
};

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

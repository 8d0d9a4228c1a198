// kernels/seqpar/exchange/rank_tensors.h -- tensors of which a rank has its own rows, or its own heads' columns.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

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
  Extent rows = 0;
  std::optional<Extent> columns = {};  ///< absent: as they are
};

/// Passes the tensors of a contained operation on, the tensors of the list with their own sizes.
template <class Visitor>
class CutTensors : public TensorVisitor<CutTensors<Visitor>> {
 public:
  /// Requires: at most kMost cuts. A call packs its tensors through this class, so that it allocates nothing.
  CutTensors(Visitor& to, std::initializer_list<Cut> cuts) : to_(to), count_(cuts.size()) {
    std::ranges::copy(cuts, cuts_.begin());
  }
  template <class Slot>
  void visit(autotune::ArgRole role, std::string_view name, Slot& slot, Extents extents, const TensorOptions& options) {
    const auto end = cuts_.begin() + static_cast<std::ptrdiff_t>(count_);
    const auto cut = std::find_if(cuts_.begin(), end, [&](const Cut& c) { return c.name == name; });
    if (cut == end) to_.visit(role, name, slot, extents, options);
    else to_.visit(role, name, slot, {cut->rows, cut->columns.value_or(extents.begin()[1])}, options);
  }

 private:
  Visitor& to_;
  static constexpr size_t kMost = 6;
  std::array<Cut, kMost> cuts_;
  const size_t count_;
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

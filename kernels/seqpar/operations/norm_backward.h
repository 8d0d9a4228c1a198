// kernels/seqpar/operations/norm_backward.h -- a norm's gradients over own rows, its weight's summed over ranks in the
// launch.
// SPDX-License-Identifier: Apache-2.0
//
// A norm's weight is whole on every rank and all rows add to its gradient. Each rank sends the sum over its own rows,
// one row in f32, to all others; every rank adds them up from rank 0 on and gets the same bits.
#pragma once
#include "kernels/norm/rms_norm_backward.h"
#include "kernels/seqpar/exchange/rank_tensors.h"

namespace seqtile::kernels::seqpar {

/// RmsNormBackward of own rows, with dweight summed over the rows of all ranks. A rank without rows takes part.
struct SequenceParallelRmsNormBackward {
  static constexpr std::string_view kName = "sequence_parallel_rms_norm_backward";
  static constexpr std::array<std::string_view, 0> kShares = {};
  RmsNormBackward norm = {};
  RowLayout layout = RowLayout::contiguous;  ///< how many rows a rank owns
  Ranks ranks = {};                          ///< prepare() sets them

  /// Shapes: as RmsNormBackward's, with own rows instead of the length. dx may be dy or residual.
  template <class T>
  using Tensors = RmsNormBackward::Tensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    CutTensors cut(v, {{"dy", kOwnRows}, {"x", kOwnRows}, {"residual", kOwnRows}, {"dx", kOwnRows}});
    norm.tensors(cut, t);
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }
  DType& storage() { return norm.dtype; }
  const DType& storage() const { return norm.dtype; }

  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef sequence_parallel_rms_norm_backward();

}  // namespace seqtile::kernels::seqpar

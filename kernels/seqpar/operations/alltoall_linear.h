// kernels/seqpar/operations/alltoall_linear.h -- from own heads of all rows to own rows, and the product behind
// attention.
// SPDX-License-Identifier: Apache-2.0
//
// Attention with its heads cut over the ranks leaves a rank the columns of its heads, of all rows. The output product
// of a row needs all of its columns: they meet in the staging of the row's owner, each rank's beside those of the
// others, so that what is multiplied is a matrix as linear has it, and the bits are linear's.
#pragma once
#include "kernels/linear/linear.h"
#include "kernels/seqpar/exchange/heads.h"
#include "kernels/seqpar/exchange/rank_tensors.h"

namespace seqtile::kernels::seqpar {

/// Own rows of y = epilogue(x w^T) + residual, where every rank has the columns of its own heads of x: rank r those of
/// heads [floor(r heads / P), floor((r + 1) heads / P)). Where query heads share key heads and stay together, a group
/// of them is one head here: `heads` is then the number of key heads, `head_dim` that of a whole group.
struct FusedAlltoallAndLinear {
  static constexpr std::string_view kName = "fused_alltoall_and_linear";
  static constexpr std::array<std::string_view, 0> kShares = {};
  int64_t heads = 0, head_dim = 0, n = 0;
  bool bias = false;
  Activation activation = Activation::none;
  bool residual = false;
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: x [length, own heads head_dim]; w [n, heads head_dim], whole on every rank; bias [n]; residual and y
  /// [own rows, n]. The other members stay empty.
  template <class T>
  using Tensors = Linear::Tensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    CutTensors own(v, {{"x", kLength, own_extent(cut())}, {"residual", kOwnRows}, {"y", kOwnRows}});
    product().tensors(own, t);
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  Heads cut() const { return {heads, head_dim, ranks.world_size}; }
  int64_t own_columns(int rank, bool) const { return cut().columns(rank); }
  /// The product of a rank's rows, with all columns.
  Linear product() const {
    return {
        .n = n, .k = heads * head_dim, .bias = bias, .activation = activation, .residual = residual, .dtype = dtype};
  }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef fused_alltoall_and_linear();

}  // namespace seqtile::kernels::seqpar

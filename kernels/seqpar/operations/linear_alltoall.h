// kernels/seqpar/operations/linear_alltoall.h -- the product in front of attention: own rows of x, own heads of all
// rows.
// SPDX-License-Identifier: Apache-2.0
//
// Every rank multiplies its rows with all heads' weights. What belongs to another rank's heads goes straight from the
// registers to that rank's staging, chunk by chunk; what is its own, to its outputs. Attention follows on own heads and
// all rows, then fused_alltoall_and_linear as the way back.
#pragma once
#include "kernels/linear/linear.h"
#include "kernels/seqpar/exchange/heads.h"
#include "kernels/seqpar/exchange/rank_tensors.h"

namespace seqtile::kernels::seqpar {

/// Own heads of y = x w^T + bias for queries, keys and values, all rows. KV groups are cut by the floor rule, with all
/// their query heads; with fewer KV heads than ranks query heads are, and every rank gets the KV heads that they read
/// (GroupedHeads).
struct FusedLinearAndAlltoall {
  static constexpr std::string_view kName = "fused_linear_and_alltoall";
  /// The operation has no such fields; the names are part of every identity that ranks have compared so far.
  static constexpr std::array<std::string_view, 3> kShares = {"n", "n2", "n3"};
  int64_t heads = 0, kv_heads = 0, head_dim = 0, k = 0;
  bool bias = false;
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: x [own rows, k]; w [heads head_dim, k], w2 and w3 [kv_heads head_dim, k], of queries, keys and values,
  /// whole on every rank, and their biases [columns]; y [length, own heads head_dim], y2 and y3 [length, own KV heads
  /// head_dim]. The residual stays empty.
  template <class T>
  using Tensors = Linear::Tensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    const GroupedHeads own_heads = cut();
    const Extent queries = own_heads.is_even(false) ? own_heads.most_columns(false) : kOwnColumns;
    const Extent keys = own_heads.is_even(true) ? own_heads.most_columns(true) : kOwnKvColumns;
    CutTensors own(v, {{"x", kOwnRows}, {"y", kLength, queries}, {"y2", kLength, keys}, {"y3", kLength, keys}});
    product().tensors(own, t);
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  GroupedHeads cut() const { return {heads, kv_heads, head_dim, ranks.world_size}; }
  int64_t own_columns(int rank, bool of_keys) const { return cut().columns(rank, of_keys); }
  /// The product of all heads.
  Linear product() const {
    const int64_t of_keys = kv_heads * head_dim;
    return {.n = heads * head_dim, .n2 = of_keys, .n3 = of_keys, .k = k, .bias = bias, .dtype = dtype};
  }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef fused_linear_and_alltoall();

}  // namespace seqtile::kernels::seqpar

// kernels/seqpar/operations/context_attention.h -- attention over a sequence whose rows are cut over ranks: one launch
// of each.
// SPDX-License-Identifier: Apache-2.0
//
// Context parallelism: q, k, v and the result stay with the rank that owns their rows (row_layout.h). Keys and values
// go to every peer inside the launch; sums are kept in f32 from the first rank's keys to the last.
#pragma once
#include "kernels/seqpar/exchange/rank_tensors.h"

namespace seqtile::kernels::seqpar {

/// Own rows of softmax(scale q k^T) v over the keys of all ranks. A query meets the keys of its own rank first, then
/// those of rank + 1, rank + 2, ..., around: the bits depend on the tile, layout and number of ranks, and on nothing
/// else.
struct ContextAttentionForward {
  static constexpr std::string_view kName = "context_attention_forward";
  static constexpr std::array<std::string_view, 0> kShares = {};
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;                        ///< a query sees the keys of the sequence up to its own row
  RowLayout layout = RowLayout::contiguous;  ///< zigzag: equal work for all ranks under a causal mask
  double scale = 0;                          ///< 0: 1 / sqrt(head_dim)
  bool lse = false;                          ///< a second output
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: q and out [own rows, heads head_dim]; k and v [own rows, kv_heads head_dim]; lse [own rows, heads] f32,
  /// the natural logarithm of each row's sum of exponentials. Own rows are num_rows() of the layout; what else goes by
  /// their place in the sequence, such as `Rope`, takes it from fill_positions().
  template <class T>
  struct Tensors {
    T q, k, v, out, lse{};
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("q", t.q, {kOwnRows, heads * head_dim});
    v.input("k", t.k, {kOwnRows, kv_heads * head_dim});
    v.input("v", t.v, {kOwnRows, kv_heads * head_dim});
    v.output("out", t.out, {kOwnRows, heads * head_dim});
    if (lse) v.output("lse", t.lse, {kOwnRows, heads}, {.dtype = DType::f32});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef context_attention_forward();

}  // namespace seqtile::kernels::seqpar

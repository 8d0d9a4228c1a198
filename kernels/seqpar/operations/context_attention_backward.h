// kernels/seqpar/operations/context_attention_backward.h -- attention's gradients over a sequence cut over ranks, one
// launch.
// SPDX-License-Identifier: Apache-2.0
//
// Every rank gets all rows of k, v, q and dout, and two numbers for each query of a head, inside the launch. It
// computes dq of its own queries over all keys, and dk and dv of its own keys over all queries, in f32 from the first
// rank's rows to the last, rounded once: no partial gradient travels, and nothing is added across ranks.
#pragma once
#include "kernels/seqpar/exchange/rank_tensors.h"

namespace seqtile::kernels::seqpar {

/// The backward pass of ContextAttentionForward. A rank's rows meet those of its own rank first, then those of
/// rank + 1, rank + 2, ..., around: the bits depend on the tile, layout and number of ranks, and on nothing else.
struct ContextAttentionBackward {
  static constexpr std::string_view kName = "context_attention_backward";
  static constexpr std::array<std::string_view, 0> kShares = {};
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;
  RowLayout layout = RowLayout::contiguous;  ///< as of the forward pass
  double scale = 0;                          ///< 0: 1 / sqrt(head_dim)
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: q, out, dout and dq [own rows, heads head_dim]; k, v, dk and dv [own rows, kv_heads head_dim]; lse
  /// [own rows, heads] f32. out and lse as the forward pass has written them.
  template <class T>
  struct Tensors {
    T q, k, v, out, lse, dout, dq, dk, dv;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    const int64_t columns = heads * head_dim, kv_columns = kv_heads * head_dim;
    v.input("q", t.q, {kOwnRows, columns});
    v.input("k", t.k, {kOwnRows, kv_columns});
    v.input("v", t.v, {kOwnRows, kv_columns});
    v.input("out", t.out, {kOwnRows, columns});
    v.input("lse", t.lse, {kOwnRows, heads}, {.dtype = DType::f32});
    v.input("dout", t.dout, {kOwnRows, columns});
    v.output("dq", t.dq, {kOwnRows, columns});
    v.output("dk", t.dk, {kOwnRows, kv_columns});
    v.output("dv", t.dv, {kOwnRows, kv_columns});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef context_attention_backward();

}  // namespace seqtile::kernels::seqpar

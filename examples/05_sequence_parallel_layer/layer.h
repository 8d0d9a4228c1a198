// examples/05_sequence_parallel_layer/layer.h -- a decoder layer's tensors, and its operations that need no other rank.
// SPDX-License-Identifier: Apache-2.0
//
// A rank has a share of the heads and of the MLP's columns, and between the blocks a share of the rows; with one rank
// that is the whole layer. Gradients are kept in the same structs as what they are the gradients of.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "seqtile/engine.h"
#include "seqtile/ops/attention.h"
#include "seqtile/ops/rows.h"

namespace example {

using namespace seqtile;
using namespace seqtile::kernels;

constexpr int64_t kHidden = 128, kHeads = 8, kKvHeads = 4, kHeadDim = 16, kIntermediate = 320, kMaxLength = 100;

struct Matrix {
  Matrix(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), values(static_cast<size_t>(rows * columns) + 1, NAN) {}
  operator Tensor() { return tensor(values.data(), {rows, columns}); }
  Tensor heads() { return tensor(values.data(), {rows, columns / kHeadDim, kHeadDim}); }
  Tensor row(int64_t i) { return tensor(at(i, 0), {columns}); }
  float* at(int64_t row, int64_t column) { return values.data() + row * columns + column; }

  int64_t rows, columns;
  std::vector<float> values;  ///< one more than there are: a rank without rows has a tensor all the same
};

/// Rank r of P has a part of the rows, of the KV heads with their query heads, and of the MLP's columns.
struct Share {
  int rank = 0, ranks = 1;
  int64_t first(int64_t size) const { return rank * size / ranks; }
  int64_t part(int64_t size) const { return (rank + 1) * size / ranks - first(size); }
  int64_t heads() const { return part(kKvHeads) * (kHeads / kKvHeads); }
};

struct Weights {
  explicit Weights(const Share& s)
      : q(s.heads() * kHeadDim, kHidden),
        k(s.part(kKvHeads) * kHeadDim, kHidden),
        v(k),
        o(kHidden, q.rows),
        gate_up(2 * s.part(kIntermediate), kHidden),
        down(kHidden, s.part(kIntermediate)) {}
  std::array<Matrix*, 7> all() { return {&norms, &q, &k, &v, &o, &gate_up, &down}; }

  Matrix norms{2, kHidden};  ///< before attention and before the MLP; whole on every rank
  Matrix q, k, v, o;         ///< of own heads
  Matrix gate_up, down;      ///< of own columns: the gate's rows, then those of up
};

struct Activations {
  Activations(const Share& s, int64_t length)
      : x(s.part(length), kHidden),
        normed(x),
        middle(x),
        middle_normed(x),
        y(x),
        q(length, s.heads() * kHeadDim),
        k(length, s.part(kKvHeads) * kHeadDim),
        v(k),
        context(q),
        lse(length, s.heads()),
        gate_up(length, 2 * s.part(kIntermediate)),
        gated(length, s.part(kIntermediate)) {}

  Matrix x, normed, middle, middle_normed, y;  ///< own rows
  Matrix q, k, v, context, lse;                ///< all rows, own heads; q and k are rotated
  Matrix gate_up, gated;                       ///< all rows, own columns
};

/// One sequence, as the batch that attention takes.
struct Sequence {
  explicit Sequence(int64_t length) : numbers(static_cast<size_t>(length) + 1) {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
    start[1] = static_cast<int32_t>(length);
  }
  Tensor positions() { return tensor(numbers.data(), {start[1]}); }
  Tensor q_start() { return tensor(start, {2}); }
  Tensor kv_start() { return tensor(start, {1}); }
  Tensor kv_length() { return tensor(start + 1, {1}); }

  std::vector<int32_t> numbers;
  int32_t start[2] = {0, 0};
};

class LocalOps {
 public:
  LocalOps(Engine& engine, const Share& share) : engine_(engine), s_(share) {
    fill_rope_table(rope_turns(kHeadDim, 10000), 1, rope_table_);
  }

  void norm(Matrix& x, Tensor weight, Matrix& y) const {
    if (x.rows > 0) norm_({.x = x, .weight = weight, .y = y});
  }
  /// `beside`: the gradient that reaches x not through the norm. dweight is that of own rows.
  void norm_backward(Matrix& dy, Matrix& x, Matrix& beside, Tensor weight, Matrix& dx, float* dweight) const {
    std::fill_n(dweight, kHidden, 0.0f);
    if (x.rows == 0) return;
    norm_backward_(
        {.dy = dy, .x = x, .residual = beside, .weight = weight, .dx = dx, .dweight = tensor(dweight, {1, kHidden})});
  }
  void attention(Activations& a) const {
    Sequence seq(a.q.rows);
    const Tensor q = a.q.heads(), k = a.k.heads();
    rope_({.q = q, .k = k, .positions = seq.positions(), .table = rope_table_, .q_out = q, .k_out = k});
    attention_({q, k, a.v.heads(), seq.q_start(), seq.kv_start(), seq.kv_length(), a.context.heads(), a.lse, a.q.rows});
  }
  void attention_backward(Activations& a, Activations& d) const {
    Sequence seq(a.q.rows);
    const Tensor dq = d.q.heads(), dk = d.k.heads();
    attention_backward_({a.q.heads(), a.k.heads(), a.v.heads(), a.context.heads(), a.lse, d.context.heads(),
                         seq.q_start(), seq.kv_start(), seq.kv_length(), dq, dk, d.v.heads(), a.q.rows});
    rope_backward_({.q = dq, .k = dk, .positions = seq.positions(), .table = rope_table_, .q_out = dq, .k_out = dk});
  }
  void gate(Activations& a) const { gate_({.x = a.gate_up, .y = a.gated}); }
  void gate_backward(Activations& a, Activations& d) const {
    gate_backward_({.dy = d.gated, .x = a.gate_up, .dx = d.gate_up});
  }

 private:
  Rope rope_of(bool inverse) const {
    return {.heads = s_.heads(), .kv_heads = s_.part(kKvHeads), .head_dim = kHeadDim, .inverse = inverse};
  }

  Engine& engine_;
  const Share s_;
  std::vector<int32_t> rope_words_ = std::vector<int32_t>(kRopeTableRows * kHeadDim / 2);
  const Tensor rope_table_ = tensor(rope_words_.data(), {kRopeTableRows, kHeadDim / 2});
  TypedHandle<RmsNorm> norm_ = engine_.prepare(RmsNorm{.n = kHidden});
  TypedHandle<RmsNormBackward> norm_backward_ = engine_.prepare(RmsNormBackward{.n = kHidden, .residual = true});
  TypedHandle<Rope> rope_ = engine_.prepare(rope_of(false)), rope_backward_ = engine_.prepare(rope_of(true));
  TypedHandle<AttentionForward> attention_ = engine_.prepare(AttentionForward{s_.heads(), s_.part(kKvHeads), kHeadDim});
  TypedHandle<AttentionBackward> attention_backward_ =
      engine_.prepare(AttentionBackward{s_.heads(), s_.part(kKvHeads), kHeadDim});
  TypedHandle<ActAndMul> gate_ = engine_.prepare(ActAndMul{s_.part(kIntermediate)});
  TypedHandle<ActAndMulBackward> gate_backward_ = engine_.prepare(ActAndMulBackward{s_.part(kIntermediate)});
};

}  // namespace example

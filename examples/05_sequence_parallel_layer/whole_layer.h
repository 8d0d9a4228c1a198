// examples/05_sequence_parallel_layer/whole_layer.h -- the same layer without ranks, to compare with.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "layer.h"
#include "seqtile/ops/linear.h"

namespace example {

/// y = x w^T for w [n, k], plus a residual where there is one; backward dx = dy w, added to what dx has where
/// `adds_dx`.
class Projection {
 public:
  Projection(Engine& engine, int64_t n, int64_t k, bool residual = false, bool adds_dx = false)
      : adds_dx_(adds_dx),
        product_(engine.prepare(Linear{.n = n, .k = k, .residual = residual})),
        dx_(engine.prepare(Linear{.n = k, .k = n, .residual = adds_dx, .weight_layout = WeightLayout::transposed})),
        dw_(engine.prepare(LinearWgrad{.n = n, .k = k})) {}

  void forward(Matrix& x, Matrix& w, Matrix& y, Tensor residual = {}) const {
    product_({.x = x, .w = w, .residual = residual, .y = y});
  }
  void backward(Matrix& dy, Matrix& w, Matrix& x, Matrix& dx, Matrix& dw) const {
    dx_({.x = dy, .w = w, .residual = adds_dx_ ? dx : Tensor{}, .y = dx});
    dw_({.dy = dy, .x = x, .dw = dw});
  }

 private:
  const bool adds_dx_;
  TypedHandle<Linear> product_, dx_;
  TypedHandle<LinearWgrad> dw_;
};

class WholeLayer {
 public:
  explicit WholeLayer(Engine& engine) : engine_(engine) {}

  void forward(Weights& w, Activations& a) const {
    local_.norm(a.x, w.norms.row(0), a.normed);
    q_.forward(a.normed, w.q, a.q);
    k_.forward(a.normed, w.k, a.k);
    v_.forward(a.normed, w.v, a.v);
    local_.attention(a);
    o_.forward(a.context, w.o, a.middle, a.x);
    local_.norm(a.middle, w.norms.row(1), a.middle_normed);
    gate_up_.forward(a.middle_normed, w.gate_up, a.gate_up);
    local_.gate(a);
    down_.forward(a.gated, w.down, a.y, a.middle);
  }
  void backward(Weights& w, Activations& a, Activations& d, Weights& dw) const {
    down_.backward(d.y, w.down, a.gated, d.gated, dw.down);
    local_.gate_backward(a, d);
    gate_up_.backward(d.gate_up, w.gate_up, a.middle_normed, d.middle_normed, dw.gate_up);
    local_.norm_backward(d.middle_normed, a.middle, d.y, w.norms.row(1), d.middle, dw.norms.at(1, 0));
    o_.backward(d.middle, w.o, a.context, d.context, dw.o);
    local_.attention_backward(a, d);
    q_.backward(d.q, w.q, a.normed, d.normed, dw.q);
    k_.backward(d.k, w.k, a.normed, d.normed, dw.k);
    v_.backward(d.v, w.v, a.normed, d.normed, dw.v);
    local_.norm_backward(d.normed, a.x, d.middle, w.norms.row(0), d.x, dw.norms.at(0, 0));
  }

 private:
  static constexpr int64_t kQ = kHeads * kHeadDim, kKv = kKvHeads * kHeadDim;
  Engine& engine_;
  const LocalOps local_{engine_, Share{}};
  const Projection q_{engine_, kQ, kHidden}, k_{engine_, kKv, kHidden, false, true},
      v_{engine_, kKv, kHidden, false, true}, o_{engine_, kHidden, kQ, true},
      gate_up_{engine_, 2 * kIntermediate, kHidden}, down_{engine_, kHidden, kIntermediate, true};
};

}  // namespace example

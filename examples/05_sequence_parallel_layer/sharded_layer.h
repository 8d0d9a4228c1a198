// examples/05_sequence_parallel_layer/sharded_layer.h -- the layer on one of P ranks: 8 launches, and 9 backward.
// SPDX-License-Identifier: Apache-2.0
//
// Between the blocks a rank has its rows of the sequence. The product at the start of a block gathers them, the one at
// its end gives each rank the sums of its own rows; backward they do the opposite. Nothing else is sent, but for the
// gradients of the norms' weights, to which all rows add: by the launch that computes them.
#pragma once
#include "layer.h"
#include "seqtile/error.h"
#include "seqtile/ops/ranks.h"
#include "seqtile/seqpar.h"

namespace example {

using namespace seqtile::kernels::seqpar;

/// The operations that communicate, with this rank's sizes.
struct FusedOps {
  Share s;
  int64_t q = s.heads() * kHeadDim, kv = s.part(kKvHeads) * kHeadDim, wide = s.part(kIntermediate), h = kHidden;
  FusedAllgatherAndLinear qkv{{.n = q, .n2 = kv, .n3 = kv, .k = h}};
  FusedLinearAndReducescatter o{.linear = {.n = h, .k = q, .residual = true}, .norm = true};
  FusedAllgatherAndLinear gate_up{{.n = 2 * wide, .k = h}};
  FusedLinearAndReducescatter down{{.n = h, .k = wide, .residual = true}};
  SequenceParallelTrailingMatmulBackward down_backward{.n = h, .k = wide};
  SequenceParallelLeadingMatmulBackward gate_up_backward{.n = 2 * wide, .k = h};
  SequenceParallelTrailingMatmulBackward o_backward{.n = h, .k = q};
  SequenceParallelLeadingMatmulBackward qkv_backward{.n = q, .n2 = kv, .n3 = kv, .k = h};
  SequenceParallelRmsNormBackward norm_backward{{.n = h, .residual = true}};
};

class ShardedLayer {
 public:
  /// Collective: every rank makes the same handles in the same order.
  ShardedLayer(Engine& engine, Fabric& fabric)
      : ops_{{fabric.rank(), fabric.world_size()}}, engine_(engine), channel_(fabric, kMaxLength) {}

  /// a.x -> a.y; the rest of `a` is for the way back. `length`: rows of all ranks.
  void forward(Weights& w, Activations& a, int64_t length) {
    local_.norm(a.x, w.norms.row(0), a.normed);
    qkv_({.x = a.normed, .w = w.q, .w2 = w.k, .w3 = w.v, .y = a.q, .y2 = a.k, .y3 = a.v}, length);
    local_.attention(a);
    o_({.x = a.context,
        .w = w.o,
        .residual = a.x,
        .y = a.middle,
        .norm_weight = w.norms.row(1),
        .normed = a.middle_normed},
       length);
    gate_up_({.x = a.middle_normed, .w = w.gate_up, .y = a.gate_up}, length);
    local_.gate(a);
    down_({.x = a.gated, .w = w.down, .residual = a.middle, .y = a.y}, length);
    check();
  }

  /// d.y -> d.x and dw, by what forward() has left in `a`.
  void backward(Weights& w, Activations& a, Activations& d, Weights& dw, int64_t length) {
    down_backward_({.dz = d.y, .w = w.down, .u = a.gated, .du = d.gated, .dw = dw.down}, length);
    local_.gate_backward(a, d);
    gate_up_backward_({.dy = d.gate_up, .w = w.gate_up, .x = a.middle_normed, .dx = d.middle_normed, .dw = dw.gate_up},
                      length);
    norm_backward(d.middle_normed, a.middle, d.y, w.norms.row(1), d.middle, dw.norms.at(1, 0), length);
    o_backward_({.dz = d.middle, .w = w.o, .u = a.context, .du = d.context, .dw = dw.o}, length);
    local_.attention_backward(a, d);
    qkv_backward_({.dy = d.q,
                   .dy2 = d.k,
                   .dy3 = d.v,
                   .w = w.q,
                   .w2 = w.k,
                   .w3 = w.v,
                   .x = a.normed,
                   .dx = d.normed,
                   .dw = dw.q,
                   .dw2 = dw.k,
                   .dw3 = dw.v},
                  length);
    norm_backward(d.normed, a.x, d.middle, w.norms.row(0), d.x, dw.norms.at(0, 0), length);
    check();
  }

 private:
  /// `beside`: the gradient that reaches x not through the norm. dweight is that of all rows.
  void norm_backward(Matrix& dy, Matrix& x, Matrix& beside, Tensor weight, Matrix& dx, float* dweight, int64_t length) {
    norm_backward_(
        {.dy = dy, .x = x, .residual = beside, .weight = weight, .dx = dx, .dweight = tensor(dweight, {1, kHidden})},
        length);
  }
  /// Where a peer failed or took another step, results are NaN and the error says why.
  void check() { channel_.check(); }

  const FusedOps ops_;
  Engine& engine_;
  Channel channel_;
  LocalOps local_{engine_, ops_.s};
  FusedHandle<FusedAllgatherAndLinear> qkv_ = engine_.prepare(ops_.qkv, channel_),
                                       gate_up_ = engine_.prepare(ops_.gate_up, channel_);
  FusedHandle<FusedLinearAndReducescatter> o_ = engine_.prepare(ops_.o, channel_),
                                           down_ = engine_.prepare(ops_.down, channel_);
  FusedHandle<SequenceParallelTrailingMatmulBackward> down_backward_{engine_, ops_.down_backward, channel_},
      o_backward_{engine_, ops_.o_backward, channel_};
  FusedHandle<SequenceParallelLeadingMatmulBackward> gate_up_backward_{engine_, ops_.gate_up_backward, channel_},
      qkv_backward_{engine_, ops_.qkv_backward, channel_};
  FusedHandle<SequenceParallelRmsNormBackward> norm_backward_{engine_, ops_.norm_backward, channel_};
};

}  // namespace example

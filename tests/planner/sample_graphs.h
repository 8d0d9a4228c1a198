// tests/planner/sample_graphs.h -- layers with plans that are known or can be found in another way.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tests/planner/graph_maker.h"

namespace seqtile::testing {

/// A norm, two products with an activation between them, and a residual around them.
inline planner::Graph residual_mlp(const planner::Mesh& mesh, int64_t batch, int64_t length, int64_t hidden) {
  GraphMaker maker(mesh, "bf16", 2);
  const int x = maker.placeholder("x", {batch, length, hidden});
  const int up = maker.linear("up", maker.norm("norm", x), 4 * hidden);
  const int down = maker.linear("down", maker.function("silu", "silu", {up}, maker.shape_of(up)), hidden);
  return maker.output(maker.function("add", "add", {x, down}, maker.shape_of(x)));
}

struct Decoder {
  int64_t batch = 2, length = 8192, hidden = 4096, heads = 32, groups = 8, feed_forward = 14336;
};

/// Two layers of a decoder with grouped queries.
inline planner::Graph decoder(const planner::Mesh& mesh, const Decoder& sizes) {
  GraphMaker maker(mesh, "bf16", 2);
  const int64_t b = sizes.batch, s = sizes.length, d = sizes.hidden / sizes.heads;
  int x = maker.placeholder("x", {b, s, sizes.hidden});
  x = maker.norm("norm", x);  // parameters before the layers, so that gradients go through all of them
  for (const std::string layer : {"_0", "_1"}) {
    const int normed = maker.norm("norm_1" + layer, x);
    const auto by_head = [&](const std::string& name, int64_t heads) {
      return maker.function(name + "_heads" + layer, "view", {maker.linear(name + layer, normed, heads * d)},
                            {b, s, heads, d});
    };
    const int q = maker.function("q_rotary" + layer, "rotary", {by_head("q", sizes.heads)}, {b, s, sizes.heads, d}),
              k = maker.function("k_rotary" + layer, "rotary", {by_head("k", sizes.groups)}, {b, s, sizes.groups, d}),
              v = by_head("v", sizes.groups);
    const int mixed = maker.function("attention" + layer, "attention", {q, k, v}, {b, s, sizes.heads, d});
    const int out = maker.linear("out" + layer, maker.function("flat" + layer, "view", {mixed}, {b, s, sizes.hidden}),
                                 sizes.hidden);
    x = maker.function("add_1" + layer, "add", {x, out}, {b, s, sizes.hidden});
    const int up = maker.linear("gate_up" + layer, maker.norm("norm_2" + layer, x), 2 * sizes.feed_forward);
    const int gated = maker.function("gated" + layer, "silu_and_mul", {up}, {b, s, sizes.feed_forward});
    x = maker.function("add_2" + layer, "add", {x, maker.linear("down" + layer, gated, sizes.hidden)},
                       {b, s, sizes.hidden});
  }
  return maker.output(x);
}

}  // namespace seqtile::testing

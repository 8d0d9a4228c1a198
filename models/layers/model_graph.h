// models/layers/model_graph.h -- a decoder model as a graph of operators for the planner.
// SPDX-License-Identifier: Apache-2.0
//
// Activations are [batch, length, hidden]; names and parameters are those of Hugging Face's module tree, so that a plan
// can be applied to it. A layer is a norm, three products of its result, rotary(q), rotary(k), attention(q, k, v) over
// [batch, length, heads, head_dim], a product and a sum; then a norm, one product for gate and up, a gate of both, a
// product and a sum. Norms of heads and of results, biases, feed-forward parts without a gate, multipliers, caps,
// windows and layers without rope are where the model has them.
#pragma once
#include "models/file/model.h"
#include "planner/graph/graph.h"

namespace seqtile::models {

struct ModelGraphOptions {
  planner::Mesh mesh;
  int64_t batch = 1, length = 1;  ///< sequences, tokens of each
  int64_t layers = 0;             ///< 0: the model's
  /// True: logits of all tokens, and a backward pass. False: of each sequence's last token.
  bool is_training = true;
  /// The layers and the norm behind them alone: from hidden states to hidden states of all tokens.
  bool is_block = false;
};

/// Without strategies. Errors: invalid_argument for fewer than one sequence, token or layer, for more layers than the
/// model has, and where a tensor would have more elements than a graph may.
planner::Graph model_graph(const Model& model, const ModelGraphOptions& options);

}  // namespace seqtile::models

// models/layers/model_graph.h -- a decoder model as a graph of operators for the planner.
// SPDX-License-Identifier: Apache-2.0
//
// Activations are [batch, length, hidden]. Names and parameters are those of Hugging Face's module tree, so that a plan
// can be applied to it. A layer is a norm; three products of its result; rotary(q), rotary(k) and attention(q, k, v)
// over [batch, length, heads, head_dim]; a product and a sum; then a norm, one product for gate and up, their gate, a
// product and a sum. Norms of heads and of results, biases, feed-forward parts without a gate, multipliers, caps,
// windows and layers without rope occur as in the model.
#pragma once
#include "planner/graph/graph.h"
#include "seqtile/model.h"

namespace seqtile::models {

struct ModelGraphOptions {
  planner::Mesh mesh;
  int64_t batch = 1, length = 1;  ///< sequences, tokens of each
  int64_t layers = 0;             ///< 0: all layers of the model
  /// True: logits of all tokens, and a backward pass. False: logits of each sequence's last token.
  bool is_training = true;
  /// Only the layers and the last norm: from hidden states to hidden states of all tokens.
  bool is_block = false;
};

/// The graph, without strategies.
/// Errors: invalid_argument for fewer than one sequence, token or layer, for more layers than the model has, and for
/// tensors with more elements than a graph allows.
planner::Graph model_graph(const Model& model, const ModelGraphOptions& options);

}  // namespace seqtile::models

// models/file/model.h -- a decoder model: its sizes, and the computation of its layers.
// SPDX-License-Identifier: Apache-2.0
//
// Some models store fused weights (Phi3's qkv_proj and gate_up_proj). The parts are row slices of one tensor, so the
// operations are the same as with separate weights.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "jit/base/dtype.h"
#include "models/file/rope_form.h"

namespace seqtile::models {

/// The features in which the layers of one model can differ.
struct LayerKind {
  std::string name;    ///< "" if all layers are alike; else "full" or "window", plus "_no_rope" without rope
  int64_t window = 0;  ///< keys that a query sees, including its own; 0: all keys before it
  bool has_rope = true;
  RopeForm rope;  ///< only where has_rope

  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

enum class Norm { rms, layer };
/// The place of norms around attention and feed-forward part: on the input (llama), on the result (olmo2), on both
/// (gemma2).
enum class NormPlace { before, after, both };
/// The norm of queries and keys before rope: a weight [head_dim] for each head (qwen3), or one weight for all heads of
/// a row (olmo2).
enum class HeadNorm { none, each_head, all_heads };

struct Model {
  std::string type;  ///< for example "llama"
  DType dtype = DType::f32;
  int64_t hidden_size = 0, intermediate_size = 0, layers = 0, vocab_size = 0, max_positions = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::string activation;  ///< silu, gelu or gelu_tanh
  bool is_gated = true;    ///< false: down(activation(up(x))), as in StarCoder2
  Norm norm = Norm::rms;
  NormPlace norm_place = NormPlace::before;
  HeadNorm head_norm = HeadNorm::none;
  double norm_eps = 0;
  double norm_weight_offset = 0;  ///< added to the weights of all norms; Gemma: 1
  bool norm_bias = false, qkv_bias = false, output_bias = false, mlp_bias = false, head_bias = false;
  bool is_tied = false;                                              ///< lm_head has the weight of the embedding
  double embedding_scale = 1, residual_scale = 1, logits_scale = 1;  ///< factors, of Gemma and Granite
  double attention_scale = 0;                                        ///< 0: 1 / sqrt(head_dim)
  double soft_cap = 0, logits_soft_cap = 0;                          ///< of attention, of logits; 0: none
  std::vector<LayerKind> kinds;                                      ///< distinct, ordered by their first layers
  std::vector<int> kind_of_layer;                                    ///< [layers], indexes `kinds`

  const LayerKind& kind_of(int64_t layer) const {
    return kinds[static_cast<size_t>(kind_of_layer[static_cast<size_t>(layer)])];
  }
  /// Makes all layers alike. Requires: `layers` is set.
  void set_kind(LayerKind kind) {
    kinds = {std::move(kind)};
    kind_of_layer.assign(static_cast<size_t>(layers), 0);
  }
};

}  // namespace seqtile::models

// models/model.h -- the operations of a decoder model, from its Hugging Face config.json.
// SPDX-License-Identifier: Apache-2.0
//
// Read are the fields of llama, mistral, qwen2, gemma2 and phi3. Weights that a model keeps fused (Phi3's qkv_proj and
// gate_up_proj) are row slices of one tensor, so the operations are the same as with separate ones.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/tuner.h"
#include "kernels/rope.h"

namespace seqtile::models {

struct Model {
  std::string type;  ///< "llama", ...
  DType dtype = DType::f32;
  int64_t hidden_size = 0, intermediate_size = 0, layers = 0, vocab_size = 0, max_positions = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::string activation;  ///< of the gate: silu, gelu or gelu_tanh
  double norm_eps = 0;
  double norm_weight_offset = 0, embedding_scale = 1;  ///< Gemma: 1, sqrt(hidden_size)
  bool qkv_bias = false, output_bias = false;
  std::vector<int64_t> windows;              ///< attention windows in use, 0: none; Gemma2 alternates between two
  double soft_cap = 0, attention_scale = 0;  ///< 0: none, 1 / sqrt(head_dim)
  kernels::Rope rope;                                 ///< heads, dimensions and frequencies
};

/// `name` is the file's name for messages. Errors: invalid_argument, one line naming the field, for a missing or wrong
/// field; unsupported for another architecture, rope scaling or activation.
Model parse_model(std::string_view json, const std::string& name);
/// Errors: as parse_model(); io when the file cannot be read.
Model load_model(const std::string& path);

struct ModelLengths {
  int64_t lo = 1, hi = 1;        ///< tokens of a call
  int64_t kv_lo = 1, kv_hi = 0;  ///< keys of a decode step; kv_hi 0: the model's max_position_embeddings
};

/// Rows of a call for which logits are computed: at most one a sequence of the batch.
constexpr int64_t kMaxLogitRows = 256;

/// Every distinct operation of the model's forward pass with the lengths it must cover. Labels: embedding, input_norm
/// (the first layer's), residual_norm (all others), qkv_proj, rope, attention_prefill, attention_extend,
/// attention_decode (with suffix _window where a model has both kinds), o_proj, gate_up_proj, down_proj, lm_head.
std::vector<autotune::TuneRequest> model_operations(const Model& model, const ModelLengths& lengths, DType dtype,
                                                    int threads);

}  // namespace seqtile::models

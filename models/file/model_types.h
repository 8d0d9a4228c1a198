// models/file/model_types.h -- the types of models that are read, and what a file of the type leaves out.
// SPDX-License-Identifier: Apache-2.0
//
// Values are facts about transformers' configuration classes (5.24; where 4 differed, a comment says so). A row is read
// by models/file/model_file.cpp and models/file/layer_reader.cpp.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "models/file/model.h"

namespace seqtile::models {

/// The layers that see a window of keys only.
enum class Windows {
  none,
  all,        ///< all, where sliding_window is not null (mistral)
  even,       ///< layers 0, 2, ... (gemma2)
  pattern,    ///< all but each sliding_window_pattern-th (gemma3: 6, olmo3: 4)
  last,       ///< those from max_window_layers on, where use_sliding_window (qwen2)
  with_rope,  ///< no window in layers with rope, one in the others where use_sliding_window (smollm3)
};

/// Biases of the products. A field that is not read must not ask for others.
enum class Biases {
  none,
  attention,          ///< attention_bias: q, k, v and o (gemma2)
  attention_and_mlp,  ///< also mlp_bias (llama)
  qkv,                ///< q, k and v always (qwen2)
  all,                ///< use_bias: all but the head (starcoder2)
  bias,               ///< bias: q, k, v and o (internlm2)
};

struct ModelType {
  std::string_view name, config_class;
  // Defaults.
  int64_t vocab = 32000, hidden = 4096, intermediate = 11008, layers = 32, heads = 32;
  int64_t kv_heads = 0;  ///< 0: as many as heads
  int64_t head_dim = 0;  ///< 0: hidden size / heads
  int64_t positions = 2048;
  double eps = 1e-6;
  std::string_view activation = "silu";
  bool is_tied = false;
  double theta = 10000;
  int64_t window = 0;  ///< sliding_window; 0: null
  int64_t pattern = 0;
  // The computation of the class.
  std::string_view eps_field = "rms_norm_eps", activation_field = "hidden_act";
  Windows windows = Windows::none;
  Biases biases = Biases::none;
  Norm norm = Norm::rms;
  NormPlace norm_place = NormPlace::before;
  HeadNorm head_norm = HeadNorm::none;
  bool is_gated = true, is_partly_rotated = false;
  bool has_two_ropes = false;                ///< rope_scaling is of the layers without a window (gemma3, olmo3)
  bool has_own_code = false;                 ///< written for modeling_NAME.py beside the file, which auto_map names
  bool is_gemma = false;                     ///< norm weights + 1, embeddings times the root of the hidden size
  double soft_cap = 0, logits_soft_cap = 0;  ///< defaults of gemma2's fields
  int64_t original_positions = 0;            ///< default of original_max_position_embeddings beside the rope fields
};

std::span<const ModelType> model_types();
/// Null where files of the type are not read.
const ModelType* find_model_type(std::string_view name);
/// The part that the library lacks for a type that is known and not read; empty for unknown ones.
std::string_view missing_for_type(std::string_view name);
/// The type of a text model that the outer type has where `text_config` does not say it; empty: it has to.
std::string_view text_type_of(std::string_view outer_type);

}  // namespace seqtile::models

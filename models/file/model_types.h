// models/file/model_types.h -- the types of models that can be read, and the defaults of their files.
// SPDX-License-Identifier: Apache-2.0
//
// The values are facts about the configuration classes of transformers 5.24; a comment marks differences from 4.
// models/file/model_file.cpp and models/file/layer_reader.cpp read the rows.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "seqtile/model.h"

namespace seqtile::models {

/// The layers that see only a window of keys.
enum class Windows {
  none,
  all,        ///< all layers, if sliding_window is not null (mistral)
  even,       ///< layers 0, 2, ... (gemma2)
  pattern,    ///< all but every sliding_window_pattern-th layer (gemma3: 6, olmo3: 4)
  last,       ///< layers from max_window_layers on, if use_sliding_window is true (qwen2)
  with_rope,  ///< only layers without rope, if use_sliding_window is true (smollm3)
};

/// The products that have biases, and the field that switches them on. Other fields must not ask for other biases.
enum class Biases {
  none,
  attention,          ///< attention_bias: q, k, v and o (gemma2)
  attention_and_mlp,  ///< as `attention`, and mlp_bias (llama)
  qkv,                ///< q, k and v, always (qwen2)
  all,                ///< use_bias: all products but the head (starcoder2)
  bias,               ///< bias: q, k, v and o (internlm2)
};

struct ModelType {
  std::string_view name, config_class;
  // Defaults of the file's fields.
  int64_t vocab = 32000, hidden = 4096, intermediate = 11008, layers = 32, heads = 32;
  int64_t kv_heads = 0;  ///< 0: equal to heads
  int64_t head_dim = 0;  ///< 0: hidden / heads
  int64_t positions = 2048;
  double eps = 1e-6;
  std::string_view activation = "silu";
  bool is_tied = false;
  double theta = 10000;
  int64_t window = 0;  ///< of sliding_window; 0: null
  int64_t pattern = 0;
  // The computation, as in the class.
  std::string_view eps_field = "rms_norm_eps", activation_field = "hidden_act";
  Windows windows = Windows::none;
  Biases biases = Biases::none;
  Norm norm = Norm::rms;
  NormPlace norm_place = NormPlace::before;
  HeadNorm head_norm = HeadNorm::none;
  bool is_gated = true, is_partly_rotated = false;
  bool has_two_ropes = false;  ///< rope_scaling applies to layers without a window (gemma3, olmo3)
  bool has_own_code = false;   ///< auto_map names a modeling_NAME.py beside the file, which computes the type
  bool is_gemma = false;       ///< norm weights + 1, embeddings times the root of hidden_size
  double soft_cap = 0, logits_soft_cap = 0;  ///< defaults of gemma2's fields
  int64_t original_positions = 0;            ///< default of original_max_position_embeddings outside the rope object
};

std::span<const ModelType> model_types();
/// The type called `name`; null if files of that type cannot be read.
const ModelType* find_model_type(std::string_view name);
/// The feature that the library lacks for a known type that it cannot read. Empty for unknown types.
std::string_view missing_for_type(std::string_view name);
/// The type of the text model in a file of `outer_type`, if `text_config` names none. Empty: `text_config` must name
/// it.
std::string_view text_type_of(std::string_view outer_type);

}  // namespace seqtile::models

// models/file/model_types.cpp -- see model_types.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/file/model_types.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace seqtile::models {
namespace {

constexpr ModelType kTypes[] = {
    {.name = "llama", .config_class = "LlamaConfig", .biases = Biases::attention_and_mlp},
    {.name = "mistral",
     .config_class = "MistralConfig",
     .intermediate = 14336,
     .kv_heads = 8,
     .positions = 131072,
     .window = 4096,
     .windows = Windows::all},
    {.name = "ministral",
     .config_class = "MinistralConfig",
     .intermediate = 14336,
     .kv_heads = 8,
     .positions = 131072,
     .window = 4096,
     .windows = Windows::all},
    {.name = "qwen2",
     .config_class = "Qwen2Config",
     .vocab = 151936,
     .intermediate = 22016,
     .kv_heads = 32,
     .positions = 32768,
     .window = 4096,
     .windows = Windows::last,
     .biases = Biases::qkv},
    {.name = "qwen3",
     .config_class = "Qwen3Config",
     .vocab = 151936,
     .intermediate = 22016,
     .kv_heads = 32,
     .head_dim = 128,
     .positions = 32768,
     .window = 4096,
     .windows = Windows::last,
     .biases = Biases::attention,
     .head_norm = HeadNorm::each_head},
    {.name = "gemma",
     .config_class = "GemmaConfig",
     .vocab = 256000,
     .hidden = 3072,
     .intermediate = 24576,
     .layers = 28,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 256,
     .positions = 8192,
     .activation = "gelu_pytorch_tanh",
     .is_tied = true,
     .biases = Biases::attention,
     .is_gemma = true},
    {.name = "gemma2",
     .config_class = "Gemma2Config",
     .vocab = 256000,
     .hidden = 2304,
     .intermediate = 9216,
     .layers = 26,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .positions = 8192,
     .activation = "gelu_pytorch_tanh",
     .is_tied = true,
     .window = 4096,
     .activation_field = "hidden_activation",
     .windows = Windows::even,
     .biases = Biases::attention,
     .norm_place = NormPlace::both,
     .is_gemma = true,
     .soft_cap = 50,
     .logits_soft_cap = 30},
    {.name = "gemma3_text",
     .config_class = "Gemma3TextConfig",
     .vocab = 262208,
     .hidden = 2304,
     .intermediate = 9216,
     .layers = 26,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .positions = 131072,
     .activation = "gelu_pytorch_tanh",
     .is_tied = true,
     .theta = 1000000,
     .window = 4096,
     .pattern = 6,
     .activation_field = "hidden_activation",
     .windows = Windows::pattern,
     .biases = Biases::attention,
     .norm_place = NormPlace::both,
     .head_norm = HeadNorm::each_head,
     .has_two_ropes = true,
     .is_gemma = true},
    {.name = "olmo2",
     .config_class = "Olmo2Config",
     .vocab = 50304,
     .eps = 1e-5,
     .biases = Biases::attention,
     .norm_place = NormPlace::after,
     .head_norm = HeadNorm::all_heads},
    {.name = "olmo3",
     .config_class = "Olmo3Config",
     .vocab = 50304,
     .eps = 1e-5,
     .theta = 500000,
     .window = 4096,
     .pattern = 4,
     .windows = Windows::pattern,
     .biases = Biases::attention,
     .norm_place = NormPlace::after,
     .head_norm = HeadNorm::all_heads,
     .has_two_ropes = true},
    {.name = "granite", .config_class = "GraniteConfig", .biases = Biases::attention_and_mlp},
    {.name = "smollm3",
     .config_class = "SmolLM3Config",
     .vocab = 128256,
     .hidden = 2048,
     .layers = 36,
     .heads = 16,
     .kv_heads = 4,
     .positions = 32768,
     .is_tied = true,
     .theta = 2000000,
     .windows = Windows::with_rope,
     .biases = Biases::attention_and_mlp},
    {.name = "phi3",
     .config_class = "Phi3Config",
     .vocab = 32064,
     .hidden = 3072,
     .intermediate = 8192,
     .positions = 4096,
     .eps = 1e-5,
     .windows = Windows::all,
     .is_partly_rotated = true,
     .has_own_code = true,
     .original_positions = 4096},
    {.name = "starcoder2",
     .config_class = "Starcoder2Config",
     .vocab = 49152,
     .hidden = 3072,
     .intermediate = 12288,
     .layers = 30,
     .heads = 24,
     .kv_heads = 2,
     .positions = 4096,
     .eps = 1e-5,
     .activation = "gelu_pytorch_tanh",
     .is_tied = true,
     .eps_field = "norm_epsilon",
     .windows = Windows::all,
     .biases = Biases::all,
     .norm = Norm::layer,
     .is_gated = false},
    {.name = "exaone",
     .config_class = "ExaoneConfig",
     .vocab = 102400,
     .intermediate = 14336,
     .kv_heads = 8,
     .positions = 4096,
     .eps = 1e-5,
     .theta = 500000,
     .biases = Biases::attention_and_mlp,
     .has_own_code = true},
    {.name = "internlm2",
     .config_class = "InternLM2Config",
     .vocab = 103168,
     .biases = Biases::bias,
     .has_own_code = true},
};

/// A feature, and the types that need it, with a space before and after each type.
struct Missing {
  std::string_view types, what;
};

constexpr Missing kMissing[] = {
    {" mixtral qwen2_moe qwen3_moe olmoe flex_olmo granitemoe granitemoeshared phimoe gpt_oss llama4 llama4_text "
     "glm4_moe "
     "dbrx jetmoe hunyuan_v1_moe ernie4_5_moe minimax minimax_m2 deepseek bailing_moe grok-1 arctic ",
     "a mixture of experts; give the config.json of a dense model"},
    {" deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 longcat_flash ",
     "attention over a latent cache and a mixture of experts; give the config.json of a dense model"},
    {" minicpm3 ", "attention over a latent cache; give a model that keeps keys and values"},
    {" mamba mamba2 falcon_mamba falcon_h1 jamba bamba zamba zamba2 rwkv nemotron_h recurrent_gemma granitemoehybrid "
     "qwen3_next qwen3_5_text kimi_linear lfm2 xlstm olmo_hybrid ",
     "layers with a state (Mamba, linear attention); give a model with attention in all layers"},
    {" nemotron ", "layer norms of weight + 1 and a squared ReLU in place of a gate; give a model with silu or gelu"},
    {" arcee ", "a squared ReLU in place of a gate; give a model with silu or gelu"},
    {" cohere cohere2 gpt_neox gptj phi falcon codegen stablelm ",
     "attention and feed-forward part side by side; give a model that has one after the other"},
    {" gpt2 gpt_neo gpt_bigcode opt bloom mpt ", "positions that are not rotations; give a model with rope"},
    {" mllama mllama_text_model ", "cross-attention to pictures; give a model of text"},
    {" gemma3n gemma3n_text gemma4 gemma4_text ", "embeddings by layer and shared caches; give a gemma3 model"},
    {" olmo ", "norms without weights; give an olmo2 model"},
    {" glm glm4 ", "rotations of neighbouring elements; give another model"},
    {" exaone4 ", "layers without rope among those with windows; give an exaone model"},
    {" ministral3 ", "attention that is scaled by position (llama_4_scaling_beta); give a mistral model"},
    {" hunyuan_v1_dense ", "norms of heads behind rope; give a qwen3 model"},
    {" qwen2_vl qwen2_5_vl qwen2_vl_text qwen2_5_vl_text qwen3_vl qwen3_vl_text ",
     "rotations by three axes of position; give a model of text"},
    {" bitnet ", "products of ternary weights; give a model of 16- or 32-bit weights"},
    {" bert roberta xlm-roberta distilbert deberta-v2 modernbert t5 mt5 bart mbart whisper marian t5gemma vit clip "
     "siglip ",
     "an encoder; give a decoder of text"}};

constexpr Missing kTextTypes[] = {{" gemma3 ", "gemma3_text"},
                                  {" llava llava_next video_llava vipllava voxtral idefics3 smolvlm ", "llama"},
                                  {" mistral3 ", "mistral"},
                                  {" paligemma ", "gemma"},
                                  {" internvl qwen2_audio llava_onevision ", "qwen2"}};

template <size_t n>
std::string_view find_in(const Missing (&table)[n], std::string_view type) {
  const std::string word = " " + std::string(type) + " ";
  const auto found = std::ranges::find_if(
      table, [&](const Missing& row) { return !type.empty() && row.types.find(word) != std::string_view::npos; });
  return found == std::end(table) ? std::string_view() : found->what;
}

}  // namespace

std::span<const ModelType> model_types() { return kTypes; }

const ModelType* find_model_type(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &ModelType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

std::string_view missing_for_type(std::string_view name) { return find_in(kMissing, name); }

std::string_view text_type_of(std::string_view outer_type) { return find_in(kTextTypes, outer_type); }

}  // namespace seqtile::models

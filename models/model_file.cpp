// models/model_file.cpp -- see model_file.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "jit/error.h"
#include "kernels/row_kernel.h"

namespace seqtile::models {
using namespace kernels;

namespace {

using Json = nlohmann::json;

constexpr int64_t kMostLayers = 1000;  ///< the deepest models have some hundred
constexpr std::array<std::string_view, 5> kTypes = {"llama", "mistral", "qwen2", "gemma2", "phi3"};

/// Typed access to the fields of one JSON object; null counts as absent, as in Hugging Face's own reader.
class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  [[noreturn]] void fail(ErrorCode code, const std::string& name, const std::string& reason) const {
    // Arrays and objects are only named: to write them takes as much stack as they are deep.
    std::string value;
    if (has(name))
      value = " is " +
              (json_[name].is_structured() ? std::string("an ") + json_[name].type_name() : json_[name].dump()) + ",";
    throw Error(code, fmt::format("{}: field {}{} {}", where_, name, value, reason));
  }
  bool has(const std::string& name) const { return json_.contains(name) && !json_[name].is_null(); }
  int64_t size(const std::string& name, int64_t hi) const {
    if (!has(name)) fail(ErrorCode::invalid_argument, name, "is missing; a model's config.json has it");
    const Json& value = json_[name];
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > hi)
      fail(ErrorCode::invalid_argument, name, fmt::format("must be a whole number of 1..{}", hi));
    return value.get<int64_t>();
  }
  int64_t size(const std::string& name, int64_t hi, int64_t fallback) const {
    return has(name) ? size(name, hi) : fallback;
  }
  int64_t count(const std::string& name) const {
    if (!has(name)) return 0;
    const Json& value = json_[name];
    if (!value.is_number_integer() || value.get<int64_t>() < 0)
      fail(ErrorCode::invalid_argument, name, "must be a whole number of at least 0");
    return value.get<int64_t>();
  }
  double number(const std::string& name, double fallback) const {
    if (!has(name)) return fallback;
    if (!json_[name].is_number() || !(json_[name].get<double>() >= 0))
      fail(ErrorCode::invalid_argument, name, "must be a number of at least 0");
    return json_[name].get<double>();
  }
  bool flag(const std::string& name, bool fallback) const {
    if (!has(name)) return fallback;
    if (!json_[name].is_boolean()) fail(ErrorCode::invalid_argument, name, "must be true or false");
    return json_[name].get<bool>();
  }
  std::string text(const std::string& name, const std::string& fallback) const {
    if (!has(name)) return fallback;
    if (!json_[name].is_string()) fail(ErrorCode::invalid_argument, name, "must be a text");
    return json_[name].get<std::string>();
  }
  ConfigReader object(const std::string& name) const {
    if (!json_[name].is_object()) fail(ErrorCode::invalid_argument, name, "must be an object or null");
    return ConfigReader(json_[name], where_ + ": " + name);
  }

 private:
  const Json& json_;
  std::string where_;
};

std::string read_type(const ConfigReader& config) {
  const std::string type = config.text("model_type", "");
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end())
    config.fail(config.has("model_type") ? ErrorCode::unsupported : ErrorCode::invalid_argument, "model_type",
                fmt::format("must be one of {}", fmt::join(kTypes, ", ")));
  return type;
}

DType read_dtype(const ConfigReader& config) {
  const std::string field = config.has("torch_dtype") ? "torch_dtype" : "dtype";  // newer files: "dtype"
  const auto dtype = parse_dtype(config.text(field, "float32"));
  if (!dtype || (*dtype != DType::f32 && *dtype != DType::bf16 && *dtype != DType::f16))
    config.fail(ErrorCode::invalid_argument, field, "must be float32, bfloat16 or float16");
  return *dtype;
}

/// By any of the names that architectures have for it.
void refuse_experts(const ConfigReader& config) {
  for (const char* field : {"num_experts", "num_local_experts", "n_routed_experts"})
    if (config.count(field) > 1)
      config.fail(ErrorCode::unsupported, field,
                  "asks for a mixture of experts, which is not modelled; give the config.json of a dense model");
}

std::string read_activation(const ConfigReader& config) {
  const std::string field = config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string name = config.text(field, "");
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu") return "gelu";
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return "gelu_tanh";
  config.fail(config.has(field) ? ErrorCode::unsupported : ErrorCode::invalid_argument, field,
              "must be silu, gelu or gelu_pytorch_tanh");
}

RopeForm read_rope(const ConfigReader& config, const Model& model) {
  RopeForm rope;
  const double partial = config.number("partial_rotary_factor", 1);
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(model.head_dim) * partial);
  if (rope.rotary_dim < 2 || rope.rotary_dim > model.head_dim || rope.rotary_dim % 2)
    config.fail(ErrorCode::invalid_argument, "partial_rotary_factor", "must leave an even number of rotated elements");
  rope.theta = config.number("rope_theta", 10000);
  if (rope.theta < 1) config.fail(ErrorCode::invalid_argument, "rope_theta", "must be at least 1");
  if (!config.has("rope_scaling")) return rope;
  const ConfigReader scaling = config.object("rope_scaling");
  const std::string field = scaling.has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.text(field, "");
  if (type == "default") return rope;
  if (type != "llama3")
    scaling.fail(scaling.has(field) ? ErrorCode::unsupported : ErrorCode::invalid_argument, field,
                 "must be llama3 or default; other scalings are not served");
  rope.type = type;
  for (const char* name : {"factor", "low_freq_factor", "high_freq_factor"})
    if (!scaling.has(name)) scaling.fail(ErrorCode::invalid_argument, name, "is missing; llama3 scaling needs it");
  rope.factor = scaling.number("factor", 0);
  rope.low_freq_factor = scaling.number("low_freq_factor", 0);
  rope.high_freq_factor = scaling.number("high_freq_factor", 0);
  rope.original_max_positions = scaling.size("original_max_position_embeddings", int64_t{1} << 30);
  if (rope.factor < 1) scaling.fail(ErrorCode::invalid_argument, "factor", "must be at least 1");
  if (rope.low_freq_factor <= 0) scaling.fail(ErrorCode::invalid_argument, "low_freq_factor", "must be above 0");
  if (rope.high_freq_factor <= rope.low_freq_factor)
    scaling.fail(ErrorCode::invalid_argument, "high_freq_factor", "must be above low_freq_factor");
  return rope;
}

/// Gemma2 has a window in every other layer, Qwen2 behind the first max_window_layers, others everywhere.
std::vector<int64_t> read_windows(const ConfigReader& config, const Model& model) {
  const bool is_used = model.type == "qwen2" ? config.flag("use_sliding_window", false) : model.type != "llama";
  const int64_t window = is_used ? config.size("sliding_window", int64_t{1} << 30, 0) : 0;
  std::vector<int64_t> windows(static_cast<size_t>(model.layers), window);
  if (model.type == "gemma2")
    for (size_t layer = 1; layer < windows.size(); layer += 2) windows[layer] = 0;
  if (model.type == "qwen2")
    std::fill_n(windows.begin(), std::min(model.layers, config.size("max_window_layers", kMostLayers, 28)), 0);
  return windows;
}

void read_kinds(const ConfigReader& config, Model& model) {
  const RopeForm rope = read_rope(config, model);
  for (const int64_t window : read_windows(config, model)) {
    const LayerKind kind{.name = window ? "window" : "full", .window = window, .rope = rope};
    const auto at = std::find(model.kinds.begin(), model.kinds.end(), kind);
    model.kind_of_layer.push_back(static_cast<int>(at - model.kinds.begin()));
    if (at == model.kinds.end()) model.kinds.push_back(kind);
  }
  if (model.kinds.size() == 1) model.kinds.front().name.clear();
}

void read_heads(const ConfigReader& config, Model& model) {
  model.heads = config.size("num_attention_heads", kMaxHeads);
  model.kv_heads = config.size("num_key_value_heads", kMaxHeads, model.heads);
  if (model.heads % model.kv_heads)
    config.fail(ErrorCode::invalid_argument, "num_key_value_heads",
                fmt::format("must divide num_attention_heads = {}", model.heads));
  if (!config.has("head_dim") && model.hidden_size % model.heads)
    config.fail(ErrorCode::invalid_argument, "hidden_size",
                fmt::format("must be a multiple of num_attention_heads = {} where head_dim is absent", model.heads));
  model.head_dim = config.size("head_dim", 512, model.hidden_size / model.heads);
  if (model.head_dim % 8)
    config.fail(ErrorCode::unsupported, "head_dim",
                fmt::format("gives heads of {}, must be a multiple of 8", model.head_dim));
}

}  // namespace

Model parse_model(std::string_view text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object())
    throw Error(ErrorCode::invalid_argument, name + ": not a JSON object; give a Hugging Face config.json");
  const ConfigReader config(json, name);
  Model model;
  model.type = read_type(config);
  refuse_experts(config);
  model.dtype = read_dtype(config);
  model.hidden_size = config.size("hidden_size", kMaxFeatures);
  model.intermediate_size = config.size("intermediate_size", kMaxFeatures);
  model.layers = config.size("num_hidden_layers", kMostLayers);
  model.vocab_size = config.size("vocab_size", kMaxFeatures);
  model.max_positions = config.size("max_position_embeddings", int64_t{1} << 30);
  read_heads(config, model);
  model.activation = read_activation(config);
  model.norm_eps = config.number("rms_norm_eps", 1e-6);
  const bool is_gemma = model.type == "gemma2";
  model.norm_place = is_gemma ? NormPlace::both : NormPlace::before;
  model.norm_weight_offset = is_gemma ? 1 : 0;
  model.embedding_scale = is_gemma ? std::sqrt(static_cast<double>(model.hidden_size)) : 1;
  const bool attention_bias = config.flag("attention_bias", false);
  model.qkv_bias = model.type == "qwen2" || attention_bias;
  model.output_bias = model.type != "qwen2" && attention_bias;
  model.soft_cap = is_gemma ? config.number("attn_logit_softcapping", 0) : 0;
  if (is_gemma) {
    const double scalar = config.number("query_pre_attn_scalar", static_cast<double>(model.head_dim));
    if (scalar <= 0) config.fail(ErrorCode::invalid_argument, "query_pre_attn_scalar", "must be above 0");
    model.attention_scale = 1 / std::sqrt(scalar);
  }
  read_kinds(config, model);
  return model;
}

Model load_model(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && text.empty())
    throw Error(ErrorCode::io, path + ": cannot be read; give the path of a Hugging Face config.json");
  return parse_model(text, path);
}

}  // namespace seqtile::models

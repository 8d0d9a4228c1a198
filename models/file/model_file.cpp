// models/file/model_file.cpp -- see model_file.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/file/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "autotune/text/json_text.h"
#include "autotune/text/text_kind.h"
#include "jit/base/nearest_word.h"
#include "models/file/class_names.h"
#include "models/file/field_rules.h"
#include "models/file/layer_reader.h"
#include "models/file/model_types.h"
#include "models/file/other_files.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"

namespace seqtile::models {
namespace {

constexpr uintmax_t kMostBytes = 64 << 20;

std::vector<std::string_view> type_names() {
  std::vector<std::string_view> names;
  for (const ModelType& type : model_types()) names.push_back(type.name);
  return names;
}

const ModelType& type_of(const ConfigReader& config, std::string_view fallback) {
  if (!config.has("model_type") && fallback.empty())
    config.refuse("model_type",
                  fmt::format("{}must be one of {}", config.contains("model_type") ? "" : "is missing; it ",
                              fmt::join(type_names(), ", ")));
  const std::string name = config.text("model_type", std::string(fallback));
  if (const ModelType* type = find_model_type(name)) return *type;
  if (!text_type_of(name).empty()) config.refuse("model_type", "whose text model is in text_config, which is missing");
  if (const std::string_view missing = missing_for_type(name); !missing.empty())
    config.fail(ErrorCode::unsupported, "model_type", fmt::format("which needs {}", missing));
  config.fail(ErrorCode::unsupported, "model_type",
              fmt::format("must be one of {}{}", fmt::join(type_names(), ", "), did_you_mean(name, type_names())));
}

void read_sizes(const ConfigReader& config, const ModelType& type, Model& model) {
  model.hidden_size = config.size("hidden_size", kernels::kMaxFeatures, type.hidden);
  model.intermediate_size = config.size("intermediate_size", kernels::kMaxFeatures, type.intermediate);
  model.layers = config.size("num_hidden_layers", kMostLayers, type.layers);
  model.vocab_size = config.size("vocab_size", kernels::kMaxFeatures, type.vocab);
  model.max_positions = config.size("max_position_embeddings", kMostPositions, type.positions);
}

void read_heads(const ConfigReader& config, const ModelType& type, Model& model) {
  model.heads = config.size("num_attention_heads", kernels::kMaxHeads, type.heads);
  const auto kv_heads = type.kv_heads ? std::optional(type.kv_heads) : std::nullopt;
  model.kv_heads = config.optional_size("num_key_value_heads", kernels::kMaxHeads, kv_heads).value_or(model.heads);
  if (model.heads % model.kv_heads)
    config.refuse("num_key_value_heads",
                  fmt::format("gives {} KV heads, must divide num_attention_heads = {}", model.kv_heads, model.heads));
  const bool is_given = config.has("head_dim") || (!config.contains("head_dim") && type.head_dim);
  if (!is_given && model.hidden_size % model.heads)
    config.refuse("hidden_size",
                  fmt::format("must be a multiple of num_attention_heads = {} where head_dim is absent", model.heads));
  const int64_t own = model.hidden_size / model.heads;
  config.use("head_dim");
  model.head_dim = !is_given && config.contains("head_dim")
                       ? own
                       : config.size("head_dim", 512, type.head_dim ? type.head_dim : own);
  if (model.head_dim % 8 || model.head_dim > 512)
    config.fail(ErrorCode::unsupported, config.has("head_dim") ? "head_dim" : "hidden_size",
                fmt::format("gives heads of {}, must give a multiple of 8 and at most 512", model.head_dim));
}

std::string read_activation(const ConfigReader& config, const ModelType& type) {
  std::string field(type.activation_field);
  if (type.is_gemma) config.use("hidden_act"), config.use("hidden_activation");  // the class uses one of the two
  if (type.name == "gemma" && config.has("hidden_activation")) field = "hidden_activation";
  const std::string name = config.text(field, std::string(type.activation));
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu" || name == "gelu_python") return type.name == "gemma" ? "gelu_tanh" : "gelu";
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") return "gelu_tanh";
  config.fail(ErrorCode::unsupported, field,
              "must be silu, gelu or gelu_pytorch_tanh" + did_you_mean(name, {"silu", "gelu", "gelu_pytorch_tanh"}));
}

void read_norms(const ConfigReader& config, const ModelType& type, Model& model) {
  model.norm = type.norm, model.norm_place = type.norm_place, model.head_norm = type.head_norm;
  model.norm_bias = type.norm == Norm::layer;
  model.norm_weight_offset = type.is_gemma ? 1 : 0;
  model.norm_eps = config.number(std::string(type.eps_field), 0, 1, type.eps);
  for (const char* field : {"rms_norm_unit_offset", "rms_norm_add_unit_offset"}) {
    config.use(field);
    if (config.has(field) && config.flag(field, false) != type.is_gemma)
      config.fail(ErrorCode::unsupported, field,
                  fmt::format("but norms of type {} {} 1 to their weights; give a model that agrees", type.name,
                              type.is_gemma ? "add" : "do not add"));
  }
  if (type.name != "starcoder2") return;
  for (const auto& [field, only] : {std::pair("norm_type", "layer_norm"), std::pair("mlp_type", "default")}) {
    config.use(field);
    if (config.has(field) && config.json()[field] != only)
      config.fail(ErrorCode::unsupported, field, fmt::format("must be \"{}\"", only));
  }
}

void read_biases(const ConfigReader& config, const ModelType& type, Model& model) {
  switch (type.biases) {
    case Biases::none: break;
    case Biases::qkv:
      model.qkv_bias = true;
      if (config.has("attention_bias") && !config.flag("attention_bias", true))
        config.refuse("attention_bias", fmt::format("but q, k and v of {} have biases; take it away", type.name));
      config.use("attention_bias");
      break;
    case Biases::attention_and_mlp: model.mlp_bias = config.flag("mlp_bias", false); [[fallthrough]];
    case Biases::attention: model.qkv_bias = model.output_bias = config.flag("attention_bias", false); break;
    case Biases::all: model.qkv_bias = model.output_bias = model.mlp_bias = config.flag("use_bias", true); break;
    case Biases::bias: model.qkv_bias = model.output_bias = config.flag("bias", true); break;
  }
}

void read_gemma(const ConfigReader& config, const ModelType& type, Model& model) {
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
  if (type.name == "gemma") return;
  const auto cap = [&](const char* field, double fallback) {
    return config.optional_number(field, 1e-3, 1e6, fallback > 0 ? std::optional(fallback) : std::nullopt).value_or(0);
  };
  model.soft_cap = cap("attn_logit_softcapping", type.soft_cap);
  model.logits_soft_cap = cap("final_logit_softcapping", type.logits_soft_cap);
  model.attention_scale = 1 / std::sqrt(config.number("query_pre_attn_scalar", 1e-3, 1e6, 256));
  if (config.has("sliding_window_size")) {  // an older name; files have both
    config.use("sliding_window_size");
    if (config.has("sliding_window") && config.json()["sliding_window_size"] != config.json()["sliding_window"])
      config.refuse("sliding_window_size",
                    fmt::format("but sliding_window is {}; keep one of them", config.json()["sliding_window"].dump()));
  }
}

void read_granite(const ConfigReader& config, Model& model) {
  const auto factor = [&](const char* field) { return config.number(field, 1e-9, 1e9, 1); };
  model.embedding_scale = factor("embedding_multiplier");
  model.residual_scale = factor("residual_multiplier");
  model.attention_scale = factor("attention_multiplier");
  model.logits_scale = 1 / factor("logits_scaling");
}

Model read_model(const ConfigReader& config, const ModelType& type, DType dtype) {
  Model model;
  model.type = type.name;
  model.dtype = dtype;
  read_sizes(config, type, model);
  read_heads(config, type, model);
  model.activation = read_activation(config, type);
  model.is_gated = type.is_gated;
  read_norms(config, type, model);
  read_biases(config, type, model);
  model.is_tied = config.flag("tie_word_embeddings", type.is_tied);
  if (type.is_gemma) read_gemma(config, type, model);
  if (type.name == "granite") read_granite(config, model);
  read_layers(config, type, model);
  return model;
}

std::optional<DType> dtype_of(const ConfigReader& config, const char* field) {
  if (!config.has(field)) return {};
  std::string name = config.text(field, "");
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name == "float") name = "float32";
  if (name == "half") name = "float16";
  if (name.find("float8") != std::string::npos || name.find("int") != std::string::npos)
    config.fail(ErrorCode::unsupported, field,
                "says that the weights are quantised, which is not served; give the config.json of the model that was "
                "quantised: its weights have 16 or 32 bits");
  const auto dtype = parse_dtype(name);
  if (!dtype || (*dtype != DType::f32 && *dtype != DType::bf16 && *dtype != DType::f16))
    config.refuse(field, "must be float32, bfloat16 or float16");
  return dtype;
}

/// transformers 4 writes torch_dtype, transformers 5 writes dtype.
std::optional<DType> read_dtype(const ConfigReader& config) {
  config.use("torch_dtype"), config.use("dtype");
  const auto old = dtype_of(config, "torch_dtype"), dtype = dtype_of(config, "dtype");
  if (old && dtype && *old != *dtype)
    config.refuse("torch_dtype", fmt::format("but dtype is {}; keep one of them", config.json()["dtype"].dump()));
  return dtype ? dtype : old;
}

/// Renames Exaone's own field names to the common names.
Json with_common_names(const ConfigReader& config, const Json& json) {
  Json common = json;
  for (const auto& [own, name] :
       {std::pair("num_layers", "num_hidden_layers"), std::pair("layer_norm_epsilon", "rms_norm_eps"),
        std::pair("activation_function", "hidden_act")}) {
    if (!json.contains(own)) continue;
    if (json.contains(name) && json[name] != json[own])
      config.refuse(own, fmt::format("but {} is {}; keep one of them", name, autotune::excerpt(json[name])));
    common[name] = json[own];
    common.erase(own);
  }
  return common;
}

/// The field whose object describes the text model; null if the file itself describes it.
const char* text_part(const Json& json) {
  const Json type = json.value("model_type", Json());
  if (type.is_string() && find_model_type(type.get<std::string>())) return nullptr;
  for (const char* name : {"text_config", "llm_config", "language_config"})
    if (json.contains(name) && json[name].is_object()) return name;
  return nullptr;
}

Model read_own(const ConfigReader& config, std::string_view fallback_type, std::optional<DType> outer_dtype) {
  refuse_other_models(config);
  const ModelType& type = type_of(config, fallback_type);
  const auto dtype = read_dtype(config);
  if (dtype && outer_dtype && *dtype != *outer_dtype)
    config.notes().warnings.push_back(
        fmt::format("{}: the text model is {}, the file {}; {} counts, --dtype chooses "
                    "another",
                    config.where(), dtype_name(*dtype), dtype_name(*outer_dtype), dtype_name(*outer_dtype)));
  const auto found = outer_dtype ? outer_dtype : dtype;
  if (!found) config.note_default("torch_dtype", "float32");
  const Model model = read_model(config, type, found.value_or(DType::f32));
  sort_fields(config);
  warn_of_classes(config, type);
  return model;
}

/// Reads the text model of a file with several models, such as text, images and sound.
Model read_text_part(const ConfigReader& file, const char* part) {
  refuse_other_models(file);
  const std::string outer = file.has("model_type") ? file.text("model_type", "") : "";
  const auto dtype = read_dtype(file);
  Json inner = file.json()[part];
  if (!inner.contains("tie_word_embeddings") && file.has("tie_word_embeddings"))
    inner["tie_word_embeddings"] = file.json()["tie_word_embeddings"];
  const ConfigReader config(inner, file.where() + ": " + part, file.notes(), std::string(part) + ".");
  const Model model = read_own(config, text_type_of(outer), dtype);
  sort_outer_fields(file, part, config);
  return model;
}

/// Refuses a file that says none of the model's sizes. A file may leave out sizes that are its type's, but with no size
/// at all it is a piece of a file.
void refuse_without_sizes(const ModelFile& file) {
  constexpr std::array kSizes = {"hidden_size",         "intermediate_size", "num_hidden_layers",
                                 "num_attention_heads", "vocab_size",        "max_position_embeddings"};
  const auto is_left_out = [&](const char* name) {
    return std::ranges::find(file.notes.defaults, name, &FieldNote::name) != file.notes.defaults.end();
  };
  if (std::ranges::all_of(kSizes, is_left_out))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: fields {} are missing; give the whole config.json of a model", file.path,
                            fmt::join(kSizes, ", ")));
}

/// Names the kind of file by its first bytes, so that a file of weights is not read whole.
[[noreturn]] void refuse_large(const std::filesystem::path& path, uintmax_t bytes, const std::string& head) {
  const std::string kind = autotune::foreign_kind(head);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {} MiB, no model description: {}", path.string(), bytes >> 20,
                          kind.empty() ? "give the config.json of a model" : kind));
}

}  // namespace

ModelFile parse_model_file(std::string_view text, const std::string& name) {
  autotune::JsonText json = autotune::read_json(text, name, true);
  if (const std::string kind = other_file(json.value); !kind.empty())
    throw Error(ErrorCode::invalid_argument, autotune::one_line(fmt::format("{}: {}", name, kind)));
  ModelFile file{.path = name, .model = {}, .notes = {}};
  file.notes.large = std::move(json.large);
  for (const std::string& line : json.repeated) file.notes.warnings.push_back(name + ": field " + line);
  const ConfigReader config(json.value, name, file.notes);
  if (const char* part = text_part(json.value)) {
    file.model = read_text_part(config, part);
  } else if (json.value.value("model_type", Json()) == "exaone") {
    const Json common = with_common_names(config, json.value);
    file.model = read_own(ConfigReader(common, name, file.notes), {}, {});
  } else {
    file.model = read_own(config, {}, {});
  }
  return file;
}

ModelFile load_model_file(const std::string& given) {
  std::error_code error;
  std::filesystem::path path = given;
  if (std::filesystem::is_directory(path, error)) path /= "config.json";
  const auto bytes = std::filesystem::file_size(path, error);
  const bool is_large = !error && bytes > kMostBytes;
  std::ifstream file(path, std::ios::binary);
  std::string text(is_large ? 4096 : 0, '\0');
  if (is_large) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  else text.assign(std::istreambuf_iterator<char>(file), {});
  if (!file.good() && text.empty())
    throw Error(ErrorCode::io, path.string() + ": cannot be read; give the path of a Hugging Face config.json");
  if (is_large) refuse_large(path, bytes, text);
  ModelFile model = parse_model_file(text, path.string());
  refuse_without_sizes(model);
  refuse_quantised_folder(path);
  return model;
}

Model parse_model(std::string_view json, const std::string& name) { return parse_model_file(json, name).model; }
Model load_model(const std::string& path) { return load_model_file(path).model; }

}  // namespace seqtile::models

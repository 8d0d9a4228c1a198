// models/file/other_files.cpp -- see other_files.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/file/other_files.h"

#include <fmt/format.h>

#include <array>

#include "autotune/text/json_text.h"
#include "seqtile/error.h"

namespace seqtile::models {
namespace {

/// A field that tells another kind of file. A config.json has such a field only together with model_type.
struct Sign {
  const char *field, *what;
};

constexpr Sign kSigns[] = {
    {"peft_type", "an adapter_config.json; give the config.json of the model that the adapter is for"},
    {"tokenizer_class", "a tokenizer_config.json; give the config.json beside it"},
    {"added_tokens_decoder", "a tokenizer_config.json; give the config.json beside it"},
    {"added_tokens", "a tokenizer.json; give the config.json beside it"},
    {"chat_template", "a template of chats; give the config.json beside it"},
    {"_from_model_config", "a generation_config.json; give the config.json beside it"},
    {"do_sample", "a generation_config.json; give the config.json beside it"},
    {"max_new_tokens", "a generation_config.json; give the config.json beside it"},
    {"image_processor_type", "a preprocessor_config.json; give the config.json beside it"},
    {"feature_extractor_type", "a preprocessor_config.json; give the config.json beside it"},
    {"processor_class", "a processor_config.json; give the config.json beside it"},
    {"weight_map", "an index of weights; give the config.json beside it"},
    {"quant_algo",
     "a description of quantised weights, which are not served; give the config.json of the model that "
     "was quantised"},
    {"w_bit",
     "a description of quantised weights, which are not served; give the config.json of the model that was "
     "quantised"},
    {"bits",
     "a description of quantised weights, which are not served; give the config.json of the model that was "
     "quantised"},
    {"quantization",
     "a description of quantised weights, which are not served; give the config.json of the model that "
     "was quantised"},
    {"_class_name", "a file of diffusers; give the config.json of a language model"},
    {"n_layers",
     "a params.json, whose weights have another order of rotated elements; give the Hugging Face "
     "config.json of the model"},
    {"train_micro_batch_size_per_gpu", "a configuration of DeepSpeed; give the model's config.json"},
    {"error", "the answer of a server that reports an error; get the file again"},
};

const char* kind_of(const nlohmann::json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::array: return "an array";
    case nlohmann::json::value_t::string: return "a text";
    case nlohmann::json::value_t::boolean: return "true or false";
    case nlohmann::json::value_t::null: return "null";
    default: return "a number";
  }
}

std::string guess_of_type(const nlohmann::json& json) {
  const auto& names = json.value("architectures", nlohmann::json());
  return names.is_array() && names.size() == 1 && names[0].is_string()
             ? fmt::format(" (architectures says {})", autotune::excerpt(names[0]))
             : "";
}

}  // namespace

std::string other_file(const nlohmann::json& json) {
  if (!json.is_object()) return fmt::format("{}, not an object; give the config.json of a model", kind_of(json));
  if (json.contains("model_type") && !json["model_type"].is_null()) return {};
  for (const char* part : {"text_config", "llm_config", "language_config"})
    if (json.contains(part)) return {};
  const bool is_null = json.contains("model_type");
  for (const Sign& sign : kSigns)
    if (json.contains(sign.field))
      return fmt::format("has {} and {}: {}", sign.field, is_null ? "model_type null" : "no model_type", sign.what);
  if (json.empty()) return "an empty object; give the config.json of a model";
  return is_null ? fmt::format("field model_type is null{}; write the model's type, for example \"llama\"",
                               guess_of_type(json))
                 : fmt::format("field model_type is missing{}; a model's config.json has it", guess_of_type(json));
}

void refuse_quantised_folder(const std::filesystem::path& config) {
  if (config.filename() != "config.json") return;
  std::error_code error;
  for (const char* name : {"hf_quant_config.json", "quantize_config.json", "quant_config.json"})
    if (const auto beside = config.parent_path() / name; std::filesystem::exists(beside, error))
      throw Error(ErrorCode::unsupported,
                  fmt::format("{}: {} beside it says that the weights are quantised, which is not served; give the "
                              "config.json of the model that was quantised",
                              config.string(), name));
}

}  // namespace seqtile::models

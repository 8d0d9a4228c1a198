// models/file/class_names.cpp -- see class_names.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/file/class_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "autotune/text/json_text.h"

namespace seqtile::models {
namespace {

constexpr std::array kOtherHeads = {"Classification", "QuestionAnswering", "Reward"};
/// Endings in lower case; old files have LLaMAForCausalLM.
constexpr std::array kOwnEndings = {"forcausallm", "model", "textmodel", "forconditionalgeneration"};

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

/// The stem of a type's classes: "Llama" for LlamaConfig, "Gemma3" for Gemma3TextConfig.
std::string_view stem_of(const ModelType& type) {
  std::string_view stem = type.config_class;
  for (const std::string_view end : {"Config", "Text"})
    if (stem.ends_with(end)) stem.remove_suffix(end.size());
  return stem;
}

bool is_own_class(const std::string& name, const ModelType& type) {
  const std::string lower = in_lower_case(name), stem = in_lower_case(stem_of(type));
  return lower.starts_with(stem) &&
         std::ranges::any_of(kOwnEndings, [&](const char* end) { return lower.substr(stem.size()) == end; });
}

/// Says why a class does not fit the type; empty for a class of the type with lm_head.
std::string problem_of_class(const Json& name, const ModelType& type) {
  if (!name.is_string()) return "which is no text";
  const auto text = name.get<std::string>();
  if (std::ranges::any_of(kOtherHeads, [&](const char* head) { return text.find(head) != std::string::npos; }))
    return "whose head is not lm_head";
  return is_own_class(text, type) ? "" : fmt::format("which is no class of type {}", type.name);
}

/// Whether `code` is the code that files of the type are written for. Example: "modeling_phi3.Phi3ForCausalLM", with an
/// optional repository and "--" in front.
bool is_code_of_type(const Json& code, const ModelType& type) {
  if (!type.has_own_code || !code.is_string()) return false;
  const auto text = code.get<std::string>();
  const size_t dashes = text.rfind("--");
  const std::string file = text.substr(dashes == std::string::npos ? 0 : dashes + 2);
  return file.starts_with(fmt::format("modeling_{}.", type.name)) ||
         file.starts_with(fmt::format("configuration_{}.", type.name));
}

void warn(const ConfigReader& config, const ModelType& type, const std::string& what) {
  config.notes().warnings.push_back(autotune::one_line(
      fmt::format("{}: {}; layers are read as those of {}ForCausalLM", config.where(), what, stem_of(type))));
}

void warn_of_own_code(const ConfigReader& config, const ModelType& type) {
  if (!config.has("auto_map")) return;
  const Json& map = config.json()["auto_map"];
  if (!map.is_object()) return warn(config, type, "field auto_map must be an object");
  for (const auto& [name, code] : map.items())
    if ((name.starts_with("AutoModel") || name == "AutoConfig") && !is_code_of_type(code, type))
      return warn(config, type,
                  fmt::format("auto_map has {}, code of the file's own that was not read", autotune::excerpt(code)));
}

}  // namespace

void warn_of_classes(const ConfigReader& config, const ModelType& type) {
  warn_of_own_code(config, type);
  if (!config.has("architectures")) return;
  const Json& names = config.json()["architectures"];
  if (!names.is_array())
    return warn(config, type,
                fmt::format("field architectures is {}, must be a list of texts", autotune::excerpt(names)));
  for (const Json& name : names)
    if (const std::string problem = problem_of_class(name, type); !problem.empty())
      warn(config, type, fmt::format("architectures has {}, {}", autotune::excerpt(name), problem));
}

}  // namespace seqtile::models

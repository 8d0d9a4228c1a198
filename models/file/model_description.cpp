// models/file/model_description.cpp -- see model_description.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/file/model_description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace seqtile::models {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Names and numbers as JSON and as text. The text omits numbers without effect.
class Numbers {
 public:
  template <class Number>
  void add(const char* name, Number value, bool is_said) {
    json_[name] = value;
    if (is_said) text_ += fmt::format("{}{} {}", text_.empty() ? "" : ", ", name, value);
  }
  ModelFact fact(const char* name, const char* none) const { return {name, text_.empty() ? none : text_, json_}; }
  const std::string& text() const { return text_; }
  const OrderedJson& json() const { return json_; }

 private:
  std::string text_;
  OrderedJson json_ = OrderedJson::object();
};

ModelFact count(const char* name, int64_t value) { return {name, fmt::format("{}", value), value}; }

const char* place_name(NormPlace place) {
  static constexpr const char* kNames[] = {"before", "after", "both"};
  return kNames[static_cast<size_t>(place)];
}

const char* head_norm_name(HeadNorm norm) {
  static constexpr const char* kNames[] = {"none", "each_head", "all_heads"};
  return kNames[static_cast<size_t>(norm)];
}

ModelFact norms_of(const Model& model) {
  static constexpr const char* kPlaces[] = {"before attention and feed-forward part",
                                            "behind attention and feed-forward part",
                                            "before and behind attention and feed-forward part"};
  static constexpr const char* kHeads[] = {"", ", of each head of q and k", ", of all heads of q and of k"};
  const char* kind = model.norm == Norm::layer ? "layer_norm" : "rms_norm";
  return {"norms",
          fmt::format("{} {}{}, eps {}{}{}", kind, kPlaces[static_cast<size_t>(model.norm_place)],
                      kHeads[static_cast<size_t>(model.head_norm)], model.norm_eps,
                      model.norm_weight_offset != 0 ? fmt::format(", weights + {}", model.norm_weight_offset) : "",
                      model.norm_bias ? ", with biases" : ""),
          {{"kind", kind},
           {"place", place_name(model.norm_place)},
           {"heads", head_norm_name(model.head_norm)},
           {"eps", model.norm_eps},
           {"weight_offset", model.norm_weight_offset},
           {"bias", model.norm_bias}}};
}

ModelFact biases_of(const Model& model) {
  std::vector<std::string> names;
  if (model.qkv_bias) names.insert(names.end(), {"q", "k", "v"});
  if (model.output_bias) names.emplace_back("o");
  if (model.mlp_bias) names.emplace_back("mlp");
  if (model.head_bias) names.emplace_back("lm_head");
  return {"biases", names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")), names};
}

ModelFact multipliers_of(const Model& model) {
  Numbers numbers;
  const auto add = [&](const char* name, double value) { numbers.add(name, value, value != 1); };
  add("embedding", model.embedding_scale);
  add("residual", model.residual_scale);
  const double usual = 1 / std::sqrt(static_cast<double>(model.head_dim));
  const double attention = model.attention_scale == 0 ? usual : model.attention_scale;
  numbers.add("attention", attention, attention != usual);
  add("logits", model.logits_scale);
  return numbers.fact("multipliers", "none but 1 / sqrt(head_dim) of attention");
}

ModelFact soft_caps_of(const Model& model) {
  Numbers numbers;
  numbers.add("attention", model.soft_cap, model.soft_cap != 0);
  numbers.add("logits", model.logits_soft_cap, model.logits_soft_cap != 0);
  return numbers.fact("soft_caps", "none");
}

std::string range_of(const std::vector<double>& values) {
  const auto [lo, hi] = std::ranges::minmax(values);
  return fmt::format("{} to {}", lo, hi);
}

/// The numbers that a rope of this type has.
Numbers rope_numbers(const RopeForm& rope) {
  Numbers numbers;
  const auto add = [&](const char* name, auto value, bool is_said = true) { numbers.add(name, value, is_said); };
  const bool is_yarn = rope.type == "yarn", is_long = rope.type == "longrope", is_llama3 = rope.type == "llama3";
  add("base", rope.theta);
  add("rotary_dim", rope.rotary_dim);
  if (rope.type != "default" && !is_long) add("factor", rope.factor);
  if (rope.original_max_positions) add("original_positions", rope.original_max_positions);
  if (is_llama3) add("low_freq_factor", rope.low_freq_factor), add("high_freq_factor", rope.high_freq_factor);
  if (is_yarn) add("beta_fast", rope.beta_fast), add("beta_slow", rope.beta_slow);
  if (is_yarn) add("truncate", rope.truncate, !rope.truncate);
  if (is_yarn || is_long) add("attention_factor", rope.attention_factor);
  return numbers;
}

ModelFact rope_of_kind(const LayerKind& kind) {
  if (!kind.has_rope) return {"rope", "no rope", nullptr};
  const Numbers numbers = rope_numbers(kind.rope);
  OrderedJson json = {{"type", kind.rope.type}};
  json.update(numbers.json());
  std::string text = fmt::format("rope {}, {}", kind.rope.type, numbers.text());
  if (kind.rope.type == "longrope") {
    json["short_factor"] = kind.rope.short_factor, json["long_factor"] = kind.rope.long_factor;
    text +=
        fmt::format(", factors {} short, {} long", range_of(kind.rope.short_factor), range_of(kind.rope.long_factor));
  }
  return {"rope", text, json};
}

/// The layers of a kind as ranges: "0..4, 6..10".
std::string layer_ranges(const std::vector<int>& kinds, int kind) {
  std::string text;
  for (size_t first = 0; first < kinds.size(); ++first) {
    if (kinds[first] != kind) continue;
    size_t last = first;
    while (last + 1 < kinds.size() && kinds[last + 1] == kind) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", first);
    if (last > first) text += fmt::format("..{}", last);
    first = last;
  }
  return text;
}

ModelFact kinds_of(const Model& model) {
  ModelFact fact{"layer_kinds", "", OrderedJson::array()};
  for (size_t i = 0; i < model.kinds.size(); ++i) {
    const LayerKind& kind = model.kinds[i];
    const bool is_only = model.kinds.size() == 1;
    const std::string layers = layer_ranges(model.kind_of_layer, static_cast<int>(i));
    const ModelFact rope = rope_of_kind(kind);
    fact.text += fmt::format("{}{} {}: {}; {}", fact.text.empty() ? "" : "\n", is_only ? "all" : kind.name,
                             is_only ? "layers" : fmt::format("(layers {})", layers),
                             kind.window ? fmt::format("window {}", kind.window) : "all keys", rope.text);
    fact.value.push_back({{"name", kind.name},
                          {"layers", std::ranges::count(model.kind_of_layer, static_cast<int>(i))},
                          {"which", layers},
                          {"window", kind.window},
                          {"rope", rope.value}});
  }
  return fact;
}

ModelFact defaults_of(const ModelNotes& notes) {
  ModelFact fact{"defaults", "", OrderedJson::object()};
  for (const FieldNote& note : notes.defaults) {
    fact.text += fmt::format("{}{} = {}", fact.text.empty() ? "" : ", ", note.name, note.text);
    fact.value[note.name] = note.text;
  }
  if (fact.text.empty()) fact.text = "none";
  return fact;
}

/// Groups the names by reason, because many fields share a reason.
ModelFact ignored_of(const ModelNotes& notes) {
  ModelFact fact{"ignored", "", OrderedJson::object()};
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const FieldNote& note : notes.ignored) {
    by_reason[note.text].push_back(note.name);
    fact.value[note.name] = note.text;
  }
  for (const auto& [reason, names] : by_reason)
    fact.text += fmt::format("{}{} ({})", fact.text.empty() ? "" : "\n", fmt::join(names, ", "), reason);
  if (fact.text.empty()) fact.text = "none";
  return fact;
}

}  // namespace

std::vector<ModelFact> describe(const ModelFile& file) {
  const Model& model = file.model;
  const std::string dtype(dtype_name(model.dtype)),
      feed_forward = fmt::format("{}{}", model.activation, model.is_gated ? ", gated" : "");
  return {
      {"file", file.path, file.path},
      {"type", model.type, model.type},
      {"dtype", dtype, dtype},
      count("layers", model.layers),
      count("hidden_size", model.hidden_size),
      count("intermediate_size", model.intermediate_size),
      count("vocab_size", model.vocab_size),
      count("max_positions", model.max_positions),
      count("heads", model.heads),
      count("kv_heads", model.kv_heads),
      count("head_dim", model.head_dim),
      {"feed_forward", feed_forward, {{"activation", model.activation}, {"gated", model.is_gated}}},
      norms_of(model),
      biases_of(model),
      multipliers_of(model),
      soft_caps_of(model),
      {"tied", model.is_tied ? "lm_head has the embedding's weight" : "lm_head has a weight of its own", model.is_tied},
      kinds_of(model),
      defaults_of(file.notes),
      ignored_of(file.notes),
      {"warnings", file.notes.warnings.empty() ? "none" : fmt::format("{}", fmt::join(file.notes.warnings, "\n")),
       file.notes.warnings}};
}

}  // namespace seqtile::models

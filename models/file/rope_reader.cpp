// models/file/rope_reader.cpp -- see rope_reader.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/file/rope_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "autotune/text/json_text.h"
#include "jit/base/counted.h"
#include "jit/base/nearest_word.h"
#include "models/file/field_rules.h"

namespace seqtile::models {
namespace {

constexpr double kMost = std::numeric_limits<double>::max(), kMostTheta = 1e15, kMostFactor = 1e6;
constexpr std::array kLayerTypes = {"full_attention", "sliding_attention"};

bool is_given(const Json& value) { return !value.is_null() && !(value.is_object() && value.empty()); }

/// Whether a rope has objects for kinds of layers, under whatever names.
bool is_nested(const Json& rope) {
  return std::ranges::any_of(kLayerTypes, [&](const char* name) { return rope.contains(name); }) ||
         std::ranges::any_of(rope, [](const Json& value) { return value.is_object() && !value.empty(); });
}

/// Requires that two places have the same value. Errors: invalid_argument if they differ, naming both.
void check_agree(const ConfigReader& config, const std::string& name, const Json& value, const std::string& other_name,
                 const Json& other) {
  if (value != other)
    config.refuse(name, fmt::format("but {} is {}; keep one of them", other_name, autotune::excerpt(other)));
}

/// A rope object and its name in messages.
struct Source {
  std::string name;
  Json fields = Json::object();
};

/// The name under which `fields` has the field `name`: "type" and "rope_type" are the same field.
std::string name_in(const Json& fields, const std::string& name) {
  const auto has = [&](const char* other) { return fields.contains(other) && !fields[other].is_null(); };
  if (name == "type" && has("rope_type")) return "rope_type";
  if (name == "rope_type" && has("type")) return "type";
  return name;
}

/// Whether two values are equal. "su" is an old name of "longrope".
bool is_same(const Json& a, const Json& b) {
  const auto plain = [](const Json& value) { return value == "su" ? Json("longrope") : value; };
  return plain(a) == plain(b);
}

/// Adds the fields of `from` to those of `to`.
void merge(const ConfigReader& config, Source& to, const Source& from) {
  for (const auto& [name, value] : from.fields.items()) {
    const std::string same = name_in(to.fields, name);
    const bool is_there = to.fields.contains(same) && !to.fields[same].is_null();
    if (is_there && !value.is_null() && !is_same(to.fields[same], value))
      throw Error(ErrorCode::invalid_argument,
                  autotune::one_line(fmt::format("{}: field {}.{} is {}, but {}.{} is {}; keep one of them",
                                                 config.where(), from.name, name, autotune::excerpt(value), to.name,
                                                 same, autotune::excerpt(to.fields[same]))));
    if (!is_there) to.fields[name] = value;
  }
}

/// The object in field `name` of the file. It has no fields if it is null, absent or empty.
Source source_of(const ConfigReader& config, const std::string& name) {
  config.use(name);
  if (!config.contains(name) || !is_given(config.json()[name])) return {name};
  if (!config.json()[name].is_object()) config.refuse(name, "must be an object or null");
  return {name, config.json()[name]};
}

/// The source itself if it applies to all layers, else its object for `layers`, which has defaults if it is absent.
Source part_of(const ConfigReader& config, const Source& source, const char* layers) {
  if (!is_nested(source.fields)) return source;
  Source part{source.name + "." + layers};
  if (!source.fields.contains(layers) || source.fields[layers].is_null()) return part;
  if (!source.fields[layers].is_object()) config.refuse(source.name, fmt::format("must have an object for {}", layers));
  part.fields = source.fields[layers];
  return part;
}

/// Reads one rope object into a RopeForm.
class FormReader {
 public:
  FormReader(const ConfigReader& config, const ModelType& type, const Model& model, const Source& source)
      : config_(config),
        type_(type),
        model_(model),
        rope_(source.fields, config.where() + ": " + source.name, config.notes(), config.path(source.name + ".")),
        name_(source.name) {}

  RopeForm read(const char* theta_field, double theta) {
    form_.type = read_type();
    form_.theta = read_theta(theta_field, theta);
    form_.rotary_dim = read_rotary_dim();
    if (form_.type == "linear") form_.factor = factor();
    else if (form_.type == "dynamic") read_dynamic();
    else if (form_.type == "yarn") read_yarn();
    else if (form_.type == "longrope") read_longrope();
    else if (form_.type == "llama3") read_llama3();
    sort_rope_fields(rope_, form_.type);
    return form_;
  }

 private:
  std::string spelling(const char* field) const {
    if (!rope_.has(field)) return {};
    const std::string type = rope_.text(field, "");
    return type == "su" ? "longrope" : type;
  }

  std::string read_type() const {
    const std::string type = spelling("rope_type"), old = spelling("type");
    rope_.use("rope_type"), rope_.use("type");
    if (!type.empty() && !old.empty() && type != old)
      rope_.refuse("rope_type", fmt::format("but type is \"{}\"; keep one of them", old));
    std::string found = type.empty() ? old : type;
    const bool has_factors = rope_.has("short_factor") || rope_.has("long_factor");
    if (found == "yarn" && type_.name == "phi3" && has_factors) found = "longrope";  // the first files of phi3 say yarn
    if (found.empty() && (rope_.has("factor") || has_factors)) rope_.refuse("rope_type", "is missing; factors need it");
    if (found.empty()) return "default";
    constexpr std::array kTypes = {"default", "linear", "dynamic", "yarn", "longrope", "llama3"};
    if (std::ranges::find(kTypes, found) == kTypes.end())
      rope_.fail(ErrorCode::unsupported, type.empty() ? "type" : "rope_type",
                 fmt::format("must be one of {}{}", fmt::join(kTypes, ", "), did_you_mean(found, kTypes)));
    return found;
  }

  double read_theta(const char* field, double fallback) const {
    config_.use(field), rope_.use("rope_theta");
    // If ropes have an object for each kind of layers, the file's outer rope_theta is that of full_attention.
    const bool is_of_full = std::string_view(field) != "rope_theta" || !name_.ends_with(".sliding_attention");
    if (config_.has(field) && rope_.has("rope_theta") && is_of_full)
      check_agree(config_, field, config_.json()[field], name_ + ".rope_theta", rope_.json()["rope_theta"]);
    if (rope_.has("rope_theta")) return rope_.number("rope_theta", 1, kMostTheta, 0);
    if (config_.has(field)) return config_.number(field, 1, kMostTheta, 0);
    config_.note_default(field, fmt::format("{}", fallback));
    return fallback;
  }

  int64_t read_rotary_dim() const {
    const char* field = "partial_rotary_factor";
    if (!type_.is_partly_rotated) return model_.head_dim;  // sort_fields() refuses files that ask for less
    config_.use(field), rope_.use(field);
    if (config_.has(field) && rope_.has(field))
      check_agree(config_, field, config_.json()[field], name_ + "." + field, rope_.json()[field]);
    const ConfigReader& place = rope_.has(field) ? rope_ : config_;
    if (!place.has(field)) return model_.head_dim;
    const double part = place.number(field, 0, 1, 1);
    const auto rotated = static_cast<int64_t>(static_cast<double>(model_.head_dim) * part);
    if (rotated < 2 || rotated % 2)
      place.refuse(field, fmt::format("gives {} of {} elements; it must leave an even number of them, at least 2",
                                      rotated, model_.head_dim));
    return rotated;
  }

  double factor() const {
    if (!rope_.has("factor")) rope_.refuse("factor", fmt::format("is missing; {} rope needs it", form_.type));
    return rope_.number("factor", 1, kMostFactor, 0);
  }

  /// The field inside the rope object, beside it, or the type's default.
  int64_t original_positions() const {
    const char* field = "original_max_position_embeddings";
    config_.use(field), rope_.use(field);
    if (config_.has(field) && rope_.has(field))
      check_agree(config_, field, config_.json()[field], name_ + "." + field, rope_.json()[field]);
    if (rope_.has(field) && !config_.has(field) && type_.original_positions &&
        rope_.size(field, kMostPositions, 0) != type_.original_positions)
      rope_.refuse(field, fmt::format("but {} takes the field beside {}, {} where it is absent; give it there too",
                                      type_.config_class, name_, type_.original_positions));
    if (rope_.has(field)) return rope_.size(field, kMostPositions, 0);
    if (config_.has(field)) return config_.size(field, kMostPositions, 0);
    const int64_t fallback = type_.original_positions ? type_.original_positions : model_.max_positions;
    rope_.note_default(field, fmt::format("{}", fallback));
    return fallback;
  }

  /// `alpha` changes the base for all lengths (Hunyuan); `factor` makes the base grow with the length.
  void read_dynamic() {
    if (form_.rotary_dim < 4) rope_.refuse("rope_type", "needs at least four rotated elements");
    form_.original_max_positions = model_.max_positions;
    const char* field = "original_max_position_embeddings";
    if (rope_.has(field) && rope_.size(field, kMostPositions, 0) != model_.max_positions)
      rope_.refuse(field, fmt::format("but dynamic rope counts from max_position_embeddings = {}; keep one of them",
                                      model_.max_positions));
    if (!rope_.has("alpha")) {
      form_.factor = factor();
      return;
    }
    if (rope_.has("factor") && rope_.number("factor", 1, kMostFactor, 1) != 1)
      rope_.refuse("alpha", "but factor is given too; keep one of them");
    const double alpha = rope_.number("alpha", 1, kMost, 1), dim = static_cast<double>(form_.rotary_dim);
    form_.theta *= std::pow(alpha, dim / (dim - 2));
    form_.type = "default";
    form_.original_max_positions = 0;
    // Hunyuan's files have these fields, which do not matter to `alpha`.
    for (const char* name : {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) rope_.use(name);
  }

  void read_yarn() {
    form_.original_max_positions = original_positions();
    if (rope_.contains("factor") && !rope_.has("factor")) {
      rope_.use("factor");
      form_.factor = static_cast<double>(model_.max_positions) / static_cast<double>(form_.original_max_positions);
    } else {
      form_.factor = factor();
    }
    if (rope_.contains("truncate")) form_.truncate = rope_.flag("truncate", true);
    form_.beta_fast = positive("beta_fast", 32);
    form_.beta_slow = positive("beta_slow", 1);
    if (form_.beta_fast < form_.beta_slow) rope_.refuse("beta_fast", "must be at least beta_slow");
    if (form_.theta <= 1) rope_.refuse("rope_theta", "must be above 1 for yarn rope");
    const double mscale = rope_.has("mscale") ? rope_.number("mscale", 0, kMost, 0) : 0,
                 all = rope_.has("mscale_all_dim") ? rope_.number("mscale_all_dim", 0, kMost, 0) : 0;
    const auto scale = [&](double by) { return form_.factor <= 1 ? 1 : 0.1 * by * std::log(form_.factor) + 1; };
    const double fallback = mscale > 0 && all > 0 ? scale(mscale) / scale(all) : scale(1);
    form_.attention_factor = attention_factor(fallback);
  }

  /// The field's value, where null and 0 count as absent, as in the class.
  double positive(const char* field, double fallback) const {
    const double value = rope_.has(field) ? rope_.number(field, 0, kMost, 0) : 0;
    return value > 0 ? value : fallback;
  }

  double attention_factor(double fallback) const {
    return rope_.has("attention_factor") ? rope_.number("attention_factor", 0, kMost, 0) : fallback;
  }

  void read_longrope() {
    form_.original_max_positions = original_positions();
    form_.short_factor = factors("short_factor");
    form_.long_factor = factors("long_factor");
    const double original = static_cast<double>(form_.original_max_positions);
    const double ratio = static_cast<double>(model_.max_positions) / original;
    // Versions of the class differ in which of the two values they use.
    if (rope_.has("factor") && rope_.number("factor", 0, kMostFactor, 0) != ratio && !rope_.has("attention_factor"))
      rope_.refuse("factor", fmt::format("but max_position_embeddings / original_max_position_embeddings is {}; keep "
                                         "them equal, or give attention_factor",
                                         ratio));
    if (form_.original_max_positions < 2) rope_.refuse("original_max_position_embeddings", "must be at least 2");
    form_.attention_factor = attention_factor(ratio <= 1 ? 1 : std::sqrt(1 + std::log(ratio) / std::log(original)));
  }

  std::vector<double> factors(const char* field) const {
    if (!rope_.has(field)) rope_.refuse(field, "is missing; longrope needs it");
    std::vector<double> list = rope_.numbers(field, 1e-6, kMostFactor);
    if (list.size() != static_cast<size_t>(form_.rotary_dim / 2))
      rope_.refuse(field, fmt::format("has {}, must have one for each of the {} of rotated elements",
                                      counted(list.size(), "number"), counted(form_.rotary_dim / 2, "pair")));
    return list;
  }

  void read_llama3() {
    for (const char* name : {"low_freq_factor", "high_freq_factor"})
      if (!rope_.has(name)) rope_.refuse(name, "is missing; llama3 rope needs it");
    form_.factor = factor();
    form_.low_freq_factor = rope_.number("low_freq_factor", 1e-9, kMostFactor, 0);
    form_.high_freq_factor = rope_.number("high_freq_factor", 1e-9, kMostFactor, 0);
    if (form_.high_freq_factor <= form_.low_freq_factor)
      rope_.refuse("high_freq_factor", "must be above low_freq_factor");
    form_.original_max_positions = original_positions();
  }

  const ConfigReader& config_;
  const ModelType& type_;
  const Model& model_;
  const ConfigReader rope_;
  const std::string name_;
  RopeForm form_;
};

/// Refuses objects for kinds of layers where a type has one rope: its class does not read them.
void check_kinds(const ConfigReader& config, const ModelType& type, const Source& source) {
  if (!is_nested(source.fields)) return;
  if (!type.has_two_ropes)
    config.refuse(source.name, fmt::format("has objects for kinds of layers, but {} reads one rope for all layers; "
                                           "give its fields without them",
                                           type.config_class));
  for (const auto& [name, value] : source.fields.items())
    if (std::ranges::find(kLayerTypes, name) == kLayerTypes.end())
      config.refuse(source.name, fmt::format("has {} beside objects for kinds of layers; it must be in them", name));
}

/// The rope object for `layers`, from both spellings. If the type has a rope for each kind of layers, the fields of
/// transformers 4 belong to full_attention.
Source merged_source(const ConfigReader& config, const ModelType& type, const char* layers) {
  const Source old = source_of(config, "rope_scaling"), all = source_of(config, "rope_parameters");
  check_kinds(config, type, old);
  check_kinds(config, type, all);
  if (type.has_two_ropes && is_given(all.fields) && !is_nested(all.fields))
    config.refuse("rope_parameters", fmt::format("must have full_attention and sliding_attention, as {} has a rope of "
                                                 "each",
                                                 type.name));
  Source found = part_of(config, all, layers);
  const bool is_of_window = std::string_view(layers) == "sliding_attention";
  const Source more =
      type.has_two_ropes && is_of_window && !is_nested(old.fields) ? Source{old.name} : part_of(config, old, layers);
  if (!is_given(found.fields)) return is_given(more.fields) ? more : found;
  merge(config, found, more);
  return found;
}

/// Versions of Olmo3Config differ: without a value in sliding_attention, version 4 uses the outer rope_theta for layers
/// with a window, version 5 a default of its own.
void check_window_theta(const ConfigReader& config, const ModelType& type) {
  const Source source = merged_source(config, type, "sliding_attention");
  if (source.fields.contains("rope_theta") && !source.fields["rope_theta"].is_null()) return;
  if (config.has("rope_theta") && config.number("rope_theta", 1, kMostTheta, 0) != type.theta)
    config.refuse("rope_theta", fmt::format("but layers with a window take {} where "
                                            "rope_parameters.sliding_attention.rope_theta is absent; give "
                                            "rope_parameters with a rope_theta for each kind of layers",
                                            type.theta));
}

}  // namespace

RopeForms read_rope(const ConfigReader& config, const ModelType& type, const Model& model, bool has_window) {
  const auto read = [&](const char* layers, const char* theta_field, double theta) {
    const Source source = merged_source(config, type, layers);
    return FormReader(config, type, model, source).read(theta_field, theta);
  };
  if (type.name == "olmo3" && has_window) check_window_theta(config, type);
  RopeForms forms{.full = read("full_attention", "rope_theta", type.theta)};
  // Both ropes are read even without such layers, so that their fields count as used.
  if (!type.has_two_ropes) forms.window = forms.full;
  else if (type.name == "gemma3_text") forms.window = read("sliding_attention", "rope_local_base_freq", 10000);
  else forms.window = read("sliding_attention", "rope_theta", type.theta);
  return forms;
}

}  // namespace seqtile::models

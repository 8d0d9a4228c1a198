// autotune/config_space.cpp -- see seqtile/op.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/op.h"

#include <algorithm>
#include <set>

#include "jit/base/hash.h"

namespace seqtile::autotune {
namespace {

std::string text_of(const FieldValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  return std::to_string(std::get<double>(value));
}

}  // namespace

ConfigSpace& ConfigSpace::parameter(std::string name, std::vector<FieldValue> values) {
  parameters_.push_back({std::move(name), std::move(values)});
  return *this;
}

ConfigSpace& ConfigSpace::constraint(Constraint constraint) {
  constraints_.push_back(std::move(constraint));
  return *this;
}

ConfigSpace& ConfigSpace::add(Config config) {
  extra_.push_back(std::move(config));
  return *this;
}

ConfigSpace& ConfigSpace::alternative(ConfigSpace space) {
  alternatives_.push_back(std::move(space));
  return *this;
}

std::vector<Config> ConfigSpace::enumerate() const {
  // A space without any declaration is the empty product: a kernel without parameters has one configuration.
  const bool has_product = !parameters_.empty() || (extra_.empty() && alternatives_.empty());
  std::vector<Config> found;
  if (has_product) {
    std::vector<Config> partial(1);
    for (const Parameter& parameter : parameters_) {
      std::vector<Config> longer;
      for (const Config& config : partial)
        for (const FieldValue& value : parameter.values) {
          longer.push_back(config);
          longer.back().set(parameter.name, value);
        }
      partial = std::move(longer);
    }
    for (Config& config : partial)
      if (std::none_of(constraints_.begin(), constraints_.end(), [&](const auto& c) { return c(config).has_value(); }))
        found.push_back(std::move(config));
  }
  found.insert(found.end(), extra_.begin(), extra_.end());
  for (const ConfigSpace& space : alternatives_)
    for (Config& config : space.enumerate()) found.push_back(std::move(config));

  std::set<std::string> seen;
  std::vector<Config> result;
  for (Config& config : found)
    if (seen.insert(config.json()).second) result.push_back(std::move(config));
  return result;
}

std::optional<std::string> ConfigSpace::refusal(const Config& config) const {
  if (std::find(extra_.begin(), extra_.end(), config) != extra_.end()) return std::nullopt;
  std::optional<std::string> reason;
  if (parameters_.empty() && !extra_.empty())
    reason = "it is none of the " + std::to_string(extra_.size()) + " that the operation lists";
  for (const Parameter& parameter : parameters_) {
    const auto it = config.values().find(parameter.name);
    if (it == config.values().end()) reason = "parameter " + parameter.name + " is missing";
    else if (std::find(parameter.values.begin(), parameter.values.end(), it->second) == parameter.values.end())
      reason = "parameter " + parameter.name + " cannot be " + text_of(it->second);
    if (reason) break;
  }
  for (const auto& [name, value] : config.values()) {
    if (reason) break;
    if (std::none_of(parameters_.begin(), parameters_.end(),
                     [&, &known = name](const Parameter& p) { return p.name == known; }))
      reason = "there is no parameter " + name;
  }
  for (const Constraint& constraint : constraints_) {
    if (reason) break;
    reason = constraint(config);
  }
  if (!reason && parameters_.empty() && !alternatives_.empty()) reason = "the configuration is not in the space";
  for (const ConfigSpace& space : alternatives_) {
    if (!reason) break;
    // The alternative with the configuration's parameters gives the most specific reason.
    const auto other = space.refusal(config);
    if (!other || parameters_.empty() || other->rfind("there is no", 0) == std::string::npos) reason = other;
  }
  return reason;
}

std::string ConfigSpace::hash() const {
  std::set<std::string> texts;
  for (const Config& config : enumerate()) texts.insert(config.json());
  std::string all;
  for (const std::string& text : texts) (all += text) += '\n';
  return sha256_hex(all);
}

}  // namespace seqtile::autotune

// autotune/config_space.h -- the configurations that a tuner may choose from.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autotune/fields.h"

namespace seqtile::autotune {

/// A product of named parameter values, filtered by constraints, plus configurations added by hand.
class ConfigSpace {
 public:
  /// Returns nothing when the configuration is legal, else the reason in one line ("mr * nr needs 40 registers, 32
  /// exist").
  using Constraint = std::function<std::optional<std::string>(const Config&)>;

  ConfigSpace& parameter(std::string name, std::vector<FieldValue> values);
  ConfigSpace& constraint(Constraint constraint);
  ConfigSpace& add(Config config);  ///< one configuration outside the product
  /// A further product (with its own parameters) in the same space: forms of one kernel have different parameters.
  ConfigSpace& alternative(ConfigSpace space);

  /// Every legal configuration once, in a fixed order.
  std::vector<Config> enumerate() const;
  /// The reason why `config` is not in the space, or nothing.
  std::optional<std::string> refusal(const Config& config) const;
  std::string hash() const;  ///< of the enumerated configurations

 private:
  struct Parameter {
    std::string name;
    std::vector<FieldValue> values;
  };
  std::vector<Parameter> parameters_;
  std::vector<Constraint> constraints_;
  std::vector<Config> extra_;
  std::vector<ConfigSpace> alternatives_;
};

/// Which form of its kernel a configuration is: its text parameters.
std::string form_of(const Config& config);

}  // namespace seqtile::autotune

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
  /// Returns nullopt if the configuration is legal, else the reason in one line ("mr * nr needs 40 registers, 32
  /// exist").
  using Constraint = std::function<std::optional<std::string>(const Config&)>;

  /// Adds a factor to the product: the parameter `name` takes each of `values`.
  ConfigSpace& parameter(std::string name, std::vector<FieldValue> values);
  /// Filters the product. Configurations of add() and alternative() are not filtered by it.
  ConfigSpace& constraint(Constraint constraint);
  ConfigSpace& add(Config config);  ///< one configuration outside the product
  /// Adds a whole space with parameters and constraints of its own: forms of one kernel have different parameters.
  ConfigSpace& alternative(ConfigSpace space);

  /// Every legal configuration once, in a fixed order.
  std::vector<Config> enumerate() const;
  /// The reason why `config` is not in the space; nullopt if it is.
  std::optional<std::string> refusal(const Config& config) const;
  std::string hash() const;  ///< hex SHA-256 of the set of legal configurations, whatever their order

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

/// The form of a configuration: the values of its text parameters, one a line, in the order of the parameters' names.
std::string form_of(const Config& config);

}  // namespace seqtile::autotune

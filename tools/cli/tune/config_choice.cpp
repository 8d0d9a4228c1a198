// tools/cli/tune/config_choice.cpp -- see config_choice.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/config_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "jit/base/nearest_word.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"
#include "tools/cli/errors.h"
#include "tools/cli/options.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

std::string text_of(const autotune::FieldValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

using Values = std::map<std::string, std::set<autotune::FieldValue>>;

Values values_of(const std::vector<autotune::Config>& configs) {
  Values values;
  for (const autotune::Config& config : configs)
    for (const auto& [name, value] : config.values()) values[name].insert(value);
  return values;
}

std::vector<autotune::Config> having(const autotune::Fields& given, const std::vector<autotune::Config>& configs) {
  std::vector<autotune::Config> found;
  std::copy_if(configs.begin(), configs.end(), std::back_inserter(found), [&](const autotune::Config& config) {
    return std::all_of(given.values().begin(), given.values().end(), [&](const auto& item) {
      const auto at = config.values().find(item.first);
      return at != config.values().end() && at->second == item.second;
    });
  });
  return found;
}

template <class Items, class Text>
std::string list(const Items& items, Text text) {
  std::string all;
  for (const auto& item : items) all += (all.empty() ? "" : ", ") + text(item);
  return all;
}

/// Refuses the first of `given` that no configuration has, alone or together with the values before it.
void refuse_values(const autotune::Config& given, const std::string& where,
                   const std::vector<autotune::Config>& space) {
  autotune::Fields before;
  for (const auto& [name, value] : given.values()) {
    const Values all = values_of(space), values = values_of(having(before, space));
    const std::string item = fmt::format("--config {}={}", name, text_of(value));
    if (!all.contains(name)) {
      std::vector<std::string> names;
      for (const auto& [parameter, unused] : all) names.push_back(parameter);
      bad_input(fmt::format("{}: {} has no such parameter; give one of {}{}", item, where, fmt::join(names, ", "),
                            did_you_mean(name, names)));
    }
    const std::string together = before.values().empty() ? "" : " together with " + format_fields(before);
    const auto known = values.find(name);
    if (known == values.end())
      bad_input(fmt::format("{}: no configuration of {} has {}{}; leave one out", item, where, name, together));
    if (!known->second.contains(value))
      bad_input(fmt::format("{}: no configuration of {} has this value{}, {} can be {}; give one of these", item, where,
                            together, name, list(known->second, text_of)));
    before.set(name, value);
  }
}

/// The reason why the default's other values, in `wanted`, do not go with the values common to `matching`.
std::string conflict(const autotune::Config& wanted, const std::vector<autotune::Config>& matching) {
  const Values values = values_of(matching);
  for (const auto& [name, value] : wanted.values()) {
    const auto known = values.find(name);
    if (known == values.end()) return fmt::format("goes without the default's {}", name);
    if (!known->second.contains(value))
      return fmt::format("the default's {}={} does not go with it, {} can be {}", name, text_of(value), name,
                         list(known->second, text_of));
  }
  return "does not go with the default's other values";
}

/// The configuration of `matching` that shares the most values with `wanted`, as flags.
std::string nearest(const autotune::Config& wanted, const std::vector<autotune::Config>& matching) {
  const auto shared = [&](const autotune::Config& config) {
    return std::count_if(wanted.values().begin(), wanted.values().end(), [&](const auto& item) {
      const auto at = config.values().find(item.first);
      return at != config.values().end() && at->second == item.second;
    });
  };
  const auto best = std::max_element(matching.begin(), matching.end(),
                                     [&](const auto& a, const auto& b) { return shared(a) < shared(b); });
  std::string text;
  for (const auto& [name, value] : best->values()) text += fmt::format(" --config {}={}", name, text_of(value));
  return text;
}

/// The compiler's error for a configuration whose single values are all in the space: the GPU lacks something. Else
/// empty.
std::string lack_of(const autotune::OpDef& op, const autotune::Workload& workload, const autotune::Config& config,
                    const std::vector<autotune::Config>& space, const Target& target) {
  const Values values = values_of(space);
  for (const auto& [name, value] : config.values())
    if (const auto known = values.find(name); known == values.end() || !known->second.contains(value)) return {};
  if (!target.is_gpu()) return {};
  try {
    compile(*autotune::build_kernel(op, workload, config, target), target);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

void add_config(CLI::App& app, std::vector<std::string>& items) {
  app.add_option("--config", items, "A parameter of the configuration (default: the operation's default)")
      ->type_name("KEY=VALUE");
}

autotune::Config chosen_config(const autotune::OpDef& op, const autotune::Workload& workload, int64_t length,
                               const std::vector<std::string>& items, const Target& target) {
  autotune::Config config = op.default_config(workload, length, target);
  const autotune::Fields given = parse_fields("--config", items);
  if (given.values().empty()) return config;
  for (const auto& [name, value] : given.values()) config.set(name, value);
  // A configuration of another form of the kernel has other parameters, so that `given` may also be complete by itself.
  const autotune::ConfigSpace space = op.config_space(workload, length, target);
  if (!space.refusal(config)) return config;
  if (!space.refusal(given)) return given;
  const std::vector<autotune::Config> all = space.enumerate();
  if (const std::string lack = lack_of(op, workload, config, all, target); !lack.empty())
    bad_input(fmt::format("--config {}: {}", format_fields(given), lack));
  const std::string where = fmt::format("{} at length {} for {}", op.name, length, target.name);
  refuse_values(given, where, all);
  const std::vector<autotune::Config> matching = having(given, all);
  bad_input(fmt::format("--config {}: {} for {}; give all of one, for example{}", format_fields(given),
                        conflict(config, matching), where, nearest(config, matching)));
}

}  // namespace seqtile::cli

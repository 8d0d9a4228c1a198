// tools/cli/config_choice.cpp -- see config_choice.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/config_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tools/cli/errors.h"
#include "tools/cli/options.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

std::string text_of(const autotune::FieldValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

/// Refuses a parameter or a value that no configuration has.
void refuse_values(const autotune::Config& given, const std::vector<autotune::Config>& space) {
  std::map<std::string, std::set<autotune::FieldValue>> known;
  for (const autotune::Config& config : space)
    for (const auto& [name, value] : config.values()) known[name].insert(value);
  const auto list = [](const auto& items, auto text) {
    std::string all;
    for (const auto& item : items) all += (all.empty() ? "" : ", ") + text(item);
    return all;
  };
  for (const auto& [name, value] : given.values()) {
    const auto values = known.find(name);
    if (values == known.end())
      bad_input(fmt::format("--config {}={}: there is no such parameter; there are {}", name, text_of(value),
                            list(known, [](const auto& item) { return item.first; })));
    if (!values->second.contains(value))
      bad_input(fmt::format("--config {}={}: no configuration of this length has this value; {} can be {}", name,
                            text_of(value), name, list(values->second, text_of)));
  }
}

/// The next step for values that exist, but not together with the default's others.
std::string whole_example(const autotune::Config& given, const autotune::Config& wanted,
                          const std::vector<autotune::Config>& space) {
  const auto shared = [](const autotune::Config& a, const autotune::Config& b) {
    return std::count_if(a.values().begin(), a.values().end(), [&](const auto& item) {
      const auto other = b.values().find(item.first);
      return other != b.values().end() && other->second == item.second;
    });
  };
  const autotune::Config* nearest = nullptr;
  for (const autotune::Config& config : space)
    if (shared(given, config) == static_cast<int64_t>(given.values().size()) &&
        (!nearest || shared(wanted, config) > shared(wanted, *nearest)))
      nearest = &config;
  if (!nearest) return "no configuration has these values together";
  std::string text = "give all of one, for example";
  for (const auto& [name, value] : nearest->values()) text += fmt::format(" --config {}={}", name, text_of(value));
  return text;
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
  // A configuration of another form of the kernel has other parameters, so the text may also be complete by itself.
  const autotune::ConfigSpace space = op.config_space(workload, length, target);
  if (!space.refusal(config)) return config;
  if (!space.refusal(given)) return given;
  refuse_values(given, space.enumerate());
  bad_input(fmt::format("--config {}: does not go with the default's other values; {}", format_fields(given),
                        whole_example(given, config, space.enumerate())));
}

}  // namespace seqtile::cli

// tools/cli/help/command_table.cpp -- see command_table.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/help/command_table.h"

#include <algorithm>

namespace seqtile::cli {
namespace {

/// The names in "TEXT:{topk,halving}", CLI11's text of a closed set of values.
std::vector<std::string> choices_of(const std::string& type) {
  const size_t open = type.find(":{"), close = type.find('}', open);
  std::vector<std::string> names;
  if (open == std::string::npos || close == std::string::npos) return names;
  for (size_t at = open + 2; at < close;) {
    const size_t end = std::min(type.find(',', at), close);
    names.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

FlagEntry entry_of(const CLI::Option& option) {
  FlagEntry entry;
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  if (entry.names.empty()) entry.positional = option.get_name(true);
  const std::string type = option.get_type_name();
  if (option.get_type_size() > 0) entry.choices = choices_of(type);
  if (option.get_type_size() > 0) entry.value = entry.choices.empty() ? type.substr(0, type.find(':')) : "NAME";
  entry.description = option.get_description();
  return entry;
}

void add(const CLI::App& command, const std::string& path, std::vector<CommandEntry>& table) {
  CommandEntry entry{path, command.get_group(), command.get_description(), command.get_footer(), {}, {}};
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty()) entry.flags.push_back(entry_of(*option));
  const auto is_shown = [](const CLI::App* below) { return !below->get_group().empty(); };
  for (const CLI::App* below : command.get_subcommands(is_shown)) entry.commands.push_back(below->get_name());
  table.push_back(std::move(entry));
  for (const CLI::App* below : command.get_subcommands(is_shown))
    add(*below, path.empty() ? below->get_name() : path + " " + below->get_name(), table);
}

}  // namespace

std::vector<CommandEntry> command_table(const CLI::App& app) {
  std::vector<CommandEntry> table;
  add(app, "", table);
  return table;
}

}  // namespace seqtile::cli

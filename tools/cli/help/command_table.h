// tools/cli/help/command_table.h -- the commands and flags that --help prints, as data.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace seqtile::cli {

struct FlagEntry {
  std::vector<std::string> names;    ///< "-o", "--output"; empty: a positional argument
  std::string positional;            ///< its name, else empty
  std::string value;                 ///< "FILE"; empty: a flag without a value
  std::vector<std::string> choices;  ///< the only values, where there are such
  std::string description;
  bool takes_file() const { return value == "FILE"; }
};

struct CommandEntry {
  std::string path;  ///< "cache rm"; empty: the program itself
  std::string group, description, footer;
  std::vector<std::string> commands;  ///< names of those below it
  std::vector<FlagEntry> flags;
};

/// Every command that --help shows, each before those below it.
std::vector<CommandEntry> command_table(const CLI::App& app);

}  // namespace seqtile::cli

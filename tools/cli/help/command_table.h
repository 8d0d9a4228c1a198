// tools/cli/help/command_table.h -- the commands and flags that --help prints, as data.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace seqtile::cli {

struct FlagEntry {
  std::vector<std::string> names;    ///< "-o", "--output"; empty for a positional argument
  std::string positional;            ///< name of a positional argument, else empty
  std::string value;                 ///< "FILE"; empty for a flag without a value
  std::vector<std::string> choices;  ///< the permitted values; empty: any value
  std::string description;
  bool takes_file() const { return value == "FILE"; }
};

struct CommandEntry {
  std::string path;  ///< "cache rm"; empty for the program itself
  std::string group, description, footer;
  std::vector<std::string> commands;  ///< names of the subcommands
  std::vector<FlagEntry> flags;
};

/// All commands that --help shows, each before its subcommands.
std::vector<CommandEntry> command_table(const CLI::App& app);

}  // namespace seqtile::cli

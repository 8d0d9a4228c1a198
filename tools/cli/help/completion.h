// tools/cli/help/completion.h -- scripts that complete commands, flags and their values in a shell.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string>
#include <vector>

#include "tools/cli/help/command_table.h"

namespace seqtile::cli {

/// `operations` complete the argument `operation`.
std::string bash_completion(std::span<const CommandEntry> table, const std::vector<std::string>& operations);
std::string zsh_completion(std::span<const CommandEntry> table, const std::vector<std::string>& operations);

}  // namespace seqtile::cli

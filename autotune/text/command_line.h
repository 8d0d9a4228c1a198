// autotune/text/command_line.h -- the command that messages advise, as people paste it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace seqtile::autotune {

/// "seqtile tune linear --set n=128 --cache 'my tuning.db'": `command` with flags and their values, each quoted where a
/// shell needs it. A value without a flag is an argument; a flag without a value is left out.
std::string command_line(const std::string& command, const std::vector<std::pair<std::string, std::string>>& flags);

}  // namespace seqtile::autotune

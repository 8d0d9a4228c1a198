// tools/cli/help/man_page.h -- pages for man(1), made from the command table of --help.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string>

#include "tools/cli/help/command_table.h"

namespace seqtile::cli {

/// "seqtile-cache-rm" for "cache rm".
std::string page_name(const CommandEntry& command);
/// The page of one command in roff, section 1.
std::string man_page(const CommandEntry& command, std::span<const CommandEntry> table);

}  // namespace seqtile::cli

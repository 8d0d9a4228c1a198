// tools/cli/file_conflicts.h -- no output of a command line replaces another of its files.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace seqtile::cli {

/// Whether both paths lead to one file, which need not exist.
bool is_same_path(const std::string& a, const std::string& b);

/// Compares the files of a command that was parsed. Errors: bad input for an output that is an input or another output.
void refuse_file_conflicts(const CLI::App& command);

}  // namespace seqtile::cli

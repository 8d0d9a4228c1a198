// tools/cli/simulate/simulate_foreign.h -- `seqtile simulate --ptx FILE --entry NAME`: a foreign kernel, with all
// checks.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/options.h"

namespace seqtile::cli {

struct ForeignOptions : Options {
  ForeignOptions() { device.clear(); }
  std::string ptx, entry, grid, block, cluster;
  std::vector<std::string> arguments, dumps, expectations;
  int64_t shared_bytes = 0;
  uint64_t max_instructions = uint64_t{1} << 34;
  double tolerance = -1;  ///< negative: the default of the type
  uint32_t seed = 0;
  bool profile = false, is_cooperative = false;
};

/// Adds --entry --grid --block --cluster --shared --cooperative --arg --dump --expect --tolerance --max-instructions.
void add_foreign(CLI::App& command, ForeignOptions& options);
/// The first of the flags --entry to --cooperative that is given; empty without one.
std::string foreign_flag(const ForeignOptions& options);
/// Runs the kernel once. Returns the exit code.
int run_foreign(const ForeignOptions& options);

}  // namespace seqtile::cli

// tools/cli/tune/config_choice.h -- the configuration that --config names.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "seqtile/op.h"

namespace seqtile::cli {

void add_config(CLI::App& app, std::vector<std::string>& items);  ///< --config

/// The operation's default with the parameters of `items` ("block_m=16"), or `items` alone if they are complete.
/// Errors: invalid_argument with the possible values, or with an example of values that go together.
autotune::Config chosen_config(const autotune::OpDef& op, const autotune::Workload& workload, int64_t length,
                               const std::vector<std::string>& items, const Target& target);

}  // namespace seqtile::cli

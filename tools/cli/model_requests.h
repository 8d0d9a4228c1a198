// tools/cli/model_requests.h -- makes the operations to cover from --model, --lengths and --kv-lengths.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "seqtile/model.h"
#include "seqtile/tuner.h"
#include "tools/cli/options.h"
#include "tools/cli/ranks/ranks.h"

namespace seqtile::cli {

/// Errors: invalid_argument if the file is absent or is no model.
models::Model model_of(const Options& options);

/// The operations of the model for all requested thread counts, completed by the operations' own defaults. --ranks
/// takes the operations of all ranks. An operation for which ranks have different shares is listed once for each share.
std::vector<autotune::TuneRequest> model_requests(const autotune::Registry& registry, const Options& options);
/// The operations of one rank.
std::vector<autotune::TuneRequest> rank_requests(const autotune::Registry& registry, const Options& options,
                                                 const World& world, int rank, int threads);

}  // namespace seqtile::cli

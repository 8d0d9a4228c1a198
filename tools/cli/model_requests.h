// tools/cli/model_requests.h -- from --model, --lengths and --kv-lengths to the operations that must be covered.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "autotune/tuner.h"
#include "models/file/model.h"
#include "tools/cli/options.h"
#include "tools/cli/ranks/ranks.h"

namespace seqtile::cli {

/// Errors: invalid_argument for a file that is not there or not a model.
models::Model model_of(const Options& options);

/// The operations of the model for every thread count asked for, completed by the operations' own defaults. With
/// --ranks those of all ranks, each once: an operation of which ranks have different shares is there for each share.
std::vector<autotune::TuneRequest> model_requests(const autotune::Registry& registry, const Options& options);
/// The operations of one rank.
std::vector<autotune::TuneRequest> rank_requests(const autotune::Registry& registry, const Options& options,
                                                 const World& world, int rank, int threads);

}  // namespace seqtile::cli

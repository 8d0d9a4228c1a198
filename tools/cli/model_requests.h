// tools/cli/model_requests.h -- from --model, --lengths and --kv-lengths to the operations that must be covered.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "autotune/tuner.h"
#include "kernels/model.h"
#include "tools/cli/options.h"

namespace seqtile::cli {

/// Errors: invalid_argument for a file that is not there or not a model.
kernels::Model model_of(const Options& options);

/// The operations of the model for every thread count asked for, completed by the operations' own defaults.
std::vector<autotune::TuneRequest> model_requests(const autotune::Registry& registry, const Options& options);

}  // namespace seqtile::cli

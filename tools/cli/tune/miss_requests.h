// tools/cli/tune/miss_requests.h -- what an engine's file of missed lengths asks to be tuned.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "seqtile/tuner.h"
#include "tools/cli/options.h"

namespace seqtile::cli {

struct MissRequests {
  std::string device;  ///< that the engine ran on
  std::vector<autotune::TuneRequest> requests;
  int64_t calls = 0;  ///< of all misses
};

/// One request for each run of adjacent buckets of an operation. Errors: invalid_argument on a file that is absent or
/// is not one that Engine::write_misses() writes, and on an operation or a field that this program does not know.
MissRequests read_miss_requests(const autotune::Registry& registry, const std::string& path);

}  // namespace seqtile::cli

// tools/cli/tune/explain.h -- which record answers a length, of one operation and of all of a model's.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json.hpp>

#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {

struct Explained {
  Json json;
  bool is_recorded = false;
};

/// Prints the answer for people. Errors: as the store and the device.
Explained explain_workload(const Session& session, const Options& options, const autotune::Workload& workload,
                           int64_t length);

/// `seqtile explain --model`: the model alone, or with --length each of its operations. Returns kNo where one of them
/// has no record.
int explain_model(const Session& session, const Options& options);

}  // namespace seqtile::cli

// tools/cli/tune/explain.h -- the records that answer a length, for one operation or all operations of a model.
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

/// `seqtile explain --model`: prints the model, and with --length the answer of each operation. Returns kNo if an
/// operation has no record.
int explain_model(const Session& session, const Options& options);

}  // namespace seqtile::cli

// tools/cli/cache/edit.h -- `seqtile cache rm|pin|unpin|diff`: changes to the records of a tuning.db, and between two.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tools/cli/command.h"

namespace seqtile::cli {

/// Adds the commands that change records. Each changes all that it names in one transaction, or nothing.
void add_cache_edits(CLI::App& cache, Session& session);
void add_cache_diff(CLI::App& cache, Session& session);

}  // namespace seqtile::cli

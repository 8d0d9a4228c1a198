// tools/cli/cache/edit.h -- `seqtile cache rm|pin|unpin|diff`: edits of a tuning.db, and the comparison of two.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tools/cli/command.h"

namespace seqtile::cli {

/// Adds the commands that change records. Each command changes all named records in one transaction, or none.
void add_cache_edits(CLI::App& cache, Session& session);
void add_cache_diff(CLI::App& cache, Session& session);

}  // namespace seqtile::cli

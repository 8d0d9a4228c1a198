// cache/database/schema_version.h -- whether a file has what came with its schema's version, and how it gets it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "cache/database/schema.h"
#include "cache/database/sqlite.h"

namespace seqtile::cache {

/// What a pragma says: kApplicationId, kUserVersion.
int64_t number_of(Connection& connection, const char* pragma);

/// The schema that the file has: what kUserVersion says, and where `.dump` has lost that, what its tables say.
int64_t version_of(Connection& connection, const Schema& schema);
/// False for a file of the version before, which lacks the tables that were added.
bool is_current(Connection& connection, const Schema& schema);
/// In a write transaction: adds them where they are not there.
void make_current(Connection& connection, const Schema& schema);

}  // namespace seqtile::cache

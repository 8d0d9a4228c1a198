// cache/row_codec.h -- rows of tuning.db to and from structs, under a checksum that echoes the key.
// SPDX-License-Identifier: Apache-2.0
//
// Private to cache/. The sum of a record or trial covers the table's name, the hashes of its environment and workload,
// and all fields. A row that was damaged, edited, or moved under another key therefore does not pass. -0.0 is stored as
// 0.0, because SQLite keeps a whole-numbered real as an integer.
#pragma once
#include <string>

#include "cache/database/checksum.h"
#include "cache/database/sqlite.h"
#include "cache/plan_store.h"
#include "seqtile/stores.h"

namespace seqtile::cache {

/// Limit of a plan's row; SQLite refuses a larger one.
inline constexpr int kMaxPlanBytes = 16 << 20;
/// Limit of the texts of a plan's row together, which leaves room for its hash, numbers and sum.
inline constexpr int kMaxPlanTextBytes = kMaxPlanBytes - 1024;

/// Microseconds since 1970.
int64_t unix_time_us();

/// The two hashes by which a record is found.
struct KeyHashes {
  std::string env, workload;
};
KeyHashes hash_key(const TuningKey& key);

enum class RowState {
  good,
  damaged,  ///< the sum does not match
  foreign,  ///< the sum matches, but this release does not know a value
};

/// Each insert_ function binds the columns behind the caller's columns (ids, hash) and runs the statement.
/// Each read_ function starts at `column`.
void insert_env(Statement& statement, const TuningKey& key);
void insert_workload(Statement& statement, const TuningKey& key);
void insert_record(Statement& statement, const KeyHashes& hashes, const Record& record);
void insert_trial(Statement& statement, const KeyHashes& hashes, const TrialRow& trial);
void insert_plan(Statement& statement, const StoredPlan& plan);
RowState read_env(Statement& statement, int column, TuningKey& key);
RowState read_workload(Statement& statement, int column, TuningKey& key);
RowState read_record(Statement& statement, int column, const KeyHashes& hashes, Record& record);
RowState read_trial(Statement& statement, int column, const KeyHashes& hashes, TrialRow& trial);
RowState read_plan(Statement& statement, int column, StoredPlan& plan);
/// Reads a row that begins with `hash`; the row is damaged unless its manifest has this hash.
RowState read_hashed_plan(Statement& statement, std::string& hash, StoredPlan& plan);

/// Empty if the key, record, trial or plan can be stored, else the value at fault and the reason.
std::string why_not_storable(const TuningKey& key);
std::string why_not_storable(const Record& record);
std::string why_not_storable(const TrialRow& trial);
std::string why_not_storable(const StoredPlan& plan);

}  // namespace seqtile::cache

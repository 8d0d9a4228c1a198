// cache/row_scan.h -- reads all rows of tuning.db and counts those that cannot be used.
// SPDX-License-Identifier: Apache-2.0
//
// Private to cache/.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/database/database_file.h"
#include "cache/row_codec.h"

namespace seqtile::cache {

/// Counts of rows.
struct Tally {
  int64_t rows = 0, damaged = 0, foreign = 0;
  std::vector<std::string> problems;  ///< the first bad rows that have a name

  /// Counts a row. Returns true if it can be used.
  bool take(RowState state, const std::string& bad_row_name = "");
  int64_t bad() const { return damaged + foreign; }
};

/// A part of a key (environment or workload) as found in the file.
struct StoredPart {
  std::string hash;
  TuningKey key;  ///< only the fields of this part are set
};
using Parts = std::unordered_map<int64_t, StoredPart>;

// The good rows of a table. Every row is counted.
Parts load_envs(Connection& connection, Tally& tally);
Parts load_workloads(Connection& connection, Tally& tally);
std::vector<KeyedRecord> scan_records(Connection& connection, const Parts& envs, const Parts& workloads, Tally& tally);
/// Counts every row of the file, plans included.
void scan_file(Connection& connection, Tally& tally);

/// A store that meets a bad row reports this line. The line has no number, so that a file has one of it, whichever rows
/// a command reads.
inline constexpr const char* kBadRows =
    "rows that are damaged, edited by hand or of an unknown origin are ignored; `seqtile cache check` lists them";

}  // namespace seqtile::cache

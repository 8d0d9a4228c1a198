// cache/check_report.h -- the findings of a check of a whole store.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace seqtile::cache {

/// Row counts and damage found by a full check of all rows.
struct CheckReport {
  static constexpr size_t kMaxListedProblems = 20;

  int64_t rows = 0, bad_rows = 0;
  bool is_sound = true;               ///< SQLite finds nothing wrong with the file's structure
  std::vector<std::string> problems;  ///< the first bad rows, one line each
  bool ok() const { return bad_rows == 0 && problems.empty(); }
};

}  // namespace seqtile::cache

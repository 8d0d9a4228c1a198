// cache/artifact_db.h -- compiled binaries in SQLite, per user, under a keyed MAC.
// SPDX-License-Identifier: Apache-2.0
//
// `artifacts.db` holds machine code, so it is authenticated: every row carries a BLAKE2b MAC under a random key that
// lives in a 0600 file outside the cache folder. A row whose MAC, key echo or target does not match is a miss. Anyone
// who can write as the same user is outside the threat model. Schema: docs/cache_format.md.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/check_report.h"
#include "jit/device/artifact_store.h"

namespace seqtile::cache {

struct ArtifactCounters {
  int64_t hits = 0, misses = 0;  ///< each load is a hit or a miss
  int64_t rejected = 0;          ///< misses whose row failed its MAC or key echo
  int64_t write_failures = 0;
  int64_t foreign_files = 0;  ///< files at the path that belong to another program or are the other kind of store
};

/// The repair of one damaged file.
struct ArtifactRepair {
  std::string moved_to;  ///< new path of the damaged file
  int64_t kept = 0;      ///< binaries that the new file has taken over
  bool is_whole = true;  ///< the new file has all readable binaries; else the next call continues
};

struct ArtifactCheck : CheckReport {
  std::set<std::string> good;  ///< hashes of the keys whose binaries can be loaded
  bool is_usable = true;   ///< false if no row can be read: the file is damaged beyond use, foreign, empty or locked
  bool is_locked = false;  ///< another process holds the lock
};

inline constexpr int64_t kMaxArtifactFileBytes = int64_t{2} << 30;

class ArtifactDb : public ArtifactStore {
 public:
  /// `path`: the database; `key_file`: created (0600) if absent. Never throws for content: a store that cannot be used
  /// always misses, and `status()` says why. If the file exceeds `max_file_bytes`, the least recently used binaries are
  /// dropped.
  static std::unique_ptr<ArtifactDb> open(const std::string& path, const std::string& key_file,
                                          int64_t max_file_bytes = kMaxArtifactFileBytes);
  /// A store for readers of an absent or empty file: it leaves the file as it is, and every load misses.
  static std::unique_ptr<ArtifactDb> open_empty(const std::string& path, const std::string& key_file);
  virtual std::string status() const = 0;
  virtual ArtifactCounters counters() const = 0;
  /// Searches the whole file for damage. A damaged file is moved aside, and a new file takes over the readable
  /// binaries. A repair that was cut off continues: until it is complete, the old file's name ends in ".mending".
  /// Returns an empty list for a sound file and for a file that cannot be moved; status() then gives the reason.
  virtual std::vector<ArtifactRepair> repair() = 0;
  /// The number of binaries under keys of other users.
  virtual int64_t count_others() = 0;
  /// Verifies the whole file and each of its rows; changes nothing.
  virtual ArtifactCheck check() = 0;
};

/// Where the files live unless an option or SEQTILE_CACHE_DIR / SEQTILE_CONFIG_DIR says otherwise (XDG base
/// directories). Empty where no variable names a folder: kNoDefaultPath.
std::string default_tuning_path();
std::string default_artifacts_path();
std::string default_key_path();
inline constexpr const char* kNoDefaultPath =
    "there is no default, as none of SEQTILE_CACHE_DIR, XDG_CACHE_HOME and HOME is set";

}  // namespace seqtile::cache

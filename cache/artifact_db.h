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
  int64_t hits = 0, misses = 0;  ///< every load is one of the two
  int64_t rejected = 0;          ///< the misses whose row failed its MAC or key echo
  int64_t write_failures = 0;
  int64_t foreign_files = 0;  ///< files found at the path that are another program's, or the other kind of store
};

/// What became of a damaged file.
struct ArtifactRepair {
  std::string moved_to;  ///< all that it held
  int64_t kept = 0;      ///< binaries of it that the new file has
  bool is_whole = true;  ///< they are all that can be read; else the next call goes on with the rest
};

struct ArtifactCheck : CheckReport {
  std::set<std::string> good;  ///< hashes of the keys whose binaries can be loaded
  bool is_usable = true;   ///< false where nothing of the file is read: damaged beyond use, another's, empty, locked
  bool is_locked = false;  ///< by another process
};

inline constexpr int64_t kMaxArtifactFileBytes = int64_t{2} << 30;

class ArtifactDb : public ArtifactStore {
 public:
  /// `path`: the database; `key_file`: created (0600) when absent. Never throws for content; a store that cannot be
  /// used always misses and `status()` says why. Beyond `max_file_bytes` the binaries that were not used for longest
  /// go.
  static std::unique_ptr<ArtifactDb> open(const std::string& path, const std::string& key_file,
                                          int64_t max_file_bytes = kMaxArtifactFileBytes);
  /// For who only asks of a file that is absent or empty: it stays so, every load misses.
  static std::unique_ptr<ArtifactDb> open_empty(const std::string& path, const std::string& key_file);
  virtual std::string status() const = 0;
  virtual ArtifactCounters counters() const = 0;
  /// Looks for damage in the whole file; where there is any, moves it aside and starts a new one with the binaries that
  /// can still be read. Goes on where an earlier call was cut off: until all is taken over, the old file's name ends in
  /// ".mending". Nothing for a sound file, and for one that cannot be moved: status() then says why.
  virtual std::vector<ArtifactRepair> repair() = 0;
  /// Binaries that stand in the file under other keys than this user's.
  virtual int64_t count_others() = 0;
  /// Verifies the whole file and every row of it; changes nothing.
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

// include/seqtile/stores.h -- tuning decisions and binaries in SQLite.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "seqtile/device.h"

namespace seqtile::cache {

/// Row counts and damage found by a full check of all rows.
struct CheckReport {
  static constexpr size_t kMaxListedProblems = 20;

  int64_t rows = 0, bad_rows = 0;
  bool is_sound = true;               ///< SQLite finds nothing wrong with the file's structure
  std::vector<std::string> problems;  ///< the first bad rows, one line each
  bool ok() const { return bad_rows == 0 && problems.empty(); }
};

// A TuningStore keeps tuning decisions and trials in SQLite, in a file that is shipped and that people open.
//
// One TuningStore is one file (`tuning.db`): data only, rollback journal, STRICT tables, a checksum with key echo in
// all rows. A damaged, foreign or newer row or file is a miss with one log line and a counter, never an error. A write
// that cannot be made (read-only file, full disk, lock held too long) is dropped with one log line and a counter.
// Schema and rules: docs/cache_format.md. Thread-safe (one mutex inside). All strings are UTF-8 without control
// characters.

/// Everything that decides whether a stored decision applies, except the length.
/// `env` = device and its facts, toolchain, measurement policy; `workload` = operation and static fields, dtype,
/// threads. All four are canonical JSON texts (keys sorted, no spaces) or plain names; hashes are hex SHA-256 of the
/// texts.
struct TuningKey {
  std::string device_kind;    ///< "cpu", "cuda", "sim"
  std::string device_name;    ///< CPU model or GPU name, for people
  std::string env_json;       ///< the readable manifest of the environment
  std::string operation;      ///< "linear"
  std::string source_hash;    ///< hash of the operation's name and version
  std::string workload_json;  ///< {"dtype":"bf16","k":4096,"n":4096,"threads":2,...}
  int64_t version = 0;        ///< version of the operation, for people; `source_hash` covers it
};

enum class Origin { tuned, merged, fallback, modelled, pinned };  ///< fallback is stored as "default"
std::string_view origin_name(Origin origin);

/// The decision for one (key, bucket).
struct Record {
  int64_t bucket_version = 0, lo = 0, hi = 0;
  Origin origin = Origin::fallback;
  std::string config_json;  ///< named parameters, self-describing
  std::string space_hash;   ///< hash of the configuration space declared at the time; not part of the identity
  double median_us = 0, p20_us = 0, p80_us = 0;
  double default_us = 0;  ///< median of the default configuration in the same rounds
  int64_t samples = 0;
  double max_rel_err = 0;  ///< largest error in the verification against the reference
  bool noisy = false;
  bool sliced = false;  ///< measured on a slice of the grid
  int64_t measured_length = 0;
  int64_t created_us = 0;  ///< Unix time, for people; never used for ordering
  bool operator==(const Record&) const = default;
};

/// A candidate measured or tried in one bucket; the view v_failed lists the failed ones.
struct TrialRow {
  int64_t bucket_version = 0, lo = 0, hi = 0;
  std::string config_hash, config_json;
  /// ok compile_error compile_timeout crash hang wrong_result oob_write nondeterministic oom slow refused modelled
  std::string outcome;
  std::string detail;                            ///< one line; at most 2000 bytes are kept
  double median_us = 0, p20_us = 0, p80_us = 0;  ///< of one process
  int64_t samples = 0;
  int64_t ranks = 0;  ///< number of ranks that ran the candidate together; 0: one process alone did
  double ranks_us = 0, ranks_p20_us = 0, ranks_p80_us = 0;
  bool chosen = false;  ///< all ranks chose it, in this bucket or at both ends of a range that contains it
  int64_t created_us = 0;
};

struct Counters {
  int64_t bad_rows = 0, bad_files = 0, write_failures = 0, busy = 0, foreign_rows = 0;
  int64_t foreign_files = 0;  ///< the part of `bad_files` that belongs to another program or is the other kind of store
};

enum class OpenMode {
  read_write,  ///< created when absent; falls back to read_only when it cannot be written
  read_only,   ///< never writes; works on a read-only file in a read-only folder
};

struct KeyedRecord {
  TuningKey key;
  Record record;
  /// A stored configuration that was found unfit to serve. A record that still has it is replaced whatever its origin,
  /// even if pinned.
  std::optional<std::string> unfit_config = {};
};

/// An edit of a record that was read before.
struct Replacement {
  TuningKey key;
  Record before, after;  ///< of one bucket
};

/// A row of a key that is no valid record.
struct BadRecord {
  int64_t bucket_version = 0, lo = 0, hi = 0;
  std::string reason;  ///< "it does not match its checksum"
};

class TuningStore {
 public:
  /// Never throws for the file's content. A store at a path that cannot be used always misses, and `status()` says why
  /// in one line.
  static std::unique_ptr<TuningStore> open(const std::string& path, OpenMode mode);
  virtual ~TuningStore() = default;

  virtual const std::string& path() const = 0;
  virtual bool is_writable() const = 0;
  /// Empty if all is well, else one line: what, value, next step.
  virtual std::string status() const = 0;

  /// All valid records of the key, ordered by lo. `bad` receives the invalid rows.
  virtual std::vector<Record> records(const TuningKey& key, std::vector<BadRecord>* bad = nullptr) = 0;
  /// All valid records in the file, for `cache ls` and for naming the nearest key on a miss.
  virtual std::vector<KeyedRecord> all_records() = 0;
  /// All valid trials of one (key, bucket).
  virtual std::vector<TrialRow> trials(const TuningKey& key, int64_t bucket_version, int64_t lo, int64_t hi) = 0;

  /// Inserts or replaces the record and the trials in one transaction. Returns true when the rows are durable. A pinned
  /// record is never replaced by another origin: publish() then stores the trials and returns false. Otherwise false
  /// means that nothing was stored.
  virtual bool publish(const TuningKey& key, const Record& record, const std::vector<TrialRow>& trials) = 0;
  virtual bool add_trials(const TuningKey& key, const std::vector<TrialRow>& trials) = 0;
  /// Stores many records of many keys in one transaction, for prewarm's coverage pass. A default or modelled record
  /// never replaces a tuned, merged or pinned one, which another prewarm may have stored meanwhile.
  virtual bool publish_all(const std::vector<KeyedRecord>& records) = 0;
  /// Puts every `after` in the place of its `before`, whatever the origins, in one transaction. Returns
  /// false, and stores no record, if one of the records differs from its `before`.
  virtual bool replace(const std::vector<Replacement>& edits) = 0;
  /// Deletes rows of the key that no bucket will ever replace, found by bucket version, lo and hi.
  virtual bool remove(const TuningKey& key, const std::vector<BadRecord>& rows) = 0;

  /// Deletes records in one transaction, with `with_trials` also the trials of their buckets. Returns false, and
  /// deletes nothing, if one of the records differs from what is stored.
  virtual bool remove_records(const std::vector<KeyedRecord>& records, bool with_trials) = 0;

  virtual CheckReport check() = 0;
  virtual Counters counters() const = 0;
};

// An ArtifactDb keeps compiled binaries in SQLite, per user, under a keyed MAC.
//
// `artifacts.db` holds machine code, so it is authenticated: every row carries a BLAKE2b MAC under a random key that
// lives in a 0600 file outside the cache folder. A row whose MAC, key echo or target does not match is a miss. Anyone
// who can write as the same user is outside the threat model. Schema: docs/cache_format.md.

struct ArtifactCounters {
  int64_t hits = 0, misses = 0;  ///< each load is a hit or a miss
  int64_t rejected = 0;          ///< misses whose row failed its MAC or key echo
  int64_t write_failures = 0;
  int64_t bad_files = 0;      ///< files at the path that are unusable: foreign, newer, damaged
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
  /// binaries. A repair that was cut off continues: until it is complete, the old file's name ends in ".repairing".
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

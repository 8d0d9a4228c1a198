// cache/tuning_store.h -- tuning decisions and trials in SQLite, in a file that is shipped and that people open.
// SPDX-License-Identifier: Apache-2.0
//
// One TuningStore is one file (`tuning.db`): data only, rollback journal, STRICT tables, a checksum with key echo in
// all rows. A damaged, foreign or newer row or file is a miss with one log line and a counter, never an error. A write
// that cannot be made (read-only file, full disk, lock held too long) is dropped with one log line and a counter.
// Schema and rules: docs/cache_format.md. Thread-safe (one mutex inside). All strings are UTF-8 without control
// characters.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/check_report.h"

namespace seqtile::cache {

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

/// Names the fields in which `wanted` differs from the nearest stored key (the one with the fewest differing fields),
/// e.g. "workload.threads: 2 wanted, 4 stored". Returns an empty list if the file has no record.
std::vector<std::string> nearest_key_difference(TuningStore& store, const TuningKey& wanted);

}  // namespace seqtile::cache

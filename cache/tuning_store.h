// cache/tuning_store.h -- tuning decisions and trials in SQLite: the file that ships and that people open.
// SPDX-License-Identifier: Apache-2.0
//
// One TuningStore is one file (`tuning.db`): data only, rollback journal, STRICT tables, a checksum with key echo in
// every row. A damaged, foreign or newer row or file is a miss with one log line and a counter, never an error; a
// write that cannot be made (read-only file, full disk, lock held too long) is dropped with one log line and a counter.
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
  std::string source_hash;    ///< of the operation's name and version
  std::string workload_json;  ///< {"dtype":"bf16","k":4096,"n":4096,"threads":2,...}
  int64_t version = 0;        ///< of the operation, for people; `source_hash` has it
};

enum class Origin { tuned, merged, fallback, modelled, pinned };  ///< fallback is stored as "default"
std::string_view origin_name(Origin origin);

/// The decision for one (key, bucket).
struct Record {
  int64_t bucket_version = 0, lo = 0, hi = 0;
  Origin origin = Origin::fallback;
  std::string config_json;  ///< named parameters, self-describing
  std::string space_hash;   ///< of the declared configuration space at the time; not part of the identity
  double median_us = 0, p20_us = 0, p80_us = 0;
  double default_us = 0;  ///< median of the default configuration in the same rounds
  int64_t samples = 0;
  double max_rel_err = 0;  ///< of the verification against the reference
  bool noisy = false;
  bool sliced = false;  ///< measured on a slice of the grid
  int64_t measured_length = 0;
  int64_t created_us = 0;  ///< Unix time, for people; never used for ordering
  bool operator==(const Record&) const = default;
};

/// What failed also appears in v_failed.
struct TrialRow {
  int64_t bucket_version = 0, lo = 0, hi = 0;
  std::string config_hash, config_json;
  /// ok compile_error compile_timeout crash hang wrong_result oob_write nondeterministic oom slow refused modelled
  std::string outcome;
  std::string detail;                            ///< one line; at most 2000 bytes are kept
  double median_us = 0, p20_us = 0, p80_us = 0;  ///< of one process
  int64_t samples = 0;
  int64_t ranks = 0;  ///< how many ran it together; 0: one process alone did
  double ranks_us = 0, ranks_p20_us = 0, ranks_p80_us = 0;
  bool chosen = false;  ///< by all ranks, here or at both ends of a range that has this bucket
  int64_t created_us = 0;
};

struct Counters {
  int64_t bad_rows = 0, bad_files = 0, write_failures = 0, busy = 0, foreign_rows = 0;
  int64_t foreign_files = 0;  ///< those of `bad_files` that are another program's, or the other kind of store
};

enum class OpenMode {
  read_write,  ///< created when absent; falls back to read_only when it cannot be written
  read_only,   ///< never writes; works on a read-only file in a read-only folder
};

struct KeyedRecord {
  TuningKey key;
  Record record;
  /// The stored configuration that was found unfit to serve: a record that still has it is replaced whatever its
  /// origin, pinned too.
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
  /// Never throws for the file's content. A path that cannot be used gives a store that always misses; `status()`
  /// says why in one line.
  static std::unique_ptr<TuningStore> open(const std::string& path, OpenMode mode);
  virtual ~TuningStore() = default;

  virtual const std::string& path() const = 0;
  virtual bool is_writable() const = 0;
  /// Empty when all is well, else one line: what, value, next step.
  virtual std::string status() const = 0;

  /// All valid records of the key, ordered by lo. `bad`: gets the rows that are none.
  virtual std::vector<Record> records(const TuningKey& key, std::vector<BadRecord>* bad = nullptr) = 0;
  /// Every valid record in the file (for `cache ls`, and for naming the nearest key on a miss).
  virtual std::vector<KeyedRecord> all_records() = 0;
  /// All valid trials of one (key, bucket).
  virtual std::vector<TrialRow> trials(const TuningKey& key, int64_t bucket_version, int64_t lo, int64_t hi) = 0;

  /// Inserts or replaces the record and the trials, in one transaction; when it returns true the rows are durable. A
  /// pinned record is never replaced by another origin: then false, with the trials stored. Otherwise false means
  /// nothing stored.
  virtual bool publish(const TuningKey& key, const Record& record, const std::vector<TrialRow>& trials) = 0;
  virtual bool add_trials(const TuningKey& key, const std::vector<TrialRow>& trials) = 0;
  /// One transaction for many records of many keys (prewarm's coverage pass). A default or modelled record here never
  /// replaces a tuned, merged or pinned one, which another prewarm may have stored meanwhile.
  virtual bool publish_all(const std::vector<KeyedRecord>& records) = 0;
  /// Puts every `after` in the place of its `before`, whatever the origins, in one transaction. False, with nothing
  /// stored, where one of the records is not what `before` says any more.
  virtual bool replace(const std::vector<Replacement>& edits) = 0;
  /// Deletes rows of the key that no bucket will ever replace, found by bucket version, lo and hi.
  virtual bool remove(const TuningKey& key, const std::vector<BadRecord>& rows) = 0;

  /// Deletes records, and with `with_trials` the trials of their buckets, in one transaction.
  virtual bool remove_records(const std::vector<KeyedRecord>& records, bool with_trials) = 0;

  virtual CheckReport check() = 0;
  virtual Counters counters() const = 0;
};

/// Names the fields in which `wanted` differs from the stored key that is nearest to it (fewest differing fields), e.g.
/// "workload.threads: 2 wanted, 4 stored"; empty when the file has no record.
std::vector<std::string> nearest_key_difference(TuningStore& store, const TuningKey& wanted);

}  // namespace seqtile::cache

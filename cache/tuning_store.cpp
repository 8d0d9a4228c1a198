// cache/tuning_store.cpp -- TuningStore over one SQLite file.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/stores.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "cache/database/database_file.h"
#include "cache/database/text.h"
#include "cache/row_codec.h"
#include "cache/row_scan.h"

namespace seqtile::cache {
namespace {

constexpr const char* kChangedMeanwhile = "another process has changed a record meanwhile; look again";

bool is_measured(Origin origin) { return origin == Origin::tuned || origin == Origin::merged; }

/// True if `incoming` may replace a valid record of origin `stored`.
bool may_replace(Origin stored, Origin incoming, bool keeps_measured) {
  if (stored == Origin::pinned) return incoming == Origin::pinned;
  return !(keeps_measured && is_measured(stored) && !is_measured(incoming) && incoming != Origin::pinned);
}

class SqliteTuningStore final : public TuningStore {
 public:
  SqliteTuningStore(const std::string& path, OpenMode mode)
      : file_(
            "tuning store", path,
            {.schema = &kTuningSchema, .is_read_only = mode == OpenMode::read_only, .max_value_bytes = kMaxPlanBytes}) {
  }

  const std::string& path() const override { return file_.path(); }
  bool is_writable() const override { return file_.is_writable(); }
  std::string status() const override { return file_.status(); }
  std::vector<Record> records(const TuningKey& key, std::vector<BadRecord>* bad) override;
  std::vector<KeyedRecord> all_records() override;
  std::vector<TrialRow> trials(const TuningKey& key, int64_t bucket_version, int64_t lo, int64_t hi) override;
  bool publish(const TuningKey& key, const Record& record, const std::vector<TrialRow>& trials) override;
  bool add_trials(const TuningKey& key, const std::vector<TrialRow>& trials) override;
  bool publish_all(const std::vector<KeyedRecord>& records) override;
  bool replace(const std::vector<Replacement>& edits) override;
  bool remove(const TuningKey& key, const std::vector<BadRecord>& rows) override;
  bool remove_records(const std::vector<KeyedRecord>& records, bool with_trials) override;
  CheckReport check() override;
  Counters counters() const override;

 private:
  struct KeyIds {
    KeyHashes hashes;
    int64_t env = 0, workload = 0;
  };

  KeyIds ensure_key(Connection& connection, const TuningKey& key);
  std::optional<KeyIds> find_key(Connection& connection, const TuningKey& key);
  /// Whether the file still has this very record.
  bool has(Connection& connection, const TuningKey& key, const Record& record);
  /// The valid record in the bucket of `record`.
  std::optional<Record> find_record(Connection& connection, const KeyIds& ids, const Record& record);
  bool put_record(Connection& connection, const KeyIds& ids, const Record& record, bool keeps_measured,
                  const std::optional<std::string>& unfit_config = std::nullopt);
  void insert(Connection& connection, const KeyIds& ids, const Record& record);
  void put_trials(Connection& connection, const KeyIds& ids, const std::vector<TrialRow>& trials);
  bool refuse(const std::string& reason);
  void count(const Tally& tally);
  void count_and_report(const Tally& tally);

  mutable DatabaseFile file_;
  std::atomic<int64_t> bad_rows_{0}, foreign_rows_{0};
};

void SqliteTuningStore::count(const Tally& tally) {
  bad_rows_ += tally.damaged;
  foreign_rows_ += tally.foreign;
}

void SqliteTuningStore::count_and_report(const Tally& tally) {
  count(tally);
  if (tally.bad() > 0) file_.report(kBadRows);
}

bool SqliteTuningStore::refuse(const std::string& reason) {
  if (reason.empty()) return false;
  file_.refuse_write(reason);
  return true;
}

/// The damage of the rows to which a key's records refer; empty if they are sound or absent.
std::string problem_of_key(Connection& connection, const KeyHashes& hashes) {
  const auto is_good = [&](const char* select, const std::string& hash, auto read, auto hash_of) {
    Statement statement = connection.prepare(select);
    statement.bind(hash);
    TuningKey stored;
    return !statement.step() || (read(statement, 1, stored) == RowState::good && hash_of(hash_key(stored)) == hash);
  };
  if (!is_good(kSelectEnv, hashes.env, read_env, [](const KeyHashes& h) { return h.env; }))
    return "the row of its environment does not match its checksum";
  if (!is_good(kSelectWorkload, hashes.workload, read_workload, [](const KeyHashes& h) { return h.workload; }))
    return "the row of its workload does not match its checksum";
  return {};
}

std::vector<Record> SqliteTuningStore::records(const TuningKey& key, std::vector<BadRecord>* bad) {
  const KeyHashes hashes = hash_key(key);
  std::vector<Record> found;
  Tally tally;
  std::vector<BadRecord> refused;
  file_.read([&](Connection& connection) {
    found.clear(), refused.clear(), tally = {};
    const std::string key_problem = problem_of_key(connection, hashes);
    Statement statement = connection.prepare(kSelectRecords);
    statement.bind(hashes.env);
    statement.bind(hashes.workload);
    while (statement.step()) {
      Record record;
      const RowState own = read_record(statement, 0, hashes, record);
      const bool is_good = tally.take(key_problem.empty() ? own : RowState::damaged);
      if (is_good) found.push_back(std::move(record));
      else
        refused.push_back({record.bucket_version, record.lo, record.hi,
                           own == RowState::damaged   ? "it does not match its checksum"
                           : own == RowState::foreign ? "its origin is unknown"
                                                      : key_problem});
    }
  });
  if (bad) bad->insert(bad->end(), refused.begin(), refused.end());
  count_and_report(tally);
  return found;
}

std::vector<TrialRow> SqliteTuningStore::trials(const TuningKey& key, int64_t bucket_version, int64_t lo, int64_t hi) {
  const KeyHashes hashes = hash_key(key);
  std::vector<TrialRow> found;
  Tally tally;
  file_.read([&](Connection& connection) {
    found.clear(), tally = {};
    const bool is_key_good = problem_of_key(connection, hashes).empty();
    Statement statement = connection.prepare(kSelectTrials);
    statement.bind(hashes.env);
    statement.bind(hashes.workload);
    for (const int64_t value : {bucket_version, lo, hi}) statement.bind(value);
    while (statement.step()) {
      TrialRow trial;
      const RowState own = read_trial(statement, 0, hashes, trial);
      if (tally.take(is_key_good ? own : RowState::damaged)) found.push_back(std::move(trial));
    }
  });
  count_and_report(tally);
  return found;
}

std::vector<KeyedRecord> SqliteTuningStore::all_records() {
  std::vector<KeyedRecord> found;
  Tally tally;
  file_.read([&](Connection& connection) {
    tally = {};
    const Parts envs = load_envs(connection, tally), workloads = load_workloads(connection, tally);
    found = scan_records(connection, envs, workloads, tally);
  });
  count_and_report(tally);
  return found;
}

SqliteTuningStore::KeyIds SqliteTuningStore::ensure_key(Connection& connection, const TuningKey& key) {
  KeyIds ids{.hashes = hash_key(key)};
  // A damaged row of this hash is rewritten under its id, so that the records that refer to it are valid again.
  const auto ensure = [&](const char* select, const char* insert, const std::string& hash, auto read, auto write) {
    int64_t id = 0;
    bool exists = false, is_good = false;
    {
      Statement statement = connection.prepare(select);
      statement.bind(hash);
      if ((exists = statement.step() && statement.read(0, id))) {
        TuningKey stored;
        is_good = read(statement, 1, stored) == RowState::good;
      }
    }
    if (is_good) return id;
    {
      Statement statement = connection.prepare(insert);
      if (exists) statement.bind(id);
      else statement.bind_null();
      statement.bind(hash);
      write(statement, key);
    }
    return exists ? id : static_cast<int64_t>(sqlite3_last_insert_rowid(connection.get()));
  };
  ids.env = ensure(kSelectEnv, kInsertEnv, ids.hashes.env, read_env, insert_env);
  ids.workload = ensure(kSelectWorkload, kInsertWorkload, ids.hashes.workload, read_workload, insert_workload);
  return ids;
}

std::optional<SqliteTuningStore::KeyIds> SqliteTuningStore::find_key(Connection& connection, const TuningKey& key) {
  KeyIds ids{.hashes = hash_key(key)};
  const auto find = [&](const char* select, const std::string& hash, int64_t& id) {
    Statement statement = connection.prepare(select);
    statement.bind(hash);
    return statement.step() && statement.read(0, id);
  };
  const bool is_there =
      find(kSelectEnv, ids.hashes.env, ids.env) && find(kSelectWorkload, ids.hashes.workload, ids.workload);
  return is_there ? std::optional(std::move(ids)) : std::nullopt;
}

bool SqliteTuningStore::has(Connection& connection, const TuningKey& key, const Record& record) {
  const std::optional<KeyIds> ids = find_key(connection, key);
  return ids && find_record(connection, *ids, record) == record;
}

std::optional<Record> SqliteTuningStore::find_record(Connection& connection, const KeyIds& ids, const Record& record) {
  Statement statement = connection.prepare(kSelectRecord);
  for (const int64_t value : {ids.env, ids.workload, record.bucket_version, record.lo, record.hi})
    statement.bind(value);
  Record stored;
  const bool is_good = statement.step() && read_record(statement, 0, ids.hashes, stored) == RowState::good;
  return is_good ? std::optional(std::move(stored)) : std::nullopt;
}

bool SqliteTuningStore::put_record(Connection& connection, const KeyIds& ids, const Record& record, bool keeps_measured,
                                   const std::optional<std::string>& unfit_config) {
  const std::optional<Record> stored = find_record(connection, ids, record);
  if (stored && stored->config_json != unfit_config && !may_replace(stored->origin, record.origin, keeps_measured))
    return false;
  insert(connection, ids, record);
  return true;
}

void SqliteTuningStore::insert(Connection& connection, const KeyIds& ids, const Record& record) {
  Statement statement = connection.prepare(kInsertRecord);
  statement.bind(ids.env);
  statement.bind(ids.workload);
  Record stamped = record;
  if (stamped.created_us == 0) stamped.created_us = unix_time_us();
  insert_record(statement, ids.hashes, stamped);
}

void SqliteTuningStore::put_trials(Connection& connection, const KeyIds& ids, const std::vector<TrialRow>& trials) {
  for (const TrialRow& trial : trials) {
    TrialRow clean = trial;
    clean.detail = one_line(trial.detail);
    for (double* time :
         {&clean.median_us, &clean.p20_us, &clean.p80_us, &clean.ranks_us, &clean.ranks_p20_us, &clean.ranks_p80_us}) {
      if (!std::isfinite(*time)) *time = 0;  // a failed candidate has no time
    }
    if (clean.created_us == 0) clean.created_us = unix_time_us();
    Statement statement = connection.prepare(kInsertTrial);
    statement.bind(ids.env);
    statement.bind(ids.workload);
    insert_trial(statement, ids.hashes, clean);
  }
}

bool SqliteTuningStore::publish(const TuningKey& key, const Record& record, const std::vector<TrialRow>& trials) {
  if (refuse(why_not_storable(key)) || refuse(why_not_storable(record))) return false;
  for (const TrialRow& trial : trials) {
    if (refuse(why_not_storable(trial))) return false;
  }
  bool is_stored = false;
  const bool is_committed = file_.write([&](Connection& connection) {
    const KeyIds ids = ensure_key(connection, key);
    is_stored = put_record(connection, ids, record, false);
    put_trials(connection, ids, trials);
  });
  return is_committed && is_stored;
}

bool SqliteTuningStore::add_trials(const TuningKey& key, const std::vector<TrialRow>& trials) {
  if (refuse(why_not_storable(key))) return false;
  for (const TrialRow& trial : trials) {
    if (refuse(why_not_storable(trial))) return false;
  }
  return file_.write([&](Connection& connection) { put_trials(connection, ensure_key(connection, key), trials); });
}

bool SqliteTuningStore::publish_all(const std::vector<KeyedRecord>& records) {
  for (const auto& [key, record, unfit_config] : records) {
    if (refuse(why_not_storable(key)) || refuse(why_not_storable(record))) return false;
  }
  return file_.write([&](Connection& connection) {
    for (const auto& [key, record, unfit_config] : records)
      put_record(connection, ensure_key(connection, key), record, true, unfit_config);
  });
}

bool SqliteTuningStore::replace(const std::vector<Replacement>& edits) {
  for (const Replacement& edit : edits)
    if (refuse(why_not_storable(edit.key)) || refuse(why_not_storable(edit.after))) return false;
  bool is_as_read = true;
  const bool is_committed = file_.write([&](Connection& connection) {
    is_as_read =
        std::ranges::all_of(edits, [&](const Replacement& edit) { return has(connection, edit.key, edit.before); });
    if (!is_as_read) return;
    for (const Replacement& edit : edits) insert(connection, ensure_key(connection, edit.key), edit.after);
  });
  return is_committed && !refuse(is_as_read ? "" : kChangedMeanwhile);
}

/// `sql` deletes what a key has in one bucket; `row` is a record, or a bad one.
template <class Row>
void delete_rows(Connection& connection, const char* sql, const KeyHashes& hashes, const Row& row) {
  Statement statement = connection.prepare(sql);
  statement.bind(hashes.env);
  statement.bind(hashes.workload);
  for (const int64_t value : {row.bucket_version, row.lo, row.hi}) statement.bind(value);
  statement.run();
}

bool SqliteTuningStore::remove(const TuningKey& key, const std::vector<BadRecord>& rows) {
  if (rows.empty()) return true;
  const KeyHashes hashes = hash_key(key);
  return file_.write([&](Connection& connection) {
    for (const BadRecord& row : rows) delete_rows(connection, kDeleteRecord, hashes, row);
  });
}

bool SqliteTuningStore::remove_records(const std::vector<KeyedRecord>& records, bool with_trials) {
  bool is_as_read = true;
  const bool is_committed = file_.write([&](Connection& connection) {
    is_as_read = std::ranges::all_of(
        records, [&](const KeyedRecord& keyed) { return has(connection, keyed.key, keyed.record); });
    if (!is_as_read) return;
    for (const KeyedRecord& keyed : records) {
      const KeyHashes hashes = hash_key(keyed.key);
      delete_rows(connection, kDeleteRecord, hashes, keyed.record);
      if (with_trials) delete_rows(connection, kDeleteTrials, hashes, keyed.record);
    }
  });
  return is_committed && !refuse(is_as_read ? "" : kChangedMeanwhile);
}

CheckReport SqliteTuningStore::check() {
  CheckReport report;
  Tally tally;
  const bool is_readable = file_.read([&](Connection& connection) {
    tally = {};
    scan_file(connection, tally);
    report.problems = structure_problems(connection);
    report.is_sound = report.problems.empty();
  });
  if (!is_readable) report.problems.push_back(file_.status());
  report.problems.insert(report.problems.end(), tally.problems.begin(), tally.problems.end());
  report.rows = tally.rows;
  report.bad_rows = tally.bad();
  count(tally);
  return report;
}

Counters SqliteTuningStore::counters() const {
  const FileCounters file = file_.counters();
  return {.bad_rows = bad_rows_,
          .bad_files = file.bad_files,
          .write_failures = file.write_failures,
          .busy = file.busy,
          .foreign_rows = foreign_rows_,
          .foreign_files = file.foreign_files};
}

}  // namespace

std::unique_ptr<TuningStore> TuningStore::open(const std::string& path, OpenMode mode) {
  return std::make_unique<SqliteTuningStore>(path, mode);
}

}  // namespace seqtile::cache

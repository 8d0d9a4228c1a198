// cache/tuning_store.cpp -- TuningStore over one SQLite file.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/stores.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <unordered_map>

#include "cache/database/database_file.h"
#include "cache/database/text.h"
#include "cache/row_codec.h"
#include "jit/base/hash.h"

namespace seqtile::cache {
namespace {

constexpr const char* kChangedMeanwhile = "another process has changed a record meanwhile; look again";

/// A part of a key (environment or workload) as found in the file.
struct StoredPart {
  std::string hash;
  TuningKey key;  ///< only the fields of this part are set
};
using Parts = std::unordered_map<int64_t, StoredPart>;

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
  struct Tally {
    int64_t rows = 0, damaged = 0, foreign = 0;
    std::vector<std::string> problems;  ///< the first bad rows that have a name
    /// Counts a row. Returns true if it can be used.
    bool take(RowState state, const std::string& bad_row_name = "");
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
  Parts load_envs(Connection& connection, Tally& tally);
  Parts load_workloads(Connection& connection, Tally& tally);
  void scan_trials(Connection& connection, const Parts& envs, const Parts& workloads, Tally& tally);
  void scan_plans(Connection& connection, Tally& tally);
  std::vector<KeyedRecord> scan_records(Connection& connection, const Parts& envs, const Parts& workloads,
                                        Tally& tally);
  bool refuse(const std::string& reason);
  void count(const Tally& tally);

  mutable DatabaseFile file_;
  std::atomic<int64_t> bad_rows_{0}, foreign_rows_{0};
};

bool SqliteTuningStore::Tally::take(RowState state, const std::string& bad_row_name) {
  rows++;
  if (state == RowState::good) return true;
  damaged += state == RowState::damaged;
  foreign += state == RowState::foreign;
  if (!bad_row_name.empty() && problems.size() < CheckReport::kMaxListedProblems) {
    problems.push_back(bad_row_name +
                       (state == RowState::damaged ? ": does not match its checksum" : ": unknown origin"));
  }
  return false;
}

void SqliteTuningStore::count(const Tally& tally) {
  bad_rows_ += tally.damaged;
  foreign_rows_ += tally.foreign;
  if (tally.damaged > 0) {
    file_.report(
        fmt::format("{} damaged or hand-edited rows ignored; `seqtile cache check` lists them", tally.damaged));
  }
  if (tally.foreign > 0) file_.report(fmt::format("{} rows of an unknown origin ignored", tally.foreign));
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
  file_.read([&](Connection& connection) {
    const std::string key_problem = problem_of_key(connection, hashes);
    Statement statement = connection.prepare(kSelectRecords);
    statement.bind(hashes.env);
    statement.bind(hashes.workload);
    while (statement.step()) {
      Record record;
      const RowState own = read_record(statement, 0, hashes, record);
      const bool is_good = tally.take(key_problem.empty() ? own : RowState::damaged);
      if (is_good) found.push_back(std::move(record));
      else if (bad)
        bad->push_back({record.bucket_version, record.lo, record.hi,
                        own == RowState::damaged   ? "it does not match its checksum"
                        : own == RowState::foreign ? "its origin is unknown"
                                                   : key_problem});
    }
  });
  count(tally);
  return found;
}

std::vector<TrialRow> SqliteTuningStore::trials(const TuningKey& key, int64_t bucket_version, int64_t lo, int64_t hi) {
  const KeyHashes hashes = hash_key(key);
  std::vector<TrialRow> found;
  Tally tally;
  file_.read([&](Connection& connection) {
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
  count(tally);
  return found;
}

Parts SqliteTuningStore::load_envs(Connection& connection, Tally& tally) {
  Parts parts;
  Statement statement = connection.prepare(kSelectAllEnvs);
  while (statement.step()) {
    int64_t id = 0;
    StoredPart part;
    const bool is_typed = statement.read(0, id) && statement.read(1, part.hash);
    const RowState state = read_env(statement, 2, part.key);
    const bool is_echoed = is_typed && part.hash == hash_key(part.key).env;
    if (tally.take(is_echoed ? state : RowState::damaged, fmt::format("env {}", id)))
      parts.emplace(id, std::move(part));
  }
  return parts;
}

Parts SqliteTuningStore::load_workloads(Connection& connection, Tally& tally) {
  Parts parts;
  Statement statement = connection.prepare(kSelectAllWorkloads);
  while (statement.step()) {
    int64_t id = 0;
    StoredPart part;
    const bool is_typed = statement.read(0, id) && statement.read(1, part.hash);
    const RowState state = read_workload(statement, 2, part.key);
    const bool is_echoed = is_typed && part.hash == hash_key(part.key).workload;
    if (tally.take(is_echoed ? state : RowState::damaged, fmt::format("workload {}", id)))
      parts.emplace(id, std::move(part));
  }
  return parts;
}

/// The two parts of the row's key, or null pointers if one of them is missing or damaged.
std::pair<const StoredPart*, const StoredPart*> key_parts(Statement& statement, const Parts& envs,
                                                          const Parts& workloads) {
  int64_t env_id = 0, workload_id = 0;
  if (!statement.read(0, env_id) || !statement.read(1, workload_id)) return {};
  const auto env = envs.find(env_id);
  const auto workload = workloads.find(workload_id);
  if (env == envs.end() || workload == workloads.end()) return {};
  return {&env->second, &workload->second};
}

std::string row_name(std::string_view table, Statement& statement, int64_t lo, int64_t hi) {
  int64_t env_id = 0, workload_id = 0;
  statement.read(0, env_id);
  statement.read(1, workload_id);
  return fmt::format("{} of env {}, workload {}, lengths {}..{}", table, env_id, workload_id, lo, hi);
}

std::vector<KeyedRecord> SqliteTuningStore::scan_records(Connection& connection, const Parts& envs,
                                                         const Parts& workloads, Tally& tally) {
  std::vector<KeyedRecord> found;
  Statement statement = connection.prepare(kSelectAllRecords);
  while (statement.step()) {
    const auto [env, workload] = key_parts(statement, envs, workloads);
    Record record;
    const RowState state = env ? read_record(statement, 2, {env->hash, workload->hash}, record) : RowState::damaged;
    const std::string name = state == RowState::good ? "" : row_name("record", statement, record.lo, record.hi);
    if (!tally.take(state, name)) continue;
    TuningKey key = env->key;
    key.operation = workload->key.operation;
    key.source_hash = workload->key.source_hash;
    key.workload_json = workload->key.workload_json;
    key.version = workload->key.version;
    found.push_back({std::move(key), std::move(record)});
  }
  return found;
}

void SqliteTuningStore::scan_trials(Connection& connection, const Parts& envs, const Parts& workloads, Tally& tally) {
  Statement statement = connection.prepare(kSelectAllTrials);
  while (statement.step()) {
    const auto [env, workload] = key_parts(statement, envs, workloads);
    TrialRow trial;
    const RowState state = env ? read_trial(statement, 2, {env->hash, workload->hash}, trial) : RowState::damaged;
    tally.take(state, state == RowState::good ? "" : row_name("trial", statement, trial.lo, trial.hi));
  }
}

void SqliteTuningStore::scan_plans(Connection& connection, Tally& tally) {
  Statement statement = connection.prepare(kSelectAllPlans);
  while (statement.step()) {
    std::string hash;
    StoredPlan plan;
    const RowState state = read_hashed_plan(statement, hash, plan);
    tally.take(state, fmt::format("plan {}", one_line(hash)));
  }
}

std::vector<KeyedRecord> SqliteTuningStore::all_records() {
  std::vector<KeyedRecord> found;
  Tally tally;
  file_.read([&](Connection& connection) {
    const Parts envs = load_envs(connection, tally), workloads = load_workloads(connection, tally);
    found = scan_records(connection, envs, workloads, tally);
  });
  count(tally);
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
    for (const Replacement& edit : edits) is_as_read = is_as_read && has(connection, edit.key, edit.before);
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
    for (const KeyedRecord& keyed : records) is_as_read = is_as_read && has(connection, keyed.key, keyed.record);
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
    const Parts envs = load_envs(connection, tally), workloads = load_workloads(connection, tally);
    scan_records(connection, envs, workloads, tally);
    scan_trials(connection, envs, workloads, tally);
    scan_plans(connection, tally);
    report.problems = structure_problems(connection);
    report.is_sound = report.problems.empty();
  });
  if (!is_readable) report.problems.push_back(file_.status());
  report.problems.insert(report.problems.end(), tally.problems.begin(), tally.problems.end());
  report.rows = tally.rows;
  report.bad_rows = tally.damaged + tally.foreign;
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

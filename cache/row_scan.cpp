// cache/row_scan.cpp -- see row_scan.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/row_scan.h"

#include <fmt/format.h>

#include <utility>

#include "cache/database/text.h"

namespace seqtile::cache {
namespace {

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

/// A table of parts.
struct PartTable {
  const char* name;
  const char* select;
  RowState (*read)(Statement& statement, int column, TuningKey& key);
  std::string KeyHashes::*hash;
};

Parts load_parts(Connection& connection, Tally& tally, const PartTable& table) {
  Parts parts;
  Statement statement = connection.prepare(table.select);
  while (statement.step()) {
    int64_t id = 0;
    StoredPart part;
    const bool is_typed = statement.read(0, id) && statement.read(1, part.hash);
    const RowState state = table.read(statement, 2, part.key);
    const bool is_echoed = is_typed && part.hash == hash_key(part.key).*table.hash;
    if (tally.take(is_echoed ? state : RowState::damaged, fmt::format("{} {}", table.name, id)))
      parts.emplace(id, std::move(part));
  }
  return parts;
}

std::string row_name(std::string_view table, Statement& statement, int64_t lo, int64_t hi) {
  int64_t env_id = 0, workload_id = 0;
  statement.read(0, env_id);
  statement.read(1, workload_id);
  return fmt::format("{} of env {}, workload {}, lengths {}..{}", table, env_id, workload_id, lo, hi);
}

void scan_trials(Connection& connection, const Parts& envs, const Parts& workloads, Tally& tally) {
  Statement statement = connection.prepare(kSelectAllTrials);
  while (statement.step()) {
    const auto [env, workload] = key_parts(statement, envs, workloads);
    TrialRow trial;
    const RowState state = env ? read_trial(statement, 2, {env->hash, workload->hash}, trial) : RowState::damaged;
    tally.take(state, state == RowState::good ? "" : row_name("trial", statement, trial.lo, trial.hi));
  }
}

void scan_plans(Connection& connection, Tally& tally) {
  Statement statement = connection.prepare(kSelectAllPlans);
  while (statement.step()) {
    std::string hash;
    StoredPlan plan;
    const RowState state = read_hashed_plan(statement, hash, plan);
    tally.take(state, fmt::format("plan {}", one_line(hash)));
  }
}

}  // namespace

bool Tally::take(RowState state, const std::string& bad_row_name) {
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

Parts load_envs(Connection& connection, Tally& tally) {
  return load_parts(connection, tally, {"env", kSelectAllEnvs, read_env, &KeyHashes::env});
}

Parts load_workloads(Connection& connection, Tally& tally) {
  return load_parts(connection, tally, {"workload", kSelectAllWorkloads, read_workload, &KeyHashes::workload});
}

std::vector<KeyedRecord> scan_records(Connection& connection, const Parts& envs, const Parts& workloads, Tally& tally) {
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

void scan_file(Connection& connection, Tally& tally) {
  const Parts envs = load_envs(connection, tally), workloads = load_workloads(connection, tally);
  scan_records(connection, envs, workloads, tally);
  scan_trials(connection, envs, workloads, tally);
  scan_plans(connection, tally);
}

}  // namespace seqtile::cache

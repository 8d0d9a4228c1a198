// cache/row_codec.cpp -- see row_codec.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/row_codec.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "cache/database/text.h"
#include "jit/base/hash.h"

namespace seqtile::cache {
namespace {

constexpr Origin kOrigins[] = {Origin::tuned, Origin::merged, Origin::fallback, Origin::modelled, Origin::pinned};

// Each function visits the fields of a row in the order of its columns, for writing, reading and summing alike.
template <class Row, class Visit>
void visit_record(Row& r, Visit&& visit) {
  visit(r.bucket_version), visit(r.lo), visit(r.hi), visit(r.origin), visit(r.config_json);
  visit.hash_of(r.config_json), visit(r.space_hash);
  visit(r.median_us), visit(r.p20_us), visit(r.p80_us), visit(r.default_us), visit(r.samples), visit(r.max_rel_err);
  visit(r.noisy), visit(r.sliced), visit(r.measured_length), visit(r.created_us);
}

template <class Row, class Visit>
void visit_trial(Row& t, Visit&& visit) {
  visit(t.bucket_version), visit(t.lo), visit(t.hi), visit(t.config_hash), visit(t.config_json), visit(t.outcome);
  visit(t.detail), visit(t.median_us), visit(t.p20_us), visit(t.p80_us), visit(t.samples), visit(t.ranks);
  visit(t.ranks_us), visit(t.ranks_p20_us), visit(t.ranks_p80_us), visit(t.chosen), visit(t.created_us);
}

template <class Key, class Visit>
void visit_env(Key& k, Visit&& visit) {
  visit(k.device_kind), visit(k.device_name), visit(k.env_json);
}

template <class Key, class Visit>
void visit_workload(Key& k, Visit&& visit) {
  visit(k.operation), visit(k.source_hash), visit(k.version), visit(k.workload_json);
}

template <class Plan, class Visit>
void visit_plan(Plan& p, Visit&& visit) {
  visit(p.manifest_json), visit(p.records_json), visit(p.plan_json), visit(p.objective), visit(p.lower_bound);
  visit(p.is_exact), visit(p.ms), visit(p.created_us);
}

FieldSum start_sum(std::string_view table) {
  FieldSum sum;
  sum.add(table);
  return sum;
}

FieldSum start_sum(std::string_view table, const KeyHashes& hashes) {
  FieldSum sum = start_sum(table);
  sum.add(hashes.env).add(hashes.workload);
  return sum;
}

class RowWriter {
 public:
  RowWriter(Statement& statement, const FieldSum& sum) : statement_(statement), sum_(sum) {}
  void operator()(int64_t value) { put(value); }
  void operator()(double value) { put(value + 0.0); }  // -0.0 + 0.0 is 0.0
  void operator()(const std::string& value) { put(std::string_view(value)); }
  void operator()(bool value) { put(int64_t{value}); }
  void operator()(Origin value) { put(origin_name(value)); }
  void hash_of(const std::string& text) { put(std::string_view(sha256_hex(text))); }
  void run() {
    const std::string row_sum = sum_.finish();
    statement_.bind_blob(std::as_bytes(std::span(row_sum)));
    statement_.run();
  }

 private:
  template <class T>
  void put(T value) {
    statement_.bind(value);
    sum_.add(value);
  }
  Statement& statement_;
  FieldSum sum_;
};

class RowReader {
 public:
  RowReader(Statement& statement, int column, const FieldSum& sum)
      : statement_(statement), column_(column), sum_(sum) {}
  void operator()(int64_t& value) { take(value); }
  void operator()(double& value) { take(value); }
  void operator()(std::string& value) { take(value); }
  void operator()(bool& value) {
    int64_t number = 0;
    take(number);
    value = number != 0;
  }
  void operator()(Origin& value) {
    std::string name;
    take(name);
    is_known_ = false;
    for (const Origin origin : kOrigins) {
      if (origin_name(origin) == name) value = origin, is_known_ = true;
    }
  }
  /// Reads a hash column, which enters the sum like any text. The hashed text was summed before.
  void hash_of(const std::string&) {
    std::string hash;
    take(hash);
  }
  RowState finish() {
    std::span<const std::byte> stored;
    if (!is_typed_ || !statement_.read_blob(column_, stored)) return RowState::damaged;
    const std::string sum = sum_.finish();
    const std::string_view stored_sum(reinterpret_cast<const char*>(stored.data()), stored.size());
    if (sum != stored_sum) return RowState::damaged;
    return is_known_ ? RowState::good : RowState::foreign;
  }

 private:
  template <class T>
  void take(T& value) {
    if (!statement_.read(column_++, value)) {
      is_typed_ = false;
      return;
    }
    if constexpr (std::is_same_v<T, std::string>) sum_.add(std::string_view(value));
    else sum_.add(value);
  }
  Statement& statement_;
  int column_;
  FieldSum sum_;
  bool is_typed_ = true, is_known_ = true;
};

std::string why_not_number(std::string_view name, double value) {
  return std::isfinite(value) ? "" : fmt::format("{} is {}, a finite number is needed", name, value);
}

/// The first non-empty complaint, or an empty text.
std::string first_of(std::initializer_list<std::string> complaints) {
  for (const auto& complaint : complaints) {
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string why_not_bucket(int64_t lo, int64_t hi) {
  return lo >= 0 && lo <= hi ? "" : fmt::format("the bucket [{}, {}] is not a range of lengths", lo, hi);
}

}  // namespace

int64_t unix_time_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

std::string_view origin_name(Origin origin) {
  switch (origin) {
    case Origin::tuned: return "tuned";
    case Origin::merged: return "merged";
    case Origin::fallback: return "default";
    case Origin::modelled: return "modelled";
    case Origin::pinned: return "pinned";
  }
  return "unknown";
}

KeyHashes hash_key(const TuningKey& key) {
  // The texts have no control characters, so that a newline between them is unambiguous and a shell can make the hash.
  return {sha256_hex(key.device_kind + "\n" + key.env_json),
          sha256_hex(key.operation + "\n" + key.source_hash + "\n" + key.workload_json)};
}

void insert_env(Statement& statement, const TuningKey& key) {
  RowWriter writer(statement, start_sum("env"));
  visit_env(key, writer);
  writer.run();
}

void insert_workload(Statement& statement, const TuningKey& key) {
  RowWriter writer(statement, start_sum("workload"));
  visit_workload(key, writer);
  writer.run();
}

void insert_record(Statement& statement, const KeyHashes& hashes, const Record& record) {
  RowWriter writer(statement, start_sum("record", hashes));
  visit_record(record, writer);
  writer.run();
}

void insert_trial(Statement& statement, const KeyHashes& hashes, const TrialRow& trial) {
  RowWriter writer(statement, start_sum("trial", hashes));
  visit_trial(trial, writer);
  writer.run();
}

void insert_plan(Statement& statement, const StoredPlan& plan) {
  RowWriter writer(statement, start_sum("plan"));
  visit_plan(plan, writer);
  writer.run();
}

RowState read_env(Statement& statement, int column, TuningKey& key) {
  RowReader reader(statement, column, start_sum("env"));
  visit_env(key, reader);
  return reader.finish();
}

RowState read_workload(Statement& statement, int column, TuningKey& key) {
  RowReader reader(statement, column, start_sum("workload"));
  visit_workload(key, reader);
  return reader.finish();
}

RowState read_record(Statement& statement, int column, const KeyHashes& hashes, Record& record) {
  RowReader reader(statement, column, start_sum("record", hashes));
  visit_record(record, reader);
  return reader.finish();
}

RowState read_trial(Statement& statement, int column, const KeyHashes& hashes, TrialRow& trial) {
  RowReader reader(statement, column, start_sum("trial", hashes));
  visit_trial(trial, reader);
  return reader.finish();
}

RowState read_plan(Statement& statement, int column, StoredPlan& plan) {
  RowReader reader(statement, column, start_sum("plan"));
  visit_plan(plan, reader);
  return reader.finish();
}

RowState read_hashed_plan(Statement& statement, std::string& hash, StoredPlan& plan) {
  const bool is_typed = statement.read(0, hash);
  const RowState state = read_plan(statement, 1, plan);
  return is_typed && hash == sha256_hex(plan.manifest_json) ? state : RowState::damaged;
}

std::string why_not_storable(const TuningKey& key) {
  return first_of({why_not_text("device_kind", key.device_kind), why_not_text("device_name", key.device_name),
                   why_not_text("env_json", key.env_json), why_not_text("operation", key.operation),
                   why_not_text("source_hash", key.source_hash), why_not_text("workload_json", key.workload_json)});
}

std::string why_not_storable(const Record& record) {
  return first_of({why_not_bucket(record.lo, record.hi), why_not_text("config_json", record.config_json),
                   why_not_text("space_hash", record.space_hash), why_not_number("median_us", record.median_us),
                   why_not_number("p20_us", record.p20_us), why_not_number("p80_us", record.p80_us),
                   why_not_number("default_us", record.default_us), why_not_number("max_rel_err", record.max_rel_err)});
}

std::string why_not_storable(const TrialRow& trial) {
  const std::string complaint =
      first_of({why_not_bucket(trial.lo, trial.hi), why_not_text("config_hash", trial.config_hash),
                why_not_text("config_json", trial.config_json), why_not_text("outcome", trial.outcome)});
  if (!complaint.empty() || trial.outcome != "ok") return complaint;
  return first_of({why_not_number("median_us", trial.median_us), why_not_number("p20_us", trial.p20_us),
                   why_not_number("p80_us", trial.p80_us), why_not_number("ranks_us", trial.ranks_us),
                   why_not_number("ranks_p20_us", trial.ranks_p20_us),
                   why_not_number("ranks_p80_us", trial.ranks_p80_us)});
}

std::string why_not_storable(const StoredPlan& plan) {
  constexpr size_t kMost = kMaxPlanTextBytes;
  const size_t bytes = plan.manifest_json.size() + plan.records_json.size() + plan.plan_json.size();
  if (bytes > kMost)
    return fmt::format("manifest, records and plan have {} bytes together, at most {} are stored", bytes, kMost);
  return first_of({why_not_text("manifest", plan.manifest_json), why_not_text("records", plan.records_json, kMost),
                   why_not_text("plan", plan.plan_json, kMost), why_not_number("objective", plan.objective),
                   why_not_number("lower_bound", plan.lower_bound), why_not_number("ms", plan.ms)});
}

}  // namespace seqtile::cache

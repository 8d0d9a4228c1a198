// tests/cache/tuning_store_test.cpp -- rows of tuning.db are read back unchanged, and people can read the file.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/stores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "jit/base/hash.h"
#include "tests/cache/support.h"

using namespace seqtile;
using namespace seqtile::cache;
using namespace seqtile::test;

namespace {

bool same_trial(const TrialRow& a, const TrialRow& b) {
  return a.bucket_version == b.bucket_version && a.lo == b.lo && a.hi == b.hi && a.config_hash == b.config_hash &&
         a.config_json == b.config_json && a.outcome == b.outcome && a.detail == b.detail &&
         a.median_us == b.median_us && a.p20_us == b.p20_us && a.p80_us == b.p80_us && a.samples == b.samples &&
         a.created_us == b.created_us;
}

bool same_key(const TuningKey& a, const TuningKey& b) {
  return a.device_kind == b.device_kind && a.device_name == b.device_name && a.env_json == b.env_json &&
         a.operation == b.operation && a.source_hash == b.source_hash && a.workload_json == b.workload_json;
}

}  // namespace

TEST_CASE("tuning store: records and trials come back as they were published", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("new/folders/tuning.db");
  const std::vector<TrialRow> trials{sample_trial(1), sample_trial(2, "crash"), sample_trial(3)};
  {
    auto store = TuningStore::open(path, OpenMode::read_write);
    CHECK(store->status() == "");
    CHECK(store->is_writable());
    CHECK(store->records(sample_key()).empty());
    REQUIRE(store->publish(sample_key(), sample_record(9, 16), {}));
    REQUIRE(store->publish(sample_key(), sample_record(5, 8), trials));
    REQUIRE(store->publish(sample_key(8192), sample_record(5, 8, Origin::fallback), {}));
  }
  for (const OpenMode mode : {OpenMode::read_only, OpenMode::read_write}) {
    auto store = TuningStore::open(path, mode);
    const auto records = store->records(sample_key());
    REQUIRE(records.size() == 2);
    CHECK(same_record(records[0], sample_record(5, 8)));
    CHECK(same_record(records[1], sample_record(9, 16)));
    const auto stored = store->trials(sample_key(), 1, 5, 8);
    REQUIRE(stored.size() == 3);
    for (size_t i = 0; i < 3; ++i) CHECK(same_trial(stored[i], trials[i]));
    CHECK(store->trials(sample_key(), 1, 9, 16).empty());
    CHECK(store->trials(sample_key(), 2, 5, 8).empty());
    const auto all = store->all_records();
    REQUIRE(all.size() == 3);
    CHECK(same_key(all[0].key, sample_key()));
    CHECK(same_key(all[2].key, sample_key(8192)));
    CHECK(all[2].record.origin == Origin::fallback);
    const CheckReport report = store->check();
    CHECK(report.ok());
    CHECK(report.rows == 1 + 2 + 3 + 3);
    CHECK(store->counters().bad_rows == 0);
  }
}

TEST_CASE("tuning store: every origin and unusual values survive", "[cache]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  TuningKey key = sample_key();
  key.env_json = R"({"name":"\"quoted\" µ-arch 核"})";
  int64_t lo = 1;
  for (const Origin origin : {Origin::tuned, Origin::merged, Origin::fallback, Origin::modelled, Origin::pinned}) {
    Record record = sample_record(lo, lo, origin);
    record.median_us = lo * 1e-300;
    record.p80_us = 1e300;
    record.default_us = -0.0;
    record.max_rel_err = 1.0 / 3;
    record.samples = std::numeric_limits<int64_t>::max();
    REQUIRE(store->publish(key, record, {}));
    const auto records = store->records(key);
    REQUIRE(records.size() == static_cast<size_t>(lo));
    CHECK(same_record(records.back(), record));
    lo++;
  }
  CHECK(store->check().ok());
}

TEST_CASE("tuning store: a later record replaces an earlier one, except a pinned one", "[cache]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  const auto origin_now = [&] {
    const auto records = store->records(sample_key());
    REQUIRE(records.size() == 1);
    return records[0].origin;
  };
  REQUIRE(store->publish(sample_key(), sample_record(5, 8, Origin::fallback), {}));
  REQUIRE(store->publish(sample_key(), sample_record(5, 8, Origin::tuned), {}));
  CHECK(origin_now() == Origin::tuned);

  // The coverage pass must not undo measurements of another prewarm, and must store the other records.
  REQUIRE(store->publish_all({{sample_key(), sample_record(5, 8, Origin::fallback)},
                              {sample_key(8192), sample_record(5, 8, Origin::fallback)}}));
  CHECK(origin_now() == Origin::tuned);
  CHECK(store->records(sample_key(8192)).size() == 1);

  REQUIRE(store->publish(sample_key(), sample_record(5, 8, Origin::pinned), {}));
  for (const Origin origin : {Origin::tuned, Origin::merged, Origin::fallback, Origin::modelled}) {
    CHECK_FALSE(store->publish(sample_key(), sample_record(5, 8, origin), {sample_trial(1)}));
    CHECK(store->publish_all({{sample_key(), sample_record(5, 8, origin)}}));
    CHECK(origin_now() == Origin::pinned);
  }
  CHECK(store->trials(sample_key(), 1, 5, 8).size() == 1);
  Record other = sample_record(5, 8, Origin::pinned);
  other.config_json = R"({"block_m":1})";
  CHECK(store->publish(sample_key(), other, {}));
  CHECK(store->records(sample_key())[0].config_json == other.config_json);
}

TEST_CASE("tuning store: a trial measured again replaces the earlier one", "[cache]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  REQUIRE(store->add_trials(sample_key(), {sample_trial(1), sample_trial(2)}));
  TrialRow again = sample_trial(1, "hang");
  REQUIRE(store->add_trials(sample_key(), {again}));
  const auto trials = store->trials(sample_key(), 1, 5, 8);
  REQUIRE(trials.size() == 2);
  CHECK(trials[0].outcome == "hang");
}

TEST_CASE("tuning store: what a compiler printed is stored as one clean line of at most 2000 bytes", "[cache]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  TrialRow trial = sample_trial(1, "compile_error");
  trial.detail = "error:\n\tbad \x1b[31mred\x1b[0m \xff\xc3 é \xc2\x9b" + std::string(3000, 'x');
  trial.median_us = std::nan("");
  REQUIRE(store->add_trials(sample_key(), {trial}));
  const auto stored = store->trials(sample_key(), 1, 5, 8);
  REQUIRE(stored.size() == 1);
  CHECK(stored[0].detail.size() == 2000);
  CHECK(stored[0].detail.rfind("error:  bad  [31mred [0m ?? é ??xxx", 0) == 0);
  CHECK(stored[0].median_us == 0);
  CHECK(store->check().ok());
}

TEST_CASE("tuning store: values that cannot be stored are refused with a counter", "[cache]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  Record record = sample_record();
  record.median_us = std::nan("");
  CHECK_FALSE(store->publish(sample_key(), record, {}));
  record = sample_record(8, 5);
  CHECK_FALSE(store->publish(sample_key(), record, {}));
  record = sample_record();
  record.config_json = "{\"a\":\"\x1b[2J\"}";
  CHECK_FALSE(store->publish(sample_key(), record, {}));
  TuningKey key = sample_key();
  key.operation = "two\nlines";
  CHECK_FALSE(store->publish(key, sample_record(), {}));
  key = sample_key();
  key.env_json = std::string(20000, 'x');
  CHECK_FALSE(store->publish(key, sample_record(), {}));
  CHECK(store->counters().write_failures == 5);
  CHECK(store->all_records().empty());
}

TEST_CASE("tuning store: a thousand records of one key load in a few milliseconds", "[cache]") {
  const TempFolder folder;
  {
    auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
    std::vector<KeyedRecord> records;
    for (int i = 0; i < 1000; ++i) records.push_back({sample_key(), sample_record(8 * i + 1, 8 * i + 8)});
    REQUIRE(store->publish_all(records));
  }
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_only);
  const double start = cpu_seconds();
  REQUIRE(store->records(sample_key()).size() == 1000);
  const double seconds = cpu_seconds() - start;
  INFO("records: " << seconds * 1e3 << " ms");
  CHECK(seconds < 0.1);  // about 3 ms on an idle machine without sanitizers
  // The query is one search by key, not a scan.
  for (const auto& line : run_sql(folder.file("tuning.db"),
                                  "EXPLAIN QUERY PLAN SELECT * FROM record WHERE env_id=(SELECT env_id FROM env WHERE "
                                  "env_hash='x') AND workload_id=(SELECT workload_id FROM workload WHERE "
                                  "workload_hash='y') ORDER BY bucket_version, lo, hi")) {
    CHECK(line.find("SCAN") == std::string::npos);
    CHECK(line.find("TEMP B-TREE") == std::string::npos);
  }
}

TEST_CASE("tuning store: threads may share one store", "[cache]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        failures += !store->publish(sample_key(t), sample_record(i + 1, i + 1), {sample_trial(i)});
        failures += store->records(sample_key(t)).size() != static_cast<size_t>(i + 1);
        store->counters();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(store->all_records().size() == 40);
}

TEST_CASE("tuning store: an edit takes the place of what was read, or changes nothing", "[cache]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  const Record first = sample_record(5, 8), second = sample_record(9, 16, Origin::pinned);
  for (const Record& record : {first, second}) REQUIRE(store->publish(sample_key(), record, {}));
  Record pinned = first, unpinned = second;
  pinned.origin = Origin::pinned, unpinned.origin = Origin::fallback;
  const std::vector<Replacement> edits = {{sample_key(), first, pinned}, {sample_key(), second, unpinned}};

  Record tuned = second;  // by another process, between the reading and the edit
  tuned.median_us = 11;
  REQUIRE(store->publish(sample_key(), tuned, {}));
  CHECK_FALSE(store->replace(edits));
  CHECK(store->counters().write_failures == 1);
  CHECK(store->records(sample_key()) == std::vector<Record>{first, tuned});

  REQUIRE(store->publish(sample_key(), second, {}));
  CHECK(store->replace(edits));
  CHECK(store->records(sample_key()) == std::vector<Record>{pinned, unpinned});
  CHECK_FALSE(store->replace({{sample_key(), sample_record(17, 18), sample_record(17, 18)}}));  // no such record
  CHECK(store->records(sample_key()).size() == 2);
}

TEST_CASE("tuning store: removed records leave their trials, or take them along, and nothing else", "[cache]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  for (const int n : {4096, 8192})
    for (const auto& [lo, hi] : {std::pair{5, 8}, {9, 16}})
      REQUIRE(store->publish(sample_key(n), sample_record(lo, hi), {sample_trial(1, "ok", lo, hi)}));
  const bool with_trials = GENERATE(false, true);
  Record other = sample_record(5, 8);  // what somebody saw before a tuning
  other.median_us += 1;
  CHECK_FALSE(store->remove_records({{sample_key(), sample_record(9, 16)}, {sample_key(), other}}, with_trials));
  CHECK(store->counters().write_failures == 1);
  CHECK(store->records(sample_key()).size() == 2);
  REQUIRE(store->remove_records({{sample_key(), sample_record(5, 8)}}, with_trials));
  REQUIRE(store->records(sample_key()).size() == 1);
  CHECK(store->records(sample_key())[0].lo == 9);
  CHECK(store->records(sample_key(8192)).size() == 2);
  CHECK(store->trials(sample_key(), 1, 5, 8).size() == (with_trials ? 0 : 1));
  CHECK(store->trials(sample_key(), 1, 9, 16).size() == 1);
  CHECK(store->trials(sample_key(8192), 1, 5, 8).size() == 1);
  CHECK(store->check().ok());
}

TEST_CASE("tuning store: the views answer in plain SQL", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  {
    auto store = TuningStore::open(path, OpenMode::read_write);
    Record record = sample_record(1, 1);
    // The buckets are two adjacent ones of one configuration, a gap, another one of the same, then another
    // configuration.
    for (const auto& [lo, hi] : {std::pair{1, 1}, {2, 2}, {5, 8}}) {
      record.lo = lo, record.hi = hi;
      REQUIRE(store->publish(sample_key(), record, {}));
    }
    record.lo = 9, record.hi = 16, record.config_json = R"({"block_m":16})", record.origin = Origin::merged;
    REQUIRE(
        store->publish(sample_key(), record,
                       {sample_trial(0, "ok", 9, 16), sample_trial(10, "ok", 9, 16), sample_trial(3, "hang", 9, 16)}));
  }
  CHECK(run_sql(path, "SELECT device, operation, lengths, origin, median_us, speedup, config FROM v_best WHERE lo=9") ==
        std::vector<std::string>{R"(Test CPU @ 2.0GHz|linear|9..16|merged|12.5|2.0|{"block_m":16})"});
  CHECK(run_sql(path, "SELECT lengths, buckets, origins, mean_speedup FROM v_coverage") ==
        std::vector<std::string>{"1..2|2|tuned|2.0", "5..8|1|tuned|2.0", "9..16|1|merged|2.0"});
  CHECK(run_sql(path, "SELECT lengths, outcome, median_us, times_best, config FROM v_trials") ==
        std::vector<std::string>{R"(9..16|ok|10.0|1.0|{"block_m":0})", R"(9..16|ok|20.0|2.0|{"block_m":10})",
                                 R"(9..16|hang|13.0|1.3|{"block_m":3})"});
  CHECK(run_sql(path, "SELECT operation, lengths, outcome, config FROM v_failed") ==
        std::vector<std::string>{R"(linear|9..16|hang|{"block_m":3})"});
  CHECK(run_sql(path, "SELECT kind, device, records, trials, manifest FROM v_env") ==
        std::vector<std::string>{"cpu|Test CPU @ 2.0GHz|4|3|" + sample_key().env_json});
}

TEST_CASE("tuning store: views of decisions show the newest version of each operation", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  auto store = TuningStore::open(path, OpenMode::read_write);
  TuningKey newer = sample_key(), other = sample_key();
  newer.version = 4, newer.source_hash = std::string(64, 'c');
  other.version = 1, other.operation = "softmax";
  Record old_buckets = sample_record(5, 8);
  old_buckets.bucket_version = 0;
  REQUIRE(store->publish(sample_key(), sample_record(5, 8), {}));
  REQUIRE(store->publish(other, sample_record(9, 16), {}));
  REQUIRE(store->publish(newer, old_buckets, {}));
  const std::string query = "SELECT operation, version, lengths FROM v_best ORDER BY operation";
  CHECK(run_sql(path, query) ==
        std::vector<std::string>{"softmax|1|9..16"});  // the buckets of version 4 are of another ladder
  REQUIRE(store->publish(newer, sample_record(1, 1), {}));
  CHECK(run_sql(path, query) == std::vector<std::string>{"linear|4|1..1", "softmax|1|9..16"});
  CHECK(run_sql(path, "SELECT operation, version, lengths FROM v_coverage ORDER BY operation") ==
        std::vector<std::string>{"linear|4|1..1", "softmax|1|9..16"});
  CHECK(run_sql(path, "SELECT count(*) FROM record") == std::vector<std::string>{"4"});
}

TEST_CASE("tuning store: a record finds its configuration's trial by the hash, and what all ranks found is columns",
          "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  auto store = TuningStore::open(path, OpenMode::read_write);
  const Record record = sample_record(5, 8);
  TrialRow own = sample_trial(1), other = sample_trial(2), failed = sample_trial(3, "crash"),
           later = sample_trial(4, "oom");
  own.config_json = record.config_json, own.config_hash = sha256_hex(record.config_json);
  own.ranks = 2, own.ranks_us = 850.1, own.ranks_p20_us = 841, own.ranks_p80_us = 863.2, own.chosen = true;
  other.ranks = 2, other.ranks_us = 900;
  failed.ranks = 2;
  REQUIRE(store->publish(sample_key(), record, {own, other, failed, later}));
  CHECK(run_sql(path, "SELECT config, ranks, chosen FROM v_best") ==
        std::vector<std::string>{R"({"block_m":8,"block_n":64}|2|1)"});
  CHECK(run_sql(path, "SELECT ranks, ranks_us, ranks_p20_us, ranks_p80_us, chosen FROM v_trials WHERE ranks_us > 0") ==
        std::vector<std::string>{"2|850.1|841.0|863.2|1", "2|900.0|NULL|NULL|0"});
  CHECK(run_sql(path, "SELECT outcome, tried_again, ranks FROM v_failed") ==
        std::vector<std::string>{"crash|no|2", "oom|yes|0"});
  const auto found = store->trials(sample_key(), 1, 5, 8);
  REQUIRE(found.size() == 4);
  const auto chosen = std::find_if(found.begin(), found.end(), [](const TrialRow& row) { return row.chosen; });
  REQUIRE(chosen != found.end());
  CHECK(chosen->ranks == 2);
  CHECK(chosen->ranks_us == 850.1);
  CHECK(store->check().ok());
}

TEST_CASE("tuning store: a person's own view and index do not make the file foreign", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  REQUIRE(TuningStore::open(path, OpenMode::read_write)->publish(sample_key(), sample_record(), {}));
  run_sql(path, "DROP VIEW v_best; CREATE VIEW mine AS SELECT 1; CREATE INDEX own ON record(median_us); ANALYZE");
  auto store = TuningStore::open(path, OpenMode::read_write);
  CHECK(store->status() == "");
  CHECK(store->records(sample_key()).size() == 1);
  CHECK(store->publish(sample_key(), sample_record(9, 16), {}));
  CHECK(store->check().ok());
}

TEST_CASE("tuning store: a row edited by hand, or moved under another key, is a miss until it is tuned again",
          "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  {
    auto store = TuningStore::open(path, OpenMode::read_write);
    REQUIRE(store->publish(sample_key(), sample_record(5, 8), {}));
    REQUIRE(store->publish(sample_key(), sample_record(9, 16), {}));
    REQUIRE(store->publish(sample_key(8192), sample_record(17, 18), {}));
  }
  run_sql(path, "UPDATE record SET config='{\"block_m\":999}' WHERE lo=5; UPDATE record SET workload_id=1 WHERE lo=17");
  auto store = TuningStore::open(path, OpenMode::read_write);
  REQUIRE(store->records(sample_key()).size() == 1);
  CHECK(store->records(sample_key())[0].lo == 9);
  CHECK(store->records(sample_key(8192)).empty());
  CHECK(store->counters().bad_rows == 4);
  const CheckReport report = store->check();
  CHECK(report.bad_rows == 2);
  CHECK_FALSE(report.ok());
  REQUIRE(report.problems.size() == 2);
  CHECK(report.problems[0].find("lengths 5..8") != std::string::npos);
  REQUIRE(store->publish(sample_key(), sample_record(5, 8), {}));
  CHECK(store->records(sample_key()).size() == 2);
}

TEST_CASE("tuning store: a damaged environment row heals when its key is published again", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  REQUIRE(TuningStore::open(path, OpenMode::read_write)->publish(sample_key(), sample_record(), {}));
  run_sql(path, "UPDATE env SET manifest='{}'; UPDATE workload SET operation='other'");
  auto store = TuningStore::open(path, OpenMode::read_write);
  CHECK(store->all_records().empty());
  CHECK(store->records(sample_key()).empty());  // the record's own sum holds, but its key's sums do not
  REQUIRE(store->publish(sample_key(), sample_record(9, 16), {}));
  CHECK(store->all_records().size() == 2);
  CHECK(store->records(sample_key()).size() == 2);
  CHECK(store->check().ok());
}

TEST_CASE("tuning store: an origin of a later release is foreign, not damaged", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  auto store = TuningStore::open(path, OpenMode::read_write);
  Record record = sample_record();
  record.origin = static_cast<Origin>(99);  // stored as "unknown", under a valid sum
  REQUIRE(store->publish(sample_key(), record, {}));
  CHECK(store->records(sample_key()).empty());
  CHECK(store->counters().foreign_rows == 1);
  CHECK(store->counters().bad_rows == 0);
}

// tests/cache/tuning_damage_test.cpp -- flipped bytes and cut files give fewer answers, never a wrong one.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "tests/cache/support.h"

using namespace seqtile;
using namespace seqtile::cache;
using namespace seqtile::test;

namespace {

/// Makes a store of two keys and a few records and trials in small pages. Returns the bytes of the file.
std::string small_store(const std::string& path, std::vector<KeyedRecord>& truth, int page_bytes = 512,
                        const std::string& extra_sql = "") {
  truth = {{sample_key(), sample_record(1, 1)},
           {sample_key(), sample_record(5, 8, Origin::merged)},
           {sample_key(), sample_record(9, 16)},
           {sample_key(8192), sample_record(5, 8, Origin::pinned)},
           {sample_key(8192), sample_record(9, 16, Origin::fallback)}};
  {
    auto store = TuningStore::open(path, OpenMode::read_write);
    for (const auto& [key, record, unfit] : truth) {
      REQUIRE(store->publish(key, record, {sample_trial(1, "ok", record.lo, record.hi)}));
    }
    REQUIRE(store->check().ok());
  }
  run_sql(path, fmt::format("PRAGMA page_size={}; {}; VACUUM", page_bytes, extra_sql));
  return read_bytes(path);
}

/// True if all answers of the store are stored records.
bool answers_are_true(TuningStore& store, const std::vector<KeyedRecord>& truth, size_t& served) {
  const auto is_stored = [&](const TuningKey& key, const Record& record) {
    for (const auto& entry : truth) {
      if (entry.key.workload_json == key.workload_json && same_record(entry.record, record)) return true;
    }
    return false;
  };
  bool is_true = true;
  for (const auto& key : {sample_key(), sample_key(8192)}) {
    for (const auto& record : store.records(key)) {
      is_true &= is_stored(key, record);
      served++;
    }
    for (const auto& trial : store.trials(key, 1, 5, 8)) {
      is_true &= trial.outcome == "ok" && trial.config_json == fmt::format(R"({{"block_m":{}}})", trial.median_us - 10);
    }
  }
  for (const auto& [key, record, unfit] : store.all_records()) {
    is_true &=
        is_stored(key, record) && key.env_json == sample_key().env_json && key.device_name == sample_key().device_name;
  }
  return is_true;
}

void remove_side_files(const std::string& path) {
  for (const char* suffix : {"-journal", "-wal", "-shm"}) unlink((path + suffix).c_str());
}

}  // namespace

TEST_CASE("tuning damage: each byte flipped in turn never serves a wrong record", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  std::vector<KeyedRecord> truth;
  // The views are dropped to save time, since the library never reads them; the next test keeps them.
  const std::string bytes = small_store(path, truth, 512,
                                        "DROP VIEW v_best; DROP VIEW v_coverage; DROP VIEW v_current; "
                                        "DROP VIEW v_trials; DROP VIEW v_failed; DROP VIEW v_env; DROP VIEW v_plans");
  INFO(bytes.size() << " bytes");
  REQUIRE(bytes.size() < 20000);
  size_t served = 0, noticed = 0, slowest_byte = 0;
  double slowest = 0;
  const int file = open(path.c_str(), O_WRONLY);
  REQUIRE(file >= 0);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char damaged = static_cast<char>(bytes[i] ^ (i % 2 ? 0xff : 1 << (i / 2 % 8)));
    REQUIRE(pwrite(file, &damaged, 1, static_cast<off_t>(i)) == 1);
    const double start = cpu_seconds();
    {
      auto store = TuningStore::open(path, OpenMode::read_only);
      if (!answers_are_true(*store, truth, served)) FAIL("byte " << i << ": a wrong record was served");
      const Counters counters = store->counters();
      noticed += counters.bad_rows + counters.bad_files > 0;
    }
    REQUIRE(pwrite(file, &bytes[i], 1, static_cast<off_t>(i)) == 1);
    if (const double seconds = cpu_seconds() - start; seconds > slowest) slowest = seconds, slowest_byte = i;
    remove_side_files(path);
  }
  close(file);
  INFO("noticed " << noticed << ", served " << served << ", slowest " << slowest << " s of processor time at byte "
                  << slowest_byte);
  // Most bytes are schema text, views and free space; rows are served as long as theirs are whole.
  CHECK(served > bytes.size() * truth.size() / 3);
  CHECK(noticed > bytes.size() / 10);
  CHECK(slowest < 5);
}

TEST_CASE("tuning damage: writing into a flipped file never spoils a true record", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  std::vector<KeyedRecord> truth;
  const std::string bytes = small_store(path, truth);
  const Record added = sample_record(17, 18);
  auto with_added = truth;
  with_added.push_back({sample_key(), added});
  size_t stored = 0, tries = 0, served = 0;
  // All bytes of the file's header are flipped, then a sample of the others.
  for (size_t i = 0; i < bytes.size(); i += i < 100 ? 1 : 13) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0xff);
    write_bytes(path, damaged);
    tries++;
    {
      auto store = TuningStore::open(path, OpenMode::read_write);
      const bool is_stored = store->publish(sample_key(), added, {sample_trial(2)});
      stored += is_stored;
      if (!answers_are_true(*store, with_added, served)) FAIL("byte " << i << ": a wrong record was served");
      store->check();
    }
    remove_side_files(path);
  }
  INFO(stored << " of " << tries << " stored");
  CHECK(stored > tries / 4);
  CHECK(served > 0);
}

TEST_CASE("tuning damage: a file cut at each page and in between never serves a wrong record", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  std::vector<KeyedRecord> truth;
  const std::string bytes = small_store(path, truth);
  size_t served = 0;
  for (size_t size = 1; size < bytes.size(); size += (size % 512 == 0 ? 100 : 512 - size % 512)) {
    write_bytes(path, bytes.substr(0, size));
    {
      auto store = TuningStore::open(path, OpenMode::read_write);
      if (!answers_are_true(*store, truth, served)) FAIL("cut at " << size << ": a wrong record was served");
      CHECK_FALSE(store->check().ok());
      store->publish(sample_key(), sample_record(17, 18), {});
    }
    remove_side_files(path);
  }
  write_bytes(path, bytes);
  auto store = TuningStore::open(path, OpenMode::read_write);
  served = 0;
  CHECK(answers_are_true(*store, truth, served));
  CHECK(served == truth.size());
}

TEST_CASE("tuning damage: after the first damaged page nothing more is written", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  std::vector<KeyedRecord> truth;
  std::string bytes = small_store(path, truth, 4096);
  // The page of the records is found by a text that only records have.
  const size_t at = bytes.find(R"({"block_m":16,)");
  REQUIRE(at != std::string::npos);
  bytes[at / 4096 * 4096] = 0x55;  // no type of a page
  write_bytes(path, bytes);
  auto store = TuningStore::open(path, OpenMode::read_write);
  size_t served = 0;
  CHECK(answers_are_true(*store, truth, served));
  CHECK(store->status().find("damaged") != std::string::npos);
  CHECK(store->counters().bad_files > 0);
  CHECK_FALSE(store->is_writable());
  CHECK_FALSE(store->publish(sample_key(), sample_record(17, 18), {}));
  CHECK_FALSE(store->check().ok());
  CHECK(read_bytes(path) == bytes);
}

TEST_CASE("tuning damage: a file whose damage no reading meets is not written either", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  std::vector<KeyedRecord> truth;
  std::string bytes =
      small_store(path, truth, 4096, "CREATE TABLE mine (x); INSERT INTO mine VALUES ('a page of mine')");
  const size_t at = bytes.find("a page of mine");
  REQUIRE(at != std::string::npos);
  bytes[at / 4096 * 4096] = 0x55;  // no type of a page
  write_bytes(path, bytes);
  auto store = TuningStore::open(path, OpenMode::read_write);
  CHECK(store->records(sample_key()).size() == 3);
  CHECK_FALSE(store->publish(sample_key(), sample_record(17, 18), {}));
  CHECK(store->status().find("damaged") != std::string::npos);
  CHECK(store->records(sample_key()).size() == 3);
  CHECK(read_bytes(path) == bytes);
}

// tests/cache/tuning_process_test.cpp -- with many writers and killed writers, all acknowledged rows are there.
// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <set>

#include "tests/cache/support.h"

using namespace seqtile;
using namespace seqtile::cache;
using namespace seqtile::test;

TEST_CASE("tuning store: eight processes publish 300 records each into one file and none is lost", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  std::vector<pid_t> children;
  for (int c = 0; c < 8; ++c) {
    children.push_back(start_child([&, c] {
      // All writers find no file and race to make it.
      auto store = TuningStore::open(path, OpenMode::read_write);
      bool is_good = true;
      for (int i = 1; i <= 300; ++i) is_good &= store->publish(sample_key(c), sample_record(i, i), {sample_trial(i)});
      return is_good;
    }));
  }
  for (const pid_t child : children) CHECK(wait_child(child));
  auto store = TuningStore::open(path, OpenMode::read_only);
  for (int c = 0; c < 8; ++c) CHECK(store->records(sample_key(c)).size() == 300);
  CHECK(store->check().ok());
}

TEST_CASE("tuning store: killed while it makes the file, the next one makes it", "[cache][fault]") {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    const TempFolder folder;
    const std::string path = folder.file("tuning.db");
    const pid_t writer = start_child([&] {
      TuningStore::open(path, OpenMode::read_write);
      pause();
      return true;
    });
    usleep(random() % 6000);
    kill(writer, SIGKILL);
    wait_child(writer);
    auto store = TuningStore::open(path, OpenMode::read_write);
    INFO("round " << round << ": " << store->status());
    REQUIRE(store->status() == "");
    REQUIRE(store->check().ok());
    REQUIRE(store->publish(sample_key(), sample_record(), {}));
  }
}

TEST_CASE("tuning store: a killed writer loses nothing that it acknowledged", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  std::mt19937 random(7);
  std::set<int64_t> acknowledged;
  int64_t next = 1;
  for (int round = 0; round < 20; ++round) {
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    const pid_t writer = start_child([&] {
      close(pipe_ends[0]);
      auto store = TuningStore::open(path, OpenMode::read_write);
      for (int64_t i = next;; ++i) {
        if (!store->publish(sample_key(), sample_record(i, i),
                            {sample_trial(1, "ok", i, i), sample_trial(2, "hang", i, i)})) {
          return false;
        }
        if (write(pipe_ends[1], &i, sizeof i) != sizeof i) return false;
      }
    });
    close(pipe_ends[1]);
    int64_t row = 0;
    // Every fourth writer may be killed while it opens or makes the file, the others while they write.
    if (round % 4 != 0) {
      REQUIRE(read(pipe_ends[0], &row, sizeof row) == sizeof row);
      acknowledged.insert(row);
    }
    usleep(2000 + random() % 60000);
    kill(writer, SIGKILL);
    while (read(pipe_ends[0], &row, sizeof row) == sizeof row) acknowledged.insert(row);
    close(pipe_ends[0]);
    CHECK_FALSE(wait_child(writer));

    auto store = TuningStore::open(path, OpenMode::read_write);
    const CheckReport report = store->check();
    INFO("round " << round << ": " << (report.problems.empty() ? "" : report.problems[0]));
    REQUIRE(report.ok());
    std::set<int64_t> stored;
    for (const auto& record : store->records(sample_key())) {
      stored.insert(record.lo);
      REQUIRE(same_record(record, sample_record(record.lo, record.lo)));
      // A record never stands without its trials, because one transaction writes both.
      REQUIRE(store->trials(sample_key(), 1, record.lo, record.hi).size() == 2);
    }
    for (const int64_t i : acknowledged) REQUIRE(stored.count(i) == 1);
    // At most one row a round was committed and not yet acknowledged.
    CHECK(stored.size() <= acknowledged.size() + static_cast<size_t>(round) + 1);
    next = (stored.empty() ? 0 : *stored.rbegin()) + 1;
  }
  CHECK(acknowledged.size() >= 15);
}

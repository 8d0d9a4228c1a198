// tests/cache/found_files_test.cpp -- stores that were restored, left in WAL mode, made by other users, or shared.
// SPDX-License-Identifier: Apache-2.0
#include <regex>

#include "jit/base/hash.h"
#include "seqtile/stores.h"
#include "tests/cache/support.h"

using namespace seqtile;
using namespace seqtile::cache;
using namespace seqtile::test;

namespace {

void make_store(const std::string& path) {
  auto store = TuningStore::open(path, OpenMode::read_write);
  REQUIRE(store->publish(sample_key(), sample_record(), {sample_trial(1)}));
  REQUIRE(chmod(path.c_str(), 0644) == 0);
}

bool serves(const std::string& path, OpenMode mode) {
  auto store = TuningStore::open(path, mode);
  return store->records(sample_key()).size() == 1 && store->check().ok();
}

/// Copies as `sqlite3 old .dump | sqlite3 copy` does: tables and rows, without the two numbers.
void restore_dump(const std::string& old, const std::string& copy) {
  std::string script = "ATTACH '" + old + "' AS old;";
  for (const std::string& text : run_sql(old, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"))
    script += text + ";";
  for (const std::string& table : run_sql(old, "SELECT name FROM sqlite_schema WHERE type = 'table'"))
    script += "INSERT INTO main." + table + " SELECT * FROM old." + table + ";";
  run_sql(copy, script);
  REQUIRE(run_sql(copy, "PRAGMA application_id; PRAGMA user_version") == std::vector<std::string>{"0", "0"});
}

std::string marks(const std::string& path) {
  std::string text;
  for (const std::string& mark : run_sql(path, "PRAGMA application_id; PRAGMA user_version")) text += mark + " ";
  return text;
}

/// Ends a writer in WAL mode without closing, so that its last changes lie in the -wal file alone.
void leave_a_log(const std::string& path) {
  REQUIRE(run_in_child([&] {
    sqlite3* database = nullptr;
    return sqlite3_open(path.c_str(), &database) == SQLITE_OK &&
           sqlite3_exec(database, "PRAGMA journal_mode=WAL; CREATE TABLE note(x)", nullptr, nullptr, nullptr) == 0;
  }));
  REQUIRE(std::filesystem::file_size(path + "-wal") > 0);
}

/// A writer that is killed within a commit: the file has new pages, and the journal beside it has the old ones.
void leave_a_journal(const std::string& path) {
  REQUIRE(run_in_child([&] {
    sqlite3* database = nullptr;
    return sqlite3_open(path.c_str(), &database) == SQLITE_OK &&
           sqlite3_exec(database,
                        "PRAGMA cache_size=1; BEGIN IMMEDIATE; CREATE TABLE note AS WITH RECURSIVE n(x) AS "
                        "(SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100000) SELECT x FROM n",
                        nullptr, nullptr, nullptr) == SQLITE_OK;
  }));
  REQUIRE(std::filesystem::file_size(path + "-journal") > 0);
}

ArtifactKey artifact_key(int number) {
  ArtifactKey key{"", fmt::format(R"({{"operation":"linear","number":{}}})", number)};
  key.hash = sha256_hex(key.manifest);
  return key;
}

KernelBinary binary(int number) {
  return {.symbol = "linear",
          .target = "cpu:avx2",
          .stage = "blob",
          .code = std::vector<std::byte>(500, static_cast<std::byte>(number))};
}

}  // namespace

TEST_CASE("found files: a restored dump serves, and gets back what the dump has lost", "[cache]") {
  const TempFolder folder;
  const std::string old = folder.file("old.db"), copy = folder.file("copy.db");
  make_store(old);
  restore_dump(old, copy);
  const std::string bytes = read_bytes(copy);
  CHECK(serves(copy, OpenMode::read_only));
  CHECK(read_bytes(copy) == bytes);
  CHECK(serves(copy, OpenMode::read_write));
  CHECK(marks(copy) == marks(old));
  auto store = TuningStore::open(copy, OpenMode::read_write);
  CHECK(store->status() == "");
  CHECK(store->publish(sample_key(), sample_record(9, 16), {}));
}

TEST_CASE("found files: a restored dump of binaries serves them", "[cache]") {
  const TempFolder folder;
  const std::string old = folder.file("old.db"), copy = folder.file("copy.db"), key = folder.file("key");
  REQUIRE(ArtifactDb::open(old, key)->store(artifact_key(1), binary(1)));
  restore_dump(old, copy);
  CHECK(ArtifactDb::open(copy, key)->load(artifact_key(1)));
  CHECK(marks(copy) == marks(old));
}

TEST_CASE("found files: a dump whose tables have other words is said to be one", "[cache]") {
  const TempFolder folder;
  const std::string tuning = folder.file("tuning.db"), artifacts = folder.file("artifacts.db");
  const std::string key = folder.file("key"), words = "not in the words of schema";
  make_store(tuning);
  REQUIRE(ArtifactDb::open(artifacts, key)->store(artifact_key(1), binary(1)));
  const auto rewrite = [&](const std::string& from, const char* name, const char* pattern, const char* to) {
    std::string script;
    for (const std::string& text : run_sql(from, "SELECT sql FROM sqlite_schema WHERE type = 'table' ORDER BY rowid"))
      script += std::regex_replace(text, std::regex(pattern), to) + ";";
    run_sql(folder.file(name), script);
    return folder.file(name);
  };
  const auto check = [&](const std::string& path) {
    const std::string bytes = read_bytes(path);
    for (const OpenMode mode : {OpenMode::read_only, OpenMode::read_write}) {
      auto store = TuningStore::open(path, mode);
      CHECK_THAT(store->status(), Catch::Contains("has the tables of a tuning store") && Catch::Contains(words) &&
                                      Catch::Contains("`sqlite3 FILE .dump`"));
      CHECK(store->counters().foreign_files == 0);
      CHECK(store->counters().bad_files == 1);
      CHECK_FALSE(store->publish(sample_key(), sample_record(), {}));
    }
    CHECK(read_bytes(path) == bytes);
  };
  check(rewrite(tuning, "quoted.db", "CREATE TABLE (\\w+)", "CREATE TABLE IF NOT EXISTS \"$1\""));
  check(rewrite(tuning, "plain.db", "\\) STRICT", ")"));
  check(rewrite(tuning, "earlier.db", "  ranks INTEGER.*\n", ""));
  const std::string binaries = rewrite(artifacts, "binaries.db", "  -- .*", "");
  CHECK_THAT(ArtifactDb::open(binaries, key)->status(), Catch::Contains("has the tables of an artifact store"));
  CHECK_THAT(TuningStore::open(binaries, OpenMode::read_only)->status(),
             Catch::Contains("is an artifact store (artifacts.db), not a tuning store"));
}

TEST_CASE("found files: words of other tables without marks are another program's", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("other.db");
  run_sql(path, "CREATE TABLE record(x); CREATE TABLE env(x)");
  const std::string bytes = read_bytes(path);
  auto store = TuningStore::open(path, OpenMode::read_write);
  CHECK(store->status().find("another program's SQLite database") != std::string::npos);
  CHECK(store->counters().foreign_files == 1);
  CHECK(ArtifactDb::open(path, folder.file("key"))->counters().foreign_files == 1);
  CHECK_FALSE(store->publish(sample_key(), sample_record(), {}));
  CHECK(read_bytes(path) == bytes);
}

TEST_CASE("found files: WAL mode serves in every folder, also with a log that was left behind", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  SECTION("in a folder that can be written") {
    run_sql(path, "PRAGMA journal_mode=WAL");
    CHECK(serves(path, OpenMode::read_only));
    CHECK(serves(path, OpenMode::read_write));
    CHECK(run_sql(path, "PRAGMA journal_mode") == std::vector<std::string>{"delete"});
  }
  SECTION("with a log, in a folder that can be written") {
    leave_a_log(path);
    CHECK(serves(path, OpenMode::read_only));
    CHECK(serves(path, OpenMode::read_write));
    CHECK_FALSE(std::filesystem::exists(path + "-wal"));
  }
  SECTION("in a folder that cannot be written") {
    run_sql(path, "PRAGMA journal_mode=WAL");
    REQUIRE(chmod(folder.path().c_str(), 0555) == 0);
    CHECK(run_as_nobody([&] { return serves(path, OpenMode::read_only); }));
    CHECK(run_as_nobody([&] {
      auto store = TuningStore::open(path, OpenMode::read_write);
      return store->records(sample_key()).size() == 1 && !store->is_writable() &&
             !store->publish(sample_key(), sample_record(9, 16), {}) &&
             store->status().find("cannot be written (in WAL mode, in a folder that is not writable)") !=
                 std::string::npos;
    }));
  }
  SECTION("a log in a folder that cannot be written is named, with what to do") {
    leave_a_log(path);
    unlink((path + "-shm").c_str());
    REQUIRE(chmod(folder.path().c_str(), 0555) == 0);
    CHECK(run_as_nobody([&] {
      auto store = TuningStore::open(path, OpenMode::read_only);
      const std::string status = store->status();
      return status.find("tuning.db-wal") != std::string::npos &&
             status.find("sqlite3 tuning.db 'PRAGMA journal_mode=DELETE'") != std::string::npos;
    }));
  }
  chmod(folder.path().c_str(), 0755);
}

TEST_CASE("found files: what a writer left that was killed within a commit is rolled back", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db"), journal = path + "-journal";
  make_store(path);
  const std::string bytes = read_bytes(path);
  SECTION("by a store that is opened for reading") {
    leave_a_journal(path);
    CHECK(serves(path, OpenMode::read_only));
    CHECK((read_bytes(path) == bytes && !std::filesystem::exists(journal)));
  }
  SECTION("by a store that was open before") {
    auto store = TuningStore::open(path, OpenMode::read_only);
    REQUIRE(store->records(sample_key()).size() == 1);
    leave_a_journal(path);
    CHECK(store->records(sample_key()).size() == 1);
    CHECK(store->counters().bad_files == 0);
    CHECK(store->status() == "");
  }
  SECTION("by a store that is opened for writing") {
    leave_a_journal(path);
    CHECK(TuningStore::open(path, OpenMode::read_write)->publish(sample_key(), sample_record(9, 16), {}));
  }
  SECTION("of binaries") {
    const std::string binaries = folder.file("artifacts.db"), key = folder.file("key");
    REQUIRE(ArtifactDb::open(binaries, key)->store(artifact_key(1), binary(1)));
    leave_a_journal(binaries);
    CHECK(ArtifactDb::open(binaries, key)->load(artifact_key(1)));
    leave_a_journal(binaries);
    CHECK(ArtifactDb::open_empty(binaries, key)->load(artifact_key(1)));
  }
}

TEST_CASE("found files: a journal that cannot be rolled back is named, with what to do", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db"), copy = folder.file("copy.db");
  make_store(path);
  leave_a_journal(path);
  const auto is_told = [&](const std::string& fixed) {
    return run_as_nobody([&] {
      auto store = TuningStore::open(path, OpenMode::read_only);
      const std::string status = store->status();
      return store->records(sample_key()).empty() &&
             status.find("a program that ended early has left " + path + "-journal") != std::string::npos &&
             status.find(fixed + " is not writable; copy both files") != std::string::npos &&
             status.find("run there: sqlite3 tuning.db 'PRAGMA journal_mode=DELETE'") != std::string::npos;
    });
  };
  if (geteuid() != 0) return;  // only root becomes another user
  REQUIRE(chmod(folder.path().c_str(), 0555) == 0);
  CHECK(is_told("the folder"));
  REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
  CHECK(is_told("the file"));
  REQUIRE(chmod(path.c_str(), 0666) == 0);
  REQUIRE(chmod((path + "-journal").c_str(), 0444) == 0);
  CHECK(is_told("that one"));
  std::filesystem::copy(path, copy);
  std::filesystem::copy(path + "-journal", copy + "-journal");
  run_sql(copy, "PRAGMA journal_mode=DELETE");
  CHECK(serves(copy, OpenMode::read_only));
}

TEST_CASE("found files: a fixed file that is replaced is looked at again", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db"), other = folder.file("other.db");
  make_store(path);
  {
    auto store = TuningStore::open(other, OpenMode::read_write);
    REQUIRE(store->publish(sample_key(7), sample_record(), {}));
  }
  REQUIRE(chmod(other.c_str(), 0644) == 0);
  for (const std::string& each : {path, other}) run_sql(each, "PRAGMA journal_mode=WAL");
  REQUIRE(chmod(folder.path().c_str(), 0555) == 0);
  int to_child[2], to_parent[2];
  REQUIRE((pipe(to_child) == 0 && pipe(to_parent) == 0));
  const pid_t child = start_child([&] {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return false;
    auto store = TuningStore::open(path, OpenMode::read_only);
    const bool had_first = store->records(sample_key()).size() == 1;
    char go = 0;
    return write(to_parent[1], "x", 1) == 1 && read(to_child[0], &go, 1) == 1 && had_first &&
           store->records(sample_key()).empty() && store->records(sample_key(7)).size() == 1;
  });
  char ready = 0;
  CHECK(read(to_parent[0], &ready, 1) == 1);
  CHECK(rename(other.c_str(), path.c_str()) == 0);  // root may rename it
  CHECK(write(to_child[1], "x", 1) == 1);
  CHECK(wait_child(child));
  for (const int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(end);
  chmod(folder.path().c_str(), 0755);
}

TEST_CASE("found files: what another user owns is said to be that user's", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  REQUIRE(chmod(folder.path().c_str(), 0755) == 0);
  if (geteuid() != 0) return;  // only root can become another user
  CHECK(run_as_nobody([&] {
    auto store = TuningStore::open(path, OpenMode::read_write);
    return store->records(sample_key()).size() == 1 &&
           store->status().find("cannot be written (read-only file of user 0)") != std::string::npos;
  }));
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  CHECK(run_as_nobody([&] {
    return TuningStore::open(path, OpenMode::read_only)
               ->status()
               .find("belongs to user 0 and has mode 0600, this is user 65534; name a file of your own") !=
           std::string::npos;
  }));
  CHECK(run_as_nobody([&] {
    return TuningStore::open(folder.file("new/tuning.db"), OpenMode::read_write)
               ->status()
               .find("folder " + folder.file("new") + " cannot be made: Permission denied") != std::string::npos;
  }));
  CHECK(run_as_nobody([&] {
    return TuningStore::open(folder.file("new.db"), OpenMode::read_write)
               ->status()
               .find("cannot be made: folder " + folder.path() + " is not writable for user 65534") !=
           std::string::npos;
  }));
}

TEST_CASE("found files: a link to nothing, a pipe and a folder are named as what they are", "[cache]") {
  const TempFolder folder;
  const auto status = [&](const char* name) {
    return TuningStore::open(folder.file(name), OpenMode::read_write)->status();
  };
  std::filesystem::create_symlink(folder.file("nowhere"), folder.file("link.db"));
  CHECK(status("link.db").find("is a symbolic link to nothing; remove it, or name another file") != std::string::npos);
  REQUIRE(mkfifo(folder.file("pipe.db").c_str(), 0600) == 0);
  CHECK(status("pipe.db").find("is not a regular file") != std::string::npos);
  std::filesystem::create_directory(folder.file("folder.db"));
  CHECK(status("folder.db").find("is a folder; name a file in it") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.file("nowhere")));
}

TEST_CASE("found files: two keys live in one file of binaries, and neither replaces the other's", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("artifacts.db");
  const auto open = [&](const char* key) { return ArtifactDb::open(path, folder.file(key)); };
  for (int i = 0; i < 3; ++i) REQUIRE(open("first")->store(artifact_key(i), binary(i)));
  for (int i = 1; i < 4; ++i) REQUIRE(open("second")->store(artifact_key(i), binary(100 + i)));
  const std::string bytes = read_bytes(path);
  for (int round = 0; round < 2; ++round) {
    auto first = open("first"), second = open("second");
    for (int i = 0; i < 3; ++i) CHECK(first->load(artifact_key(i))->code == binary(i).code);
    for (int i = 1; i < 4; ++i) CHECK(second->load(artifact_key(i))->code == binary(100 + i).code);
    CHECK((first->count_others() == 3 && second->count_others() == 3 && open("third")->count_others() == 6));
    CHECK_FALSE(first->load(artifact_key(3)));
    CHECK_FALSE(second->load(artifact_key(0)));
    CHECK(first->counters().rejected + second->counters().rejected == 0);
    CHECK(first->check().ok());
    CHECK(first->check().good.size() == 3);
    CHECK(second->check().good.contains(artifact_key(3).hash));
  }
  CHECK(read_bytes(path) == bytes);
  run_sql(path, "UPDATE artifact SET code = zeroblob(499)");
  CHECK(open("first")->check().bad_rows == 3);  // only the second user can verify the second user's rows
}

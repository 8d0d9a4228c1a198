// tests/cache/tuning_file_test.cpp -- paths without a usable tuning.db give misses, and no file is overwritten.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/cache/support.h"

using namespace seqtile;
using namespace seqtile::cache;
using namespace seqtile::test;

// These names of the C library are this program's; other names here, as <unistd.h> may define them inline.
extern "C" ssize_t test_pwrite(int file, const void* bytes, size_t size, off_t offset) __asm__("pwrite");
extern "C" ssize_t test_pwrite64(int file, const void* bytes, size_t size, off_t offset) __asm__("pwrite64");

namespace {

/// Checks in both modes that all lookups miss, the status has `reason`, and writes are refused and counted.
void check_always_misses(const std::string& path, const std::string& reason) {
  for (const OpenMode mode : {OpenMode::read_write, OpenMode::read_only}) {
    auto store = TuningStore::open(path, mode);
    INFO(store->status());
    CHECK(store->status().find(path.empty() ? "tuning store: " : "tuning store " + path + ": ") == 0);
    CHECK(store->status().find(reason) != std::string::npos);
    CHECK(store->status().find('\n') == std::string::npos);
    CHECK(store->records(sample_key()).empty());
    CHECK(store->all_records().empty());
    CHECK_FALSE(store->publish(sample_key(), sample_record(), {}));
    CHECK_FALSE(store->is_writable());
    CHECK_FALSE(store->check().ok());
    CHECK(store->counters().write_failures == 1);
  }
}

void make_store(const std::string& path) {
  auto store = TuningStore::open(path, OpenMode::read_write);
  REQUIRE(store->publish(sample_key(), sample_record(), {}));
}

/// Publishes rows of growing length until five are refused. Returns the number of stored rows.
size_t publish_until_refused(TuningStore& store) {
  size_t stored = 0;
  for (int64_t i = 1, refused = 0; refused < 5 && i < 10000; ++i) {
    const bool is_stored = store.publish(sample_key(), sample_record(i, i), {});
    is_stored ? stored++ : refused++;
  }
  return stored;
}

/// While it lives, pwrite() fails, by which SQLite writes: that of every SQLite in the process, the library's own too.
class FailingWrites {
 public:
  explicit FailingWrites(int cause) { cause_ = cause; }
  FailingWrites(const FailingWrites&) = delete;
  FailingWrites& operator=(const FailingWrites&) = delete;
  ~FailingWrites() { cause_ = 0; }

  static ssize_t write(int file, const void* bytes, size_t size, off_t offset) {
    if (cause_ == 0) return syscall(SYS_pwrite64, file, bytes, size, offset);
    return errno = cause_, -1;
  }

 private:
  static inline std::atomic<int> cause_ = 0;
};

constexpr std::chrono::minutes kUntilKilled{10};

/// A child that holds the file's exclusive lock for `held`, from before this returns.
pid_t start_locker(const std::string& path, std::chrono::milliseconds held) {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = start_child([&] {
    sqlite3* database = nullptr;
    if (sqlite3_open(path.c_str(), &database) != SQLITE_OK) return false;
    if (sqlite3_exec(database, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr) != SQLITE_OK) return false;
    if (write(ready[1], "x", 1) != 1) return false;
    std::this_thread::sleep_for(held);
    return sqlite3_exec(database, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK;
  });
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  return child;
}

}  // namespace

ssize_t test_pwrite(int file, const void* bytes, size_t size, off_t offset) {
  return FailingWrites::write(file, bytes, size, offset);
}
ssize_t test_pwrite64(int file, const void* bytes, size_t size, off_t offset) {
  return FailingWrites::write(file, bytes, size, offset);
}

TEST_CASE("tuning file: a folder is refused", "[cache][fault]") {
  const TempFolder folder;
  check_always_misses(folder.path(), "is a folder");
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("tuning file: a file that is not SQLite is never overwritten", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("notes.txt");
  for (const std::string& bytes : {std::string("x"), std::string("my notes\n"), std::string(5000, 'n'),
                                   "SQLite format 3" + std::string(1, '\0') + std::string(200, '\7')}) {
    write_bytes(path, bytes);
    check_always_misses(path, "not a SQLite database");
    CHECK((read_bytes(path) == bytes));
  }
}

TEST_CASE("tuning file: another program's database is never overwritten", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("other.db");
  run_sql(path, "CREATE TABLE bookmarks(url TEXT); INSERT INTO bookmarks VALUES('x')");
  const std::string bytes = read_bytes(path);
  check_always_misses(path, "another program's SQLite database");
  CHECK(read_bytes(path) == bytes);

  // A database without tables is foreign too if it has an identity.
  const std::string marked = folder.file("marked.db");
  run_sql(marked, "PRAGMA application_id=77");
  check_always_misses(marked, "another program's SQLite database");
}

TEST_CASE("tuning file: a newer schema is left alone", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  run_sql(path, "PRAGMA user_version=4");
  const std::string bytes = read_bytes(path);
  check_always_misses(path, "newer release (schema 4, this one reads 3)");
  CHECK(read_bytes(path) == bytes);
}

TEST_CASE("tuning file: an earlier schema is left alone", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  const int version = GENERATE(1, 2);
  run_sql(path, fmt::format("PRAGMA user_version={}", version));
  const std::string bytes = read_bytes(path);
  check_always_misses(path, fmt::format("earlier release (schema {}, this one reads 3)", version));
  CHECK(read_bytes(path) == bytes);
}

TEST_CASE("tuning file: marks that no release writes are said to be wrong, not the tables", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  run_sql(path, "PRAGMA user_version=-1");
  const std::string bytes = read_bytes(path);
  check_always_misses(path, "user_version -1, which no release writes");
  CHECK(read_bytes(path) == bytes);
  run_sql(path, "PRAGMA user_version=3; PRAGMA application_id=0");
  check_always_misses(path, "application_id 0x0 and user_version 3, which no release writes");
  run_sql(path, "PRAGMA user_version=-1; PRAGMA application_id=1936815188; ALTER TABLE record ADD COLUMN extra TEXT");
  check_always_misses(path, "its user_version is -1, which no release writes (this one writes 3)");
}

TEST_CASE("tuning file: a forged version number does not make a file ours", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  run_sql(path, "ALTER TABLE record ADD COLUMN extra TEXT");
  const std::string bytes = read_bytes(path);
  check_always_misses(path, "its tables are not those of schema 3");
  CHECK(read_bytes(path) == bytes);
}

TEST_CASE("tuning file: a symbolic link to a file is refused, one to its folder is followed", "[cache][fault]") {
  const TempFolder folder;
  std::filesystem::create_directory(folder.file("real"));
  make_store(folder.file("real/tuning.db"));
  std::filesystem::create_symlink(folder.file("real/tuning.db"), folder.file("link.db"));
  std::filesystem::create_symlink(folder.file("nowhere"), folder.file("dangling.db"));
  std::filesystem::create_symlink(folder.file("real"), folder.file("folder"));
  check_always_misses(folder.file("link.db"), "is a symbolic link");
  check_always_misses(folder.file("dangling.db"), "is a symbolic link");
  CHECK_FALSE(std::filesystem::exists(folder.file("nowhere")));
  CHECK(TuningStore::open(folder.file("folder/tuning.db"), OpenMode::read_write)->records(sample_key()).size() == 1);
}

TEST_CASE("tuning file: a named pipe does not hang", "[cache][fault]") {
  const TempFolder folder;
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  check_always_misses(folder.file("pipe"), "is not a regular file");
}

TEST_CASE("tuning file: no path and an absent file say so", "[cache][fault]") {
  const TempFolder folder;
  check_always_misses("", "no path");
  auto store = TuningStore::open(folder.file("absent.db"), OpenMode::read_only);
  CHECK(store->status().find("does not exist") != std::string::npos);
  CHECK(store->records(sample_key()).empty());
  CHECK_FALSE(std::filesystem::exists(folder.file("absent.db")));
  // The same store serves the file once another process has prewarmed it.
  make_store(folder.file("absent.db"));
  CHECK(store->records(sample_key()).size() == 1);
  CHECK(store->status() == "");
  // A path through a file cannot be made.
  CHECK_FALSE(TuningStore::open(folder.file("absent.db/x.db"), OpenMode::read_write)->status().empty());
}

TEST_CASE("tuning file: an empty file becomes a store", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  write_bytes(path, "");
  CHECK(TuningStore::open(path, OpenMode::read_only)->status().find("is empty") != std::string::npos);
  CHECK(read_bytes(path).empty());
  make_store(path);
  CHECK(TuningStore::open(path, OpenMode::read_only)->records(sample_key()).size() == 1);
}

TEST_CASE("tuning file: names that SQLite would take for something else are plain files", "[cache]") {
  const TempFolder folder;
  for (const std::string name : {":memory:", "file:x?mode=memory", "sp ace %20#.db"}) {
    make_store(folder.file(name));
    CHECK(std::filesystem::file_size(folder.file(name)) > 0);
    CHECK(TuningStore::open(folder.file(name), OpenMode::read_only)->records(sample_key()).size() == 1);
  }
}

TEST_CASE("tuning file: a read-only file in a read-only folder serves", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  REQUIRE(chmod(path.c_str(), 0444) == 0);
  REQUIRE(chmod(folder.path().c_str(), 0555) == 0);
  const std::string bytes = read_bytes(path);
  CHECK(run_as_nobody([&] {
    auto store = TuningStore::open(path, OpenMode::read_only);
    return store->status().empty() && store->records(sample_key()).size() == 1 && store->check().ok();
  }));
  CHECK(run_as_nobody([&] {
    auto store = TuningStore::open(path, OpenMode::read_write);
    const bool says_so = store->status().find("read-only file") != std::string::npos && !store->is_writable();
    const bool is_refused = !store->publish(sample_key(), sample_record(9, 16), {});
    return says_so && is_refused && store->records(sample_key()).size() == 1 && store->counters().write_failures == 1;
  }));
  CHECK(read_bytes(path) == bytes);
}

TEST_CASE("tuning file: a folder that cannot be written serves what is there and drops writes", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  REQUIRE(chmod(path.c_str(), 0666) == 0);
  REQUIRE(chmod(folder.path().c_str(), 0555) == 0);
  CHECK(run_as_nobody([&] {
    auto store = TuningStore::open(path, OpenMode::read_write);
    const bool says_so = store->status().find("folder is not writable") != std::string::npos && !store->is_writable();
    const bool is_refused = !store->publish(sample_key(), sample_record(9, 16), {});
    return says_so && is_refused && store->records(sample_key()).size() == 1 && store->counters().write_failures == 1;
  }));
  CHECK(run_as_nobody([&] {
    auto store = TuningStore::open(folder.file("new.db"), OpenMode::read_write);
    return !store->status().empty() && store->records(sample_key()).empty() &&
           !store->publish(sample_key(), sample_record(), {}) && store->counters().write_failures == 1;
  }));
  CHECK(TuningStore::open(path, OpenMode::read_only)->check().ok());
}

TEST_CASE("tuning file: a locked file is a miss in time, and serves again when the lock is gone", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  const pid_t reading_locker = start_locker(path, kUntilKilled);
  for (const OpenMode mode : {OpenMode::read_only, OpenMode::read_write}) {
    auto store = TuningStore::open(path, mode);
    // Many lookups cost one wait.
    for (int i = 0; i < 20; ++i) CHECK(store->records(sample_key(i)).empty());
    CHECK(store->counters().busy == 21);
    CHECK(store->status().find("locked by another process; a miss after 5 ms") != std::string::npos);
  }
  kill(reading_locker, SIGKILL);
  wait_child(reading_locker);
  // A writer waits for the lock.
  const pid_t locker = start_locker(path, std::chrono::milliseconds(500));
  auto store = TuningStore::open(path, OpenMode::read_write);
  CHECK(store->publish(sample_key(), sample_record(9, 16), {}));
  CHECK(store->records(sample_key()).size() == 2);
  CHECK(store->status() == "");
  CHECK(wait_child(locker));
}

TEST_CASE("tuning file: a writer gives up on a lock that stays", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  auto store = TuningStore::open(path, OpenMode::read_write);
  const pid_t locker = start_locker(path, kUntilKilled);
  CHECK_FALSE(store->publish(sample_key(), sample_record(9, 16), {}));
  CHECK(store->counters().busy == 1);
  CHECK(store->counters().write_failures == 1);
  kill(locker, SIGKILL);
  wait_child(locker);
  CHECK(store->publish(sample_key(), sample_record(9, 16), {}));
}

TEST_CASE("tuning file: a deleted, replaced or recreated file is followed", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  auto store = TuningStore::open(path, OpenMode::read_write);
  auto reader = TuningStore::open(path, OpenMode::read_only);
  CHECK(reader->records(sample_key()).size() == 1);
  std::filesystem::remove(path);
  CHECK(reader->records(sample_key()).empty());
  CHECK(store->records(sample_key()).empty());
  CHECK_FALSE(std::filesystem::exists(path));
  // A write must not vanish with the deleted file.
  REQUIRE(store->publish(sample_key(), sample_record(9, 16), {}));
  CHECK(reader->records(sample_key()).size() == 1);
  CHECK(reader->records(sample_key())[0].lo == 9);

  {
    auto other = TuningStore::open(folder.file("other.db"), OpenMode::read_write);
    REQUIRE(other->publish(sample_key(), sample_record(17, 18), {}));
  }
  std::filesystem::rename(folder.file("other.db"), path);
  CHECK(store->records(sample_key())[0].lo == 17);
  CHECK(store->status() == "");

  // The file is replaced by a foreign one, then by nothing, then by a store again.
  std::filesystem::remove(path);
  write_bytes(path, "not a database");
  CHECK(store->records(sample_key()).empty());
  CHECK_FALSE(store->publish(sample_key(), sample_record(), {}));
  CHECK(read_bytes(path) == "not a database");
  std::filesystem::remove(path);
  CHECK(store->publish(sample_key(), sample_record(), {}));
  CHECK(reader->records(sample_key()).size() == 1);
}

TEST_CASE("tuning file: a file that is emptied and filled in place is followed", "[cache][fault]") {
  TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  const std::string bytes = read_bytes(path);
  const auto reader = TuningStore::open(path, OpenMode::read_only);
  REQUIRE(reader->all_records().size() == 1);
  for (int round = 0; round < 2; ++round) {
    write_bytes(path, "");
    for (int reads = 0; reads < 2; ++reads) CHECK(reader->all_records().empty());
    CHECK_THAT(reader->status(), Catch::Contains("is empty"));
    write_bytes(path, bytes);
    CHECK(reader->records(sample_key()).size() == 1);
    CHECK(reader->all_records().size() == 1);
    CHECK(reader->status().empty());
  }
  CHECK(reader->counters().bad_files == 0);
}

TEST_CASE("tuning file: a store for writing fills a file that was emptied in place", "[cache][fault]") {
  TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  const auto writer = TuningStore::open(path, OpenMode::read_write);
  REQUIRE(writer->all_records().size() == 1);
  write_bytes(path, "");
  CHECK(writer->publish(sample_key(), sample_record(), {}));
  CHECK(TuningStore::open(path, OpenMode::read_only)->all_records().size() == 1);
}

TEST_CASE("tuning file: a store that was open before a fork serves the child and the parent", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  make_store(path);
  auto store = TuningStore::open(path, OpenMode::read_write);
  CHECK(run_in_child([&] {
    return store->records(sample_key()).size() == 1 && store->publish(sample_key(), sample_record(9, 16), {});
  }));
  CHECK(store->records(sample_key()).size() == 2);
  CHECK(store->publish(sample_key(), sample_record(17, 18), {}));
  CHECK(store->check().ok());
}

TEST_CASE("tuning file: a limit on file size drops writes and keeps what was stored", "[cache][fault]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  CHECK(run_in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{96 * 1024, 96 * 1024};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    auto store = TuningStore::open(path, OpenMode::read_write);
    const size_t stored = publish_until_refused(*store);
    return stored > 20 && store->records(sample_key()).size() == stored && store->counters().write_failures == 5 &&
           store->status().find("a limit on the size of files is reached; raise it (ulimit -f)") != std::string::npos &&
           store->check().ok();
  }));
  // The same file works again without the limit.
  auto store = TuningStore::open(path, OpenMode::read_write);
  CHECK(store->publish(sample_key(), sample_record(1000, 1000), {}));
  CHECK(store->check().ok());
}

TEST_CASE("tuning file: a write that the system refuses names the system's cause", "[cache][fault]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  REQUIRE(store->publish(sample_key(), sample_record(), {}));
  for (const auto& [cause, said] : std::vector<std::pair<int, const char*>>{
           {EDQUOT, "the disk quota of user"}, {ENOSPC, "the disk is full"}, {EIO, "Input/output error"}}) {
    INFO(said);
    {
      const FailingWrites failing(cause);
      CHECK_FALSE(store->publish(sample_key(), sample_record(9, 16), {}));
    }
    CHECK_THAT(store->status(), Catch::Contains(said));
    CHECK(store->records(sample_key()).size() == 1);
  }
  CHECK(store->publish(sample_key(), sample_record(9, 16), {}));
  CHECK(store->status() == "");
}

TEST_CASE("tuning file: a full disk drops writes and keeps serving", "[cache][fault]") {
  const TempFolder folder;
  const std::string disk = folder.file("disk");
  std::filesystem::create_directory(disk);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=128k") != 0) {
    WARN("no right to mount a small disk here; the test of the file size limit covers the same path");
    return;
  }
  {
    auto store = TuningStore::open(disk + "/tuning.db", OpenMode::read_write);
    const size_t stored = publish_until_refused(*store);
    CHECK(stored > 20);
    CHECK(store->records(sample_key()).size() == stored);
    CHECK(store->counters().write_failures == 5);
    CHECK(store->status().find("free space") != std::string::npos);
    CHECK(store->check().ok());
    // A fresh process on the full disk is served too.
    CHECK(TuningStore::open(disk + "/tuning.db", OpenMode::read_write)->records(sample_key()).size() == stored);
    // A new file does not fit.
    auto second = TuningStore::open(disk + "/second.db", OpenMode::read_write);
    CHECK_FALSE(second->status().empty());
    CHECK(second->records(sample_key()).empty());
    // The same objects store again once there is space.
    std::filesystem::remove(disk + "/tuning.db");
    CHECK(store->records(sample_key()).empty());  // closes the deleted file
    CHECK(second->publish(sample_key(), sample_record(), {}));
    CHECK(second->status() == "");
  }
  CHECK(umount(disk.c_str()) == 0);
}

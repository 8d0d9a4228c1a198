// tests/cache/device_lock_test.cpp -- one holder per device, and the lock dies with it.
// SPDX-License-Identifier: Apache-2.0
#include "cache/device_lock.h"

#include "seqtile/error.h"
#include "tests/cache/support.h"

using namespace seqtile;
using namespace seqtile::cache;
using namespace seqtile::test;
using std::chrono::milliseconds;

TEST_CASE("device lock: one holder per device, released at the end of its scope", "[cache]") {
  const TempFolder folder;
  const std::string locks = folder.file("locks");
  {
    auto first = DeviceLock::try_lock(locks, "cpu: two cores");
    REQUIRE(first);
    CHECK_FALSE(DeviceLock::try_lock(locks, "cpu: two cores"));
    CHECK(DeviceLock::try_lock(locks, "another device"));
    CHECK(device_lock_holder(locks, "cpu: two cores") == fmt::format("process {}", getpid()));
    DeviceLock moved = std::move(*first);
    first.reset();
    CHECK_FALSE(DeviceLock::try_lock(locks, "cpu: two cores"));
  }
  CHECK(DeviceLock::try_lock(locks, "cpu: two cores"));
}

TEST_CASE("device lock: waiting ends by timeout, by the caller, or with the lock", "[cache]") {
  const TempFolder folder;
  auto held = DeviceLock::try_lock(folder.path(), "cpu");
  REQUIRE(held);
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(DeviceLock::lock(folder.path(), "cpu", milliseconds(100)));
  CHECK(seconds_since(start) >= 0.1);
  std::string holder;
  CHECK_FALSE(DeviceLock::lock(folder.path(), "cpu", milliseconds(60000), [&](const std::string& text) {
    holder = text;
    return false;
  }));
  CHECK(holder == fmt::format("process {}", getpid()));
  CHECK(DeviceLock::lock(folder.path(), "cpu", milliseconds(60000), [&](const std::string&) {
    held.reset();
    return true;
  }));
}

TEST_CASE("device lock: a killed holder leaves no lock behind", "[cache][fault]") {
  const TempFolder folder;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = start_child([&] {
    const auto lock = DeviceLock::try_lock(folder.path(), "cpu");
    if (!lock || write(ready[1], "x", 1) != 1) return false;
    pause();
    return true;
  });
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK_FALSE(DeviceLock::try_lock(folder.path(), "cpu"));
  CHECK(device_lock_holder(folder.path(), "cpu") == fmt::format("process {}", child));
  kill(child, SIGKILL);
  wait_child(child);
  CHECK(DeviceLock::try_lock(folder.path(), "cpu"));
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("device lock: a program that the holder executes does not keep it", "[cache]") {
  const TempFolder folder;
  auto lock = DeviceLock::try_lock(folder.path(), "cpu");
  REQUIRE(lock);
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sleep", "sleep", "1000", nullptr);
    _exit(127);
  }
  // The child has the descriptor until the exec.
  lock.reset();
  CHECK(DeviceLock::lock(folder.path(), "cpu", milliseconds(60000)));
  kill(child, SIGKILL);
  wait_child(child);
}

TEST_CASE("device lock: users of one machine wait for each other, whoever made the file", "[cache]") {
  const TempFolder folder;
  REQUIRE(chmod(folder.path().c_str(), 01777) == 0);
  // Another user makes the file.
  REQUIRE(run_as_nobody([&] { return DeviceLock::try_lock(folder.path(), "cpu").has_value(); }));
  auto lock = DeviceLock::try_lock(folder.path(), "cpu");
  REQUIRE(lock);
  CHECK(run_as_nobody([&] { return !DeviceLock::try_lock(folder.path(), "cpu"); }));
  lock.reset();
  CHECK(run_as_nobody([&] { return DeviceLock::try_lock(folder.path(), "cpu").has_value(); }));
  {
    auto other = DeviceLock::try_lock(folder.path(), "gpu");  // this user makes the file
  }
  CHECK(run_as_nobody([&] { return DeviceLock::try_lock(folder.path(), "gpu").has_value(); }));
}

TEST_CASE("device lock: the machine's folder is the same for everybody, or what a variable says", "[cache]") {
  const char* before = getenv("SEQTILE_LOCK_DIR");
  const std::string kept = before ? before : "";
  unsetenv("SEQTILE_LOCK_DIR");
  const std::string folder = machine_lock_folder();
  CHECK((folder == "/run/lock" || folder == "/tmp"));
  CHECK(run_as_nobody([&] { return machine_lock_folder() == folder && DeviceLock::try_lock(folder, "a test's"); }));
  setenv("SEQTILE_LOCK_DIR", "/somewhere", 1);
  CHECK(machine_lock_folder() == "/somewhere");
  setenv("SEQTILE_LOCK_DIR", kept.c_str(), 1);
}

TEST_CASE("device lock: a folder that cannot be written is an io error that names the file", "[cache][fault]") {
  const TempFolder folder;
  write_bytes(folder.file("file"), "not a folder");
  try {
    DeviceLock::try_lock(folder.file("file"), "cpu");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::io);
    CHECK(std::string(error.what()).find("lock file " + folder.file("file")) == 0);
  }
}

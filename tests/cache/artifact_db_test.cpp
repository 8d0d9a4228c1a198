// tests/cache/artifact_db_test.cpp -- compiled binaries come back bit for bit under the right key, or not at all.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/stores.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>

#include "jit/base/hash.h"
#include "tests/cache/support.h"

static bool has_hard_links = true;

/// Takes the place of the C library's, for a file system without hard links.
extern "C" int link(const char* from, const char* to) noexcept {
  if (has_hard_links) return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
  errno = EPERM;
  return -1;
}

using namespace seqtile;
using namespace seqtile::cache;
using namespace seqtile::test;

namespace {

ArtifactKey sample_artifact_key(int number = 1) {
  ArtifactKey key;
  key.manifest = fmt::format(R"({{"config":{{"block_m":{}}},"operation":"linear","target":"cpu:avx512"}})", number);
  key.hash = sha256_hex(key.manifest);
  return key;
}

KernelBinary sample_binary(int number = 1, size_t bytes = 3000) {
  KernelBinary binary{.symbol = fmt::format("linear_bf16_{}x64_avx512", number),
                      .target = "cpu:avx512",
                      .stage = "blob",
                      .entry_offset = 64,
                      .arena_bytes = 1 << 16,
                      .num_slots = 12,
                      .gpu = {128, 4096, {2, 1, 1}, true, false, {{4, DType::bf16, {1, 64, 64}, 128}}}};
  for (size_t i = 0; i < bytes; ++i) binary.code.push_back(static_cast<std::byte>(i * 7 + static_cast<size_t>(number)));
  return binary;
}

bool same_binary(const KernelBinary& a, const KernelBinary& b) {
  return a.symbol == b.symbol && a.target == b.target && a.stage == b.stage && a.code == b.code &&
         a.entry_offset == b.entry_offset && a.arena_bytes == b.arena_bytes && a.num_slots == b.num_slots &&
         a.gpu == b.gpu;
}

struct Paths {
  const TempFolder folder;
  const std::string database = folder.file("cache/artifacts.db"), key_file = folder.file("config/artifacts.key");
  std::unique_ptr<ArtifactDb> open(int64_t max_file_bytes = kMaxArtifactFileBytes) const {
    return ArtifactDb::open(database, key_file, max_file_bytes);
  }
};

/// Damages one leaf of the table's tree, so that most rows can still be read.
void damage_a_page(const std::string& path) {
  constexpr size_t kPage = 4096;
  constexpr char kTableLeaf = 13;
  std::string bytes = read_bytes(path);
  std::vector<size_t> leaves;
  for (size_t at = kPage; at < bytes.size(); at += kPage)
    if (bytes[at] == kTableLeaf) leaves.push_back(at);
  REQUIRE(leaves.size() > 3);
  write_bytes(path, bytes.replace(leaves[leaves.size() / 2], 16, 16, '\xff'));
}

}  // namespace

TEST_CASE("artifact store: binaries come back as they were stored, in private files", "[cache]") {
  const Paths paths;
  KernelBinary cubin = sample_binary(2);
  cubin.stage = "cubin";
  cubin.target = "cuda:sm_90a";
  {
    auto store = paths.open();
    CHECK(store->status() == "");
    CHECK_FALSE(store->load(sample_artifact_key(1)));
    store->store(sample_artifact_key(1), sample_binary(1));
    store->store(sample_artifact_key(2), cubin);
    CHECK(store->counters().misses == 1);
  }
  auto store = paths.open();
  const auto first = store->load(sample_artifact_key(1)), second = store->load(sample_artifact_key(2));
  REQUIRE(first);
  REQUIRE(second);
  CHECK(same_binary(*first, sample_binary(1)));
  CHECK(same_binary(*second, cubin));
  const auto all = store->load_all({sample_artifact_key(2), sample_artifact_key(3), sample_artifact_key(1)});
  REQUIRE(all.size() == 3);
  CHECK((all[0] && !all[1] && all[2] && same_binary(*all[2], sample_binary(1))));
  CHECK(store->counters().hits == 4);
  CHECK(store->counters().misses == 1);
  CHECK(store->counters().rejected == 0);
  // A row that is stored again with other code is replaced.
  store->store(sample_artifact_key(1), sample_binary(9));
  CHECK(same_binary(*store->load(sample_artifact_key(1)), sample_binary(9)));
  for (const auto& path : {paths.database, paths.key_file}) {
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0600);
  }
  CHECK(std::filesystem::file_size(paths.key_file) == 32);
  CHECK(run_sql(paths.database, "SELECT symbol, target, stage, code_bytes FROM v_artifacts WHERE stage='cubin'") ==
        std::vector<std::string>{"linear_bf16_2x64_avx512|cuda:sm_90a|cubin|3000"});
}

TEST_CASE("artifact store: a hundred binaries load in a few milliseconds", "[cache]") {
  const Paths paths;
  std::vector<ArtifactKey> keys;
  {
    auto store = paths.open();
    for (int i = 0; i < 100; ++i) {
      keys.push_back(sample_artifact_key(i));
      store->store(keys.back(), sample_binary(i, 16384));
    }
  }
  const double start = cpu_seconds();
  auto store = paths.open();
  const auto all = store->load_all(keys);
  const double seconds = cpu_seconds() - start;
  for (int i = 0; i < 100; ++i) REQUIRE((all[i] && same_binary(*all[i], sample_binary(i, 16384))));
  INFO("open and load: " << seconds * 1e3 << " ms");
  CHECK(seconds < 0.2);  // about 4 ms on an idle machine without sanitizers
}

TEST_CASE("artifact store: every changed column of a row is a rejected miss", "[cache][fault]") {
  const Paths paths;
  paths.open()->store(sample_artifact_key(), sample_binary());
  const std::string intact = read_bytes(paths.database);
  for (const std::string change :
       {"manifest = manifest||' '", "symbol = 'other'", "target = 'cpu:avx2'", "stage = 'ptx'", "entry_offset = 0",
        "arena_bytes = 0", "num_slots = 99", "gpu_launch = '{}'", "mac = zeroblob(32)", "mac = substr(mac, 1, 31)",
        "mac = x''", "code = substr(code, 1, 2999)", "code = CAST(code||x'00' AS BLOB)", "code = x''",
        "code = CAST(substr(code, 1, 1500)||x'fe'||substr(code, 1502) AS BLOB)"}) {
    INFO(change);
    write_bytes(paths.database, intact);
    CHECK(paths.open()->load(sample_artifact_key()));
    run_sql(paths.database, "UPDATE artifact SET " + change);
    auto store = paths.open();
    CHECK_FALSE(store->load(sample_artifact_key()));
    CHECK(store->counters().rejected == 1);
    CHECK(store->counters().misses == 1);
    // A binary that was compiled again replaces the row.
    store->store(sample_artifact_key(), sample_binary());
    CHECK(store->load(sample_artifact_key()));
  }
  // A valid row does not answer under another key's name.
  write_bytes(paths.database, intact);
  const ArtifactKey other = sample_artifact_key(2);
  run_sql(paths.database, fmt::format("UPDATE artifact SET key_hash='{}', manifest='{}'", other.hash, other.manifest));
  CHECK_FALSE(paths.open()->load(other));
  // The times of making and of use are for people.
  write_bytes(paths.database, intact);
  run_sql(paths.database, "UPDATE artifact SET created_us=1, used_us=1");
  CHECK(paths.open()->load(sample_artifact_key()));
}

TEST_CASE("artifact store: flipped bytes of the file never give other code", "[cache][fault]") {
  const Paths paths;
  {
    auto store = paths.open();
    for (int i = 0; i < 3; ++i) store->store(sample_artifact_key(i), sample_binary(i, 900));
  }
  run_sql(paths.database, "PRAGMA page_size=512; VACUUM");
  const std::string intact = read_bytes(paths.database);
  size_t hits = 0, tries = 0;
  for (size_t i = 0; i < intact.size(); i += 3) {
    std::string damaged = intact;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 ? 0xff : 1 << (i / 2 % 8)));
    write_bytes(paths.database, damaged);
    auto store = paths.open();
    for (int k = 0; k < 3; ++k) {
      const auto binary = store->load(sample_artifact_key(k));
      if (binary && !same_binary(*binary, sample_binary(k, 900))) FAIL("byte " << i << ": other code was loaded");
      hits += binary.has_value();
      tries++;
    }
    store.reset();
    for (const char* suffix : {"-journal", "-wal", "-shm"}) unlink((paths.database + suffix).c_str());
  }
  CHECK(hits > tries / 4);
  CHECK(hits < tries);
}

TEST_CASE("artifact store: another user's key opens nothing", "[cache][fault]") {
  const Paths paths;
  paths.open()->store(sample_artifact_key(), sample_binary());
  auto other = ArtifactDb::open(paths.database, paths.folder.file("other.key"));
  CHECK(other->status() == "");
  CHECK_FALSE(other->load(sample_artifact_key()));
  CHECK(other->counters().rejected == 0);  // the row of another user is not judged
  other->store(sample_artifact_key(), sample_binary(2));
  CHECK(same_binary(*other->load(sample_artifact_key()), sample_binary(2)));
  CHECK(same_binary(*paths.open()->load(sample_artifact_key()), sample_binary()));
  // The row stays a miss under a name that the user trusts.
  run_sql(paths.database, "UPDATE artifact SET mac = (SELECT mac FROM artifact ORDER BY created_us LIMIT 1)");
  CHECK(!(ArtifactDb::open(paths.database, paths.folder.file("other.key"))->load(sample_artifact_key()) &&
          paths.open()->load(sample_artifact_key())));
}

TEST_CASE("artifact store: a key is made where there are no hard links, the same for all", "[cache][fault]") {
  const Paths paths;
  has_hard_links = false;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i)
    children.push_back(start_child([&] { return paths.open()->store(sample_artifact_key(i), sample_binary(i)); }));
  for (const pid_t child : children) CHECK(wait_child(child));
  has_hard_links = true;
  auto store = paths.open();
  for (int i = 0; i < 8; ++i) CHECK(store->load(sample_artifact_key(i)));
  CHECK(std::distance(std::filesystem::directory_iterator(paths.folder.file("config")), {}) == 1);  // the key alone
}

TEST_CASE("artifact store: a key that cannot be made says why", "[cache][fault]") {
  const Paths paths;
  CHECK(run_in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_FSIZE, &none) != 0) return false;
    const std::string status = paths.open()->status();
    return status.find("cannot be made (File too large)") != std::string::npos;
  }));
  CHECK_FALSE(std::filesystem::exists(paths.key_file));
}

TEST_CASE("artifact store: a key file that others could know is refused, with the reason", "[cache][fault]") {
  const Paths paths;
  paths.open()->store(sample_artifact_key(), sample_binary());
  const auto check_refused = [&](const std::string& reason) {
    auto store = paths.open();
    INFO(store->status());
    CHECK(store->status().find("key file " + paths.key_file + ": ") == 0);
    CHECK(store->status().find(reason) != std::string::npos);
    CHECK_FALSE(store->load(sample_artifact_key()));
    store->store(sample_artifact_key(2), sample_binary(2));
    CHECK(store->counters().write_failures == 1);
    CHECK(store->counters().misses == 1);
  };
  for (const mode_t mode : {0644, 0640, 0602, 0660}) {
    REQUIRE(chmod(paths.key_file.c_str(), mode) == 0);
    check_refused("mode 0600 is needed");
  }
  REQUIRE(chmod(paths.key_file.c_str(), 0600) == 0);
  if (geteuid() == 0) {
    REQUIRE(chown(paths.key_file.c_str(), 65534, 65534) == 0);
    check_refused("owner 65534");
    REQUIRE(chown(paths.key_file.c_str(), 0, 0) == 0);
  }
  CHECK(paths.open()->load(sample_artifact_key()));
  const std::string key = read_bytes(paths.key_file);
  for (const std::string& bytes : {std::string(), key.substr(0, 31), key + "x"}) {
    write_bytes(paths.key_file, bytes);
    check_refused("32 bytes are needed, it has " + std::to_string(bytes.size()));
  }
  std::filesystem::remove(paths.key_file);
  write_bytes(paths.folder.file("elsewhere"), key);
  std::filesystem::create_symlink(paths.folder.file("elsewhere"), paths.key_file);
  check_refused("is a symbolic link, which is not followed");
  std::filesystem::remove(paths.key_file);
  std::filesystem::create_directory(paths.key_file);
  check_refused("a regular file");
  std::filesystem::remove(paths.key_file);
  CHECK(ArtifactDb::open(paths.database, "")->status().find("no path") != std::string::npos);
  // A new key makes binaries of the old key misses.
  CHECK_FALSE(paths.open()->load(sample_artifact_key()));
}

TEST_CASE("artifact store: processes that start at once share one key and one file", "[cache]") {
  const Paths paths;
  std::vector<pid_t> children;
  for (int c = 0; c < 6; ++c) {
    children.push_back(start_child([&, c] {
      auto store = paths.open();
      for (int i = 0; i < 10; ++i) store->store(sample_artifact_key(10 * c + i), sample_binary(i));
      return store->status().empty() && store->counters().write_failures == 0;
    }));
  }
  for (const pid_t child : children) CHECK(wait_child(child));
  std::vector<ArtifactKey> keys;
  for (int i = 0; i < 60; ++i) keys.push_back(sample_artifact_key(i));
  auto store = paths.open();
  store->load_all(keys);
  CHECK(store->counters().hits == 60);
  // Making the key leaves no other file.
  const std::filesystem::directory_iterator config(paths.folder.file("config"));
  CHECK(std::distance(begin(config), end(config)) == 1);
}

TEST_CASE("artifact store: a full store drops the binaries that were not used for longest", "[cache]") {
  const Paths paths;
  constexpr int64_t kLimit = 1 << 20;
  {
    auto store = paths.open(kLimit);
    for (int i = 0; i < 8; ++i) store->store(sample_artifact_key(i), sample_binary(i, 100'000));
  }
  // All rows were stored two days ago, in order. Then the first is used; closing the store writes its time of use.
  run_sql(paths.database, "UPDATE artifact SET used_us = used_us - 172800000000");
  CHECK(paths.open(kLimit)->load(sample_artifact_key(0)));
  auto store = paths.open(kLimit);
  for (int i = 8; i < 12; ++i) store->store(sample_artifact_key(i), sample_binary(i, 100'000));
  CHECK(store->load(sample_artifact_key(0)));
  CHECK_FALSE(store->load(sample_artifact_key(1)));
  CHECK(store->load(sample_artifact_key(11)));
  CHECK(std::filesystem::file_size(paths.database) < static_cast<uintmax_t>(kLimit) + 300'000);
  // A binary larger than the whole store is not kept and drops no row.
  store->store(sample_artifact_key(20), sample_binary(20, kLimit + 1));
  CHECK_FALSE(store->load(sample_artifact_key(20)));
  CHECK(store->load(sample_artifact_key(11)));
  CHECK(store->counters().write_failures == 1);
}

TEST_CASE("artifact store: unusable files are misses with a reason and are not overwritten", "[cache][fault]") {
  const Paths paths;
  std::filesystem::create_directories(paths.folder.file("cache"));
  const auto check_misses = [&](const std::string& reason) {
    auto store = paths.open();
    INFO(store->status());
    CHECK(store->status().find(reason) != std::string::npos);
    store->store(sample_artifact_key(), sample_binary());
    CHECK_FALSE(store->load(sample_artifact_key()));
    CHECK(store->counters().write_failures == 1);
  };
  write_bytes(paths.database, std::string(1000, 'x'));
  check_misses("not a SQLite database");
  CHECK(read_bytes(paths.database) == std::string(1000, 'x'));
  // A tuning file takes the path of the artifacts.
  std::filesystem::remove(paths.database);
  REQUIRE(TuningStore::open(paths.database, OpenMode::read_write)->publish(sample_key(), sample_record(), {}));
  check_misses(
      "is a tuning store (tuning.db), not an artifact store (artifacts.db); it is left as it is; were the paths "
      "of the two swapped?");
  CHECK(TuningStore::open(paths.database, OpenMode::read_only)->records(sample_key()).size() == 1);
  std::filesystem::remove(paths.database);
  std::filesystem::create_directory(paths.database);
  check_misses("is a folder");
}

TEST_CASE("artifact store: nothing is written into a damaged file, also by who has not met the damage",
          "[cache][fault]") {
  const Paths paths;
  for (int i = 0; i < 40; ++i) paths.open()->store(sample_artifact_key(i), sample_binary(i, 4000));
  damage_a_page(paths.database);
  const std::string damaged = read_bytes(paths.database);
  auto store = paths.open();
  CHECK_FALSE(store->store(sample_artifact_key(50), sample_binary(50)));
  CHECK(store->status().find("nothing is written; `seqtile cache build`, with --device for a GPU's, moves it away") !=
        std::string::npos);
  store.reset();
  CHECK(read_bytes(paths.database) == damaged);
}

TEST_CASE("artifact store: a damaged file is moved aside and loses nothing that can be read", "[cache][fault]") {
  const Paths paths;
  CHECK(paths.open()->repair().empty());
  for (int i = 0; i < 40; ++i) paths.open()->store(sample_artifact_key(i), sample_binary(i, 4000));
  CHECK(paths.open()->repair().empty());
  for (const std::string suffix : {".damaged", ".damaged2"}) {
    damage_a_page(paths.database);
    const std::string damaged = read_bytes(paths.database);
    std::vector<bool> was_readable;
    for (int i = 0; i < 40; ++i) was_readable.push_back(paths.open()->load(sample_artifact_key(i)).has_value());
    const auto readable = std::count(was_readable.begin(), was_readable.end(), true);
    CHECK(readable > 20);
    CHECK(readable < 40);
    auto user = paths.open();  // keeps the file open all the while
    user->load(sample_artifact_key(0));
    auto store = paths.open();
    const auto repairs = store->repair();
    REQUIRE(repairs.size() == 1);
    CHECK(repairs[0].moved_to == paths.database + suffix);
    CHECK(read_bytes(repairs[0].moved_to) == damaged);
    CHECK(repairs[0].kept == readable);
    CHECK(repairs[0].is_whole);
    CHECK(store->status() == "");
    for (int i = 0; i < 40; ++i) {
      CHECK(store->load(sample_artifact_key(i)).has_value() == was_readable[static_cast<size_t>(i)]);
      CHECK(user->store(sample_artifact_key(i), sample_binary(i, 4000)));
    }
    CHECK(store->load(sample_artifact_key(39)));
    CHECK(paths.open()->repair().empty());
  }
}

TEST_CASE("artifact store: a take-over that was cut off is gone on with", "[cache][fault]") {
  const Paths paths;
  for (int i = 0; i < 40; ++i) paths.open()->store(sample_artifact_key(i), sample_binary(i, 4000));
  damage_a_page(paths.database);
  const std::string damaged = read_bytes(paths.database);
  int64_t readable = 0;
  for (int i = 0; i < 40; ++i) readable += paths.open()->load(sample_artifact_key(i)).has_value();
  // A process that was killed during the repair leaves a renamed file and a few rows in the new one.
  std::filesystem::rename(paths.database, paths.database + ".repairing");
  for (int i = 0; i < 3; ++i) paths.open()->store(sample_artifact_key(i), sample_binary(i, 4000));
  const auto check_taken_over = [&](size_t files) {
    auto store = paths.open();
    const auto repairs = store->repair();
    REQUIRE(repairs.size() == files);
    for (const auto& repair : repairs) CHECK((repair.is_whole && repair.kept == readable));
    CHECK(read_bytes(paths.database + ".damaged") == damaged);
    CHECK_FALSE(std::filesystem::exists(paths.database + ".repairing"));
    int64_t loaded = 0;
    for (int i = 3; i < 40; ++i) loaded += store->load(sample_artifact_key(i)).has_value();
    CHECK(loaded >= readable - 3);
    CHECK(paths.open()->repair().empty());
  };
  check_taken_over(1);
  // A repair was cut off, and the new file is damaged too.
  std::filesystem::rename(paths.database + ".damaged", paths.database + ".repairing");
  write_bytes(paths.database, damaged);
  check_taken_over(2);
  CHECK(read_bytes(paths.database + ".damaged2") == damaged);
}

TEST_CASE("artifact store: what cannot be taken over yet stays for the next time", "[cache][fault]") {
  const Paths paths;
  for (int i = 0; i < 40; ++i) paths.open()->store(sample_artifact_key(i), sample_binary(i, 4000));
  damage_a_page(paths.database);
  std::filesystem::rename(paths.database, paths.database + ".repairing");
  {
    const auto repairs = paths.open(1000)->repair();  // the limit keeps no binary of that size
    REQUIRE(repairs.size() == 1);
    CHECK((!repairs[0].is_whole && repairs[0].kept == 0 && repairs[0].moved_to == paths.database + ".repairing"));
  }
  const auto repairs = paths.open()->repair();
  REQUIRE(repairs.size() == 1);
  CHECK((repairs[0].is_whole && repairs[0].kept > 20));
}

TEST_CASE("artifact store: the first write into a large file does not read all of it", "[cache][fault]") {
  const Paths paths;
  for (int i = 0; i < 40; ++i) paths.open()->store(sample_artifact_key(i), sample_binary(i, 4000));
  damage_a_page(paths.database);
  // Unused pages behind its end make the file as large as one with many binaries.
  std::filesystem::resize_file(paths.database, (64 << 20) + 4096);
  auto store = paths.open();
  CHECK(store->store(sample_artifact_key(50), sample_binary(50)));
  CHECK(store->load(sample_artifact_key(50)));
  CHECK_FALSE(store->check().ok());
  CHECK(store->repair().size() == 1);
}

TEST_CASE("artifact store: a check looks at every row and changes nothing", "[cache][fault]") {
  const Paths paths;
  for (int i = 0; i < 40; ++i) paths.open()->store(sample_artifact_key(i), sample_binary(i, 4000));
  run_sql(paths.database, "UPDATE artifact SET used_us = used_us - 172800000000");  // two days ago
  const std::string intact = read_bytes(paths.database);
  {
    const ArtifactCheck check = paths.open()->check();
    CHECK((check.ok() && check.rows == 40 && check.good.size() == 40));
    CHECK(check.good.contains(sample_artifact_key(7).hash));
  }
  CHECK(read_bytes(paths.database) == intact);
  run_sql(paths.database, "UPDATE artifact SET code = zeroblob(4000) WHERE symbol = '" + sample_binary(7).symbol + "'");
  {
    const ArtifactCheck check = paths.open()->check();
    CHECK((!check.ok() && check.is_sound && check.rows == 40 && check.bad_rows == 1));
    REQUIRE(check.problems.size() == 1);
    CHECK(check.problems[0].find(sample_binary(7).symbol + ": not written under this user's key, or damaged") !=
          std::string::npos);
    CHECK_FALSE(check.good.contains(sample_artifact_key(7).hash));
  }
  write_bytes(paths.database, intact);
  damage_a_page(paths.database);
  const ArtifactCheck check = paths.open()->check();
  CHECK((!check.ok() && !check.is_sound && check.good.size() > 20 && check.good.size() < 40));
}

TEST_CASE("artifact store: the default paths follow the folders of the environment", "[cache]") {
  CHECK(run_in_child([] {
    setenv("SEQTILE_CACHE_DIR", "/somewhere/cache", 1);
    setenv("SEQTILE_CONFIG_DIR", "/somewhere/config", 1);
    return default_tuning_path() == "/somewhere/cache/tuning.db" &&
           default_artifacts_path() == "/somewhere/cache/artifacts.db" &&
           default_key_path() == "/somewhere/config/artifacts.key";
  }));
  CHECK(run_in_child([] {
    for (const char* name : {"SEQTILE_CACHE_DIR", "SEQTILE_CONFIG_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"})
      unsetenv(name);
    setenv("HOME", "/home/someone", 1);
    return default_tuning_path() == "/home/someone/.cache/seqtile/tuning.db" &&
           default_key_path() == "/home/someone/.config/seqtile/artifacts.key";
  }));
  CHECK(run_in_child([] {
    for (const char* name : {"SEQTILE_CACHE_DIR", "SEQTILE_CONFIG_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HOME"}) {
      unsetenv(name);
    }
    return default_tuning_path().empty() &&
           !TuningStore::open(default_tuning_path(), OpenMode::read_write)->status().empty();
  }));
}

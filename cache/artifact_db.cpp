// cache/artifact_db.cpp -- ArtifactDb over one SQLite file.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/stores.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "cache/database/checksum.h"
#include "cache/database/database_file.h"
#include "cache/database/files.h"
#include "cache/database/text.h"
#include "cache/key_file.h"
#include "jit/base/counted.h"
#include "jit/base/hash.h"
#include "jit/base/log.h"
#include "jit/device/gpu_launch.h"

namespace seqtile::cache {
namespace {

constexpr int kMaxBinaryBytes = 256 << 20;
constexpr const char* kRepairing = ".repairing";  // suffix of a damaged file that is being repaired
constexpr int64_t kTouchIntervalUs = 24ll * 3600 * 1000000;

int64_t unix_time_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

/// The last field of a row's manifest; rows of early releases lack it.
constexpr const char* kKeyField = R"(,"key":")";

/// A name of the secret that reveals nothing about it.
std::string name_of(const MacKey& key) {
  std::string name;
  for (const char byte : FieldSum(kRowSumBytes, key).add("name of the key").finish())
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return name;
}

class SqliteArtifactDb final : public ArtifactDb {
 public:
  SqliteArtifactDb(const std::string& path, const std::string& key_file, int64_t max_file_bytes,
                   bool is_read_only = false)
      : mac_key_(load_or_create_key(key_file, key_problem_)),
        key_field_(mac_key_ ? kKeyField + name_of(*mac_key_) + R"("})" : ""),
        file_("artifact store", path,
              {.schema = &kArtifactSchema,
               .is_read_only = is_read_only,
               .is_private = true,
               .remedy =
                   is_read_only
                       ? "readable rows are taken over"
                       : "`seqtile cache build`, with --device for a GPU's, moves it away and keeps the readable rows",
               .filling = "`seqtile cache build` fills it",
               .synchronous = kSynchronousNormal,
               .max_value_bytes = kMaxBinaryBytes}),
        key_file_(key_file),
        max_file_bytes_(max_file_bytes) {
    if (!mac_key_) log_line(LogLevel::warning, key_problem_);
  }
  ~SqliteArtifactDb() override;

  std::optional<KernelBinary> load(const ArtifactKey& key) override { return std::move(load_all({key}).front()); }
  bool store(const ArtifactKey& key, const KernelBinary& binary) override;
  std::vector<std::optional<KernelBinary>> load_all(const std::vector<ArtifactKey>& keys) override;
  std::string status() const override { return mac_key_ ? file_.status() : key_problem_; }
  ArtifactCounters counters() const override;
  std::vector<ArtifactRepair> repair() override;
  int64_t count_others() override;
  ArtifactCheck check() override;

 private:
  /// The caller's key for a row that this user has stored.
  ArtifactKey without_key(ArtifactKey stored) const;
  /// True for a row of another user, which only that user can verify.
  bool is_others(const ArtifactKey& stored) const {
    return stored.manifest.find(kKeyField) != std::string::npos && !stored.manifest.ends_with(key_field_);
  }
  /// The hashes of all rows that can be found.
  std::set<std::string> hashes();
  std::optional<ArtifactRepair> take_over(const std::string& path);
  enum class Answer { found, absent, rejected };
  /// The key of this user's row. Rows of other users have other secrets in their keys, so that they stand beside it.
  ArtifactKey own_key(const ArtifactKey& key) const;
  /// Loads the row of this user, or else the row of a release that did not tell users apart.
  Answer load_any(Connection& connection, const ArtifactKey& key, KernelBinary& binary);
  /// Loads the row of `hash`, and its key.
  Answer load_stored(const std::string& hash, ArtifactKey& key, KernelBinary& binary);
  Answer load_row(Connection& connection, const ArtifactKey& key, KernelBinary& binary);
  std::string mac(const ArtifactKey& key, const KernelBinary& binary) const;
  void insert(Connection& connection, const ArtifactKey& key, const KernelBinary& binary);
  void evict(Connection& connection, const std::string& kept_hash);
  void touch(Connection& connection, const std::set<std::string>& hashes);
  std::set<std::string> take_used();
  void report_unwritable();

  std::string key_problem_;
  const std::optional<MacKey> mac_key_;
  const std::string key_field_;  ///< last field of the manifests of this user's rows: the name of the secret
  mutable DatabaseFile file_;
  const std::string key_file_;
  const int64_t max_file_bytes_;
  mutable std::mutex mutex_;  ///< guards `counters_` and `used_`
  ArtifactCounters counters_;
  std::atomic<bool> is_told_{false};
  std::set<std::string> used_;  ///< loaded rows that were last touched more than a day ago; the next store touches them
};

SqliteArtifactDb::~SqliteArtifactDb() {
  const auto used = take_used();
  if (used.empty() || !file_.is_writable()) return;
  file_.write([&](Connection& connection) { touch(connection, used); });
}

std::set<std::string> SqliteArtifactDb::take_used() {
  const std::lock_guard lock(mutex_);
  return std::exchange(used_, {});
}

void SqliteArtifactDb::touch(Connection& connection, const std::set<std::string>& hashes) {
  const int64_t now = unix_time_us();
  for (const auto& hash : hashes) {
    Statement statement = connection.prepare(kTouchArtifact);
    statement.bind(hash);
    statement.bind(now);
    statement.run();
  }
}

std::string SqliteArtifactDb::mac(const ArtifactKey& key, const KernelBinary& binary) const {
  FieldSum sum(kMacBytes, *mac_key_);
  sum.add("artifact").add(key.hash).add(key.manifest).add(binary.symbol).add(binary.target).add(binary.stage);
  sum.add(static_cast<int64_t>(binary.entry_offset)).add(static_cast<int64_t>(binary.arena_bytes));
  sum.add(static_cast<int64_t>(binary.num_slots)).add(to_text(binary.gpu)).add_blob(binary.code);
  return sum.finish();
}

SqliteArtifactDb::Answer SqliteArtifactDb::load_row(Connection& connection, const ArtifactKey& key,
                                                    KernelBinary& binary) {
  Statement statement = connection.prepare(kSelectArtifact);
  statement.bind(key.hash);
  if (!statement.step()) return Answer::absent;
  std::string manifest, gpu;
  int64_t entry_offset = 0, arena_bytes = 0, num_slots = 0, used_us = 0;
  std::span<const std::byte> stored_mac, code;
  const bool is_typed =
      statement.read(0, manifest) && statement.read(1, binary.symbol) && statement.read(2, binary.target) &&
      statement.read(3, binary.stage) && statement.read(4, entry_offset) && statement.read(5, arena_bytes) &&
      statement.read(6, num_slots) && statement.read(7, gpu) && statement.read(8, used_us) &&
      statement.read_blob(9, stored_mac) && stored_mac.size() == kMacBytes && statement.read_blob(10, code);
  const auto launch = parse_gpu_launch(gpu);
  if (!is_typed || !launch || manifest != key.manifest) return Answer::rejected;
  binary.gpu = *launch;
  binary.entry_offset = static_cast<uint64_t>(entry_offset);
  binary.arena_bytes = static_cast<uint64_t>(arena_bytes);
  binary.num_slots = static_cast<uint32_t>(num_slots);
  // The private copy is verified and returned, so that no other process can change it in between.
  binary.code.assign(code.begin(), code.end());
  if (sodium_memcmp(mac(key, binary).data(), stored_mac.data(), kMacBytes) != 0) return Answer::rejected;
  if (unix_time_us() - used_us > kTouchIntervalUs) {
    const std::lock_guard lock(mutex_);
    used_.insert(key.hash);
  }
  return Answer::found;
}

ArtifactKey SqliteArtifactDb::own_key(const ArtifactKey& key) const {
  ArtifactKey own{"", key.manifest};
  if (own.manifest.ends_with('}')) own.manifest.pop_back();
  own.manifest += key_field_;
  own.hash = sha256_hex(own.manifest);
  return own;
}

SqliteArtifactDb::Answer SqliteArtifactDb::load_any(Connection& connection, const ArtifactKey& key,
                                                    KernelBinary& binary) {
  const Answer own = load_row(connection, own_key(key), binary);
  return own == Answer::absent ? load_row(connection, key, binary) : own;
}

std::vector<std::optional<KernelBinary>> SqliteArtifactDb::load_all(const std::vector<ArtifactKey>& keys) {
  std::vector<std::optional<KernelBinary>> found(keys.size());
  int64_t hits = 0, rejected = 0;
  if (mac_key_) {
    file_.read([&](Connection& connection) {
      hits = rejected = 0;
      for (size_t i = 0; i < keys.size(); ++i) {
        KernelBinary binary;
        const Answer answer = load_any(connection, keys[i], binary);
        rejected += answer == Answer::rejected;
        hits += answer == Answer::found;
        found[i].reset();
        if (answer == Answer::found) found[i] = std::move(binary);
      }
    });
  }
  if (rejected > 0)
    file_.report(
        "binaries that are damaged, or were not written under this user's key, are ignored and compiled anew; "
        "`seqtile cache check` lists them");
  const std::lock_guard lock(mutex_);
  counters_.hits += hits;
  counters_.misses += static_cast<int64_t>(keys.size()) - hits;
  counters_.rejected += rejected;
  return found;
}

void SqliteArtifactDb::insert(Connection& connection, const ArtifactKey& key, const KernelBinary& binary) {
  const int64_t now = unix_time_us();
  const std::string row_mac = mac(key, binary);
  Statement statement = connection.prepare(kInsertArtifact);
  for (const std::string& text : {key.hash, key.manifest, binary.symbol, binary.target, binary.stage})
    statement.bind(text);
  statement.bind(static_cast<int64_t>(binary.entry_offset));
  statement.bind(static_cast<int64_t>(binary.arena_bytes));
  statement.bind(static_cast<int64_t>(binary.num_slots));
  statement.bind(to_text(binary.gpu));
  statement.bind(now);
  statement.bind(now);
  statement.bind_blob(std::as_bytes(std::span(row_mac)));
  statement.bind_blob(binary.code);
  statement.run();
}

/// Drops the least recently used rows until the file's live pages fit. The row just stored is kept.
void SqliteArtifactDb::evict(Connection& connection, const std::string& kept_hash) {
  while (true) {
    int64_t pages = 0, page_bytes = 0;
    {
      Statement statement = connection.prepare(kPagesInUse);
      if (statement.step()) statement.read(0, pages), statement.read(1, page_bytes);
    }
    if (pages * page_bytes <= max_file_bytes_) return;
    {
      Statement statement = connection.prepare(kEvictArtifacts);
      statement.bind(kept_hash);
      statement.run();
    }
    if (sqlite3_changes(connection.get()) == 0) return;
  }
}

bool SqliteArtifactDb::store(const ArtifactKey& key, const KernelBinary& binary) {
  if (!mac_key_) {
    const std::lock_guard lock(mutex_);
    counters_.write_failures++;
    return false;
  }
  const auto limit = static_cast<size_t>(std::min<int64_t>(kMaxBinaryBytes / 2, max_file_bytes_));
  if (binary.code.size() > limit) {
    file_.refuse_write(
        fmt::format("{} has {} bytes of code, at most {} are kept", binary.symbol, binary.code.size(), limit));
    return false;
  }
  const auto used = take_used();
  const ArtifactKey own = own_key(key);
  const bool is_stored = file_.write([&](Connection& connection) {
    touch(connection, used);
    insert(connection, own, binary);
    evict(connection, own.hash);
  });
  if (!is_stored && file_.is_lastingly_unwritable()) report_unwritable();
  return is_stored;
}

/// Tells once what follows from a file that cannot be written: each process compiles what it lacks.
void SqliteArtifactDb::report_unwritable() {
  if (is_told_.exchange(true)) return;
  const int64_t others = count_others();
  std::string lacked = "binaries that it lacks are compiled at every start";
  if (others > 0) lacked = fmt::format("{}; {} under another key cannot be used", lacked, counted(others, "binary"));
  log_line(
      LogLevel::warning,
      fmt::format("artifact store {}: {}; make a NEW file with `seqtile cache build --artifacts NEW`{}", file_.path(),
                  lacked, others > 0 ? ", or set SEQTILE_CONFIG_DIR to a folder with that key" : ""));
}

ArtifactCounters SqliteArtifactDb::counters() const {
  const FileCounters file = file_.counters();
  const std::lock_guard lock(mutex_);
  ArtifactCounters sum = counters_;
  sum.write_failures += file.write_failures;
  sum.bad_files = file.bad_files;
  sum.foreign_files = file.foreign_files;
  return sum;
}

std::set<std::string> SqliteArtifactDb::hashes() {
  std::set<std::string> hashes;
  for (const char* sql : kArtifactKeys)
    file_.read([&](Connection& connection) {
      Statement statement = connection.prepare(sql);
      for (std::string hash; statement.step();)
        if (statement.read(0, hash)) hashes.insert(hash);
    });
  return hashes;
}

SqliteArtifactDb::Answer SqliteArtifactDb::load_stored(const std::string& hash, ArtifactKey& key,
                                                       KernelBinary& binary) {
  key = {hash, {}};
  Answer answer = Answer::rejected;
  file_.read([&](Connection& connection) {
    Statement statement = connection.prepare(kSelectManifest);
    statement.bind(hash);
    if (statement.step() && statement.read(0, key.manifest)) answer = load_row(connection, key, binary);
  });
  return answer;
}

ArtifactKey SqliteArtifactDb::without_key(ArtifactKey stored) const {
  if (!stored.manifest.ends_with(key_field_)) return stored;
  stored.manifest.erase(stored.manifest.size() - key_field_.size());
  stored.manifest += '}';
  stored.hash = sha256_hex(stored.manifest);
  return stored;
}

int64_t SqliteArtifactDb::count_others() {
  int64_t count = 0;
  file_.read([&](Connection& connection) {
    count = 0;
    Statement statement = connection.prepare(kSelectAllManifests);
    for (ArtifactKey stored; statement.step();) count += statement.read(0, stored.manifest) && is_others(stored);
  });
  return count;
}

ArtifactCheck SqliteArtifactDb::check() {
  ArtifactCheck report;
  const bool is_readable =
      file_.read([&](Connection& connection) { report.problems = structure_problems(connection); });
  report.is_sound = report.problems.empty() && !file_.is_damaged();
  report.is_usable = is_readable || file_.is_damaged();
  report.is_locked = !is_readable && file_.counters().busy > 0;
  if (!is_readable || !mac_key_) report.problems.push_back(status());
  if (!mac_key_) return report;
  for (const std::string& hash : hashes()) {
    ++report.rows;
    ArtifactKey key;
    KernelBinary binary;
    const Answer answer = load_stored(hash, key, binary);
    if (answer == Answer::found) report.good.insert(without_key(key).hash);
    if (answer == Answer::found || is_others(key)) continue;
    if (++report.bad_rows <= static_cast<int64_t>(CheckReport::kMaxListedProblems))
      report.problems.push_back(fmt::format("binary {} {}: not written under this user's key, or damaged",
                                            hash.substr(0, 16), one_line(binary.symbol)));
  }
  take_used();  // a check is no use of the rows
  return report;
}

/// Stores the readable rows of `path`. Rows that an earlier run took over are stored again, which changes nothing.
std::optional<ArtifactRepair> SqliteArtifactDb::take_over(const std::string& path) {
  ArtifactRepair repair{path};
  {
    SqliteArtifactDb old(path, key_file_, max_file_bytes_, true);
    for (const std::string& hash : old.hashes()) {
      ArtifactKey key;
      KernelBinary binary;
      if (old.load_stored(hash, key, binary) != Answer::found) continue;
      const bool is_stored = store(without_key(std::move(key)), binary);
      repair.kept += is_stored;
      repair.is_whole &= is_stored;
    }
    repair.is_whole &= old.file_.counters().busy == 0;
  }
  if (!repair.is_whole) return repair;
  repair.moved_to = free_name(file_.path() + ".damaged");
  if (rename(path.c_str(), repair.moved_to.c_str()) == 0) return repair;
  return std::nullopt;  // another process has renamed the file
}

std::vector<ArtifactRepair> SqliteArtifactDb::repair() {
  file_.read(check_structure);
  const std::string first = file_.path() + kRepairing;
  if (file_.is_damaged() && !file_.move_aside(kRepairing)) return {};
  std::vector<std::string> paths;  // more than one only after a run that was cut off
  for (std::string path = first; path != free_name(first); path = first + std::to_string(paths.size() + 1))
    paths.push_back(path);
  std::vector<ArtifactRepair> repairs;
  if (!paths.empty()) file_.write([](Connection&) {});  // makes a new file even if the old one has no readable row
  for (; !paths.empty() && (repairs.empty() || repairs.back().is_whole); paths.pop_back())
    if (const auto repair = take_over(paths.back())) repairs.push_back(*repair);
  return repairs;
}

}  // namespace

std::unique_ptr<ArtifactDb> ArtifactDb::open(const std::string& path, const std::string& key_file,
                                             int64_t max_file_bytes) {
  return std::make_unique<SqliteArtifactDb>(path, key_file, max_file_bytes);
}

std::unique_ptr<ArtifactDb> ArtifactDb::open_empty(const std::string& path, const std::string& key_file) {
  return std::make_unique<SqliteArtifactDb>(path, key_file, kMaxArtifactFileBytes, true);
}

}  // namespace seqtile::cache

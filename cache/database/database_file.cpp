// cache/database/database_file.cpp -- see database_file.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/database/database_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "cache/database/file_facts.h"
#include "cache/database/files.h"
#include "cache/database/text.h"
#include "jit/base/log.h"

namespace seqtile::cache {
namespace {

/// The value of a pragma: kApplicationId or kUserVersion.
int64_t number_of(Connection& connection, const char* pragma) {
  Statement statement = connection.prepare(pragma);
  int64_t value = 0;
  if (statement.step()) statement.read(0, value);
  return value;
}

using std::chrono::milliseconds;
// A reader gives up soon, since its caller serves a miss; a writer waits longer, since its measurement would be lost.
// After a reader has given up, later readers hardly wait until one of them succeeds, so that many lookups cost one
// wait.
constexpr milliseconds kReadTimeout{250}, kLockedReadTimeout{5}, kWriteTimeout{5000}, kBackoff{2};

// The size up to which the first write of a process checks the file's structure, because a write could spread damage.
// In a larger file only the pages that are read anyway are checked; `seqtile cache check` and `cache build` check all
// pages.
constexpr off_t kMaxCheckedBytes = 64 << 20;
constexpr const char* kReadOnlyFolder =
    "cannot be written (its folder is not writable); stored rows are used, nothing is added";
constexpr const char* kFixedProblem =
    "cannot be written (in WAL mode, in a folder that is not writable); stored rows are used, nothing is added";
constexpr int kFirstVersionOfStrictTables = 3037000;
constexpr int kOpenFlags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;

/// `path` as a URI that makes SQLite treat the file as immutable.
std::string immutable_uri(const std::string& path) {
  std::string text = "file:";
  for (const char c : path)
    text += c == '%' || c == '?' || c == '#' ? fmt::format("%{:02x}", static_cast<int>(c)) : std::string(1, c);
  return text + "?immutable=1";
}

}  // namespace

DatabaseFile::DatabaseFile(std::string subject, std::string path, const FileOptions& options)
    : subject_(std::move(subject)), path_(std::move(path)), options_(options) {
  // The file is opened now, so that status() is known at once and a writable store exists as a file from the start.
  struct stat info {};
  const bool is_new = lstat(path_.c_str(), &info) != 0 || (S_ISREG(info.st_mode) && info.st_size == 0);
  run(is_new && !options_.is_read_only ? Purpose::write : Purpose::read, [](Connection&) {});
  counters_.write_failures = 0;  // no caller's row was refused yet
}

DatabaseFile::~DatabaseFile() { disconnect(); }

bool DatabaseFile::read(const Body& body) {
  const std::lock_guard lock(mutex_);
  return run(Purpose::read, body);
}

bool DatabaseFile::write(const Body& body) {
  const std::lock_guard lock(mutex_);
  if (options_.is_read_only) {
    counters_.write_failures++;
    report_locked("is open for reading only; nothing is stored");
    return false;
  }
  return run(Purpose::write, body);
}

void DatabaseFile::refuse_write(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  counters_.write_failures++;
  report_locked("not stored: " + reason);
}

void DatabaseFile::report(const std::string& line) {
  const std::lock_guard lock(mutex_);
  report_locked(line);
}

void DatabaseFile::report_locked(const std::string& line) {
  if (line == last_line_) return;
  last_line_ = line;
  log_line(LogLevel::warning, fmt::format("{}: {}", name(), line));
}

bool DatabaseFile::run(Purpose purpose, const Body& body) {
  const bool is_write = purpose == Purpose::write;
  // A writer that had to wait lets the other writers go first after its write.
  if (is_write && std::exchange(was_contended_, false)) std::this_thread::sleep_for(kBackoff);
  timeout_ = is_write ? kWriteTimeout : is_locked_ ? kLockedReadTimeout : kReadTimeout;
  busy_deadline_ = std::chrono::steady_clock::now() + timeout_;
  try {
    try {
      return attempt(purpose, body);
    } catch (const DatabaseError& error) {
      // The first attempt has changed nothing in the file: its transaction is rolled back.
      if (error.needs_rollback()) roll_back_journal();
      else if (error.lacks_tables() && !is_damaged_) disconnect();  // the file was emptied or filled in place
      else throw;
    }
    return attempt(purpose, body);
  } catch (const DatabaseError& error) {
    fail(purpose, error);
    return false;
  }
}

bool DatabaseFile::attempt(Purpose purpose, const Body& body) {
  const bool is_write = purpose == Purpose::write;
  if (!open(purpose)) {
    counters_.write_failures += is_write;
    return false;
  }
  connection_->execute(is_write ? kBeginWrite : kBeginRead);
  body(*connection_);
  connection_->execute(kCommit);
  is_locked_ = false;
  if (!is_damaged_) problem_.clear();
  if (is_write) write_problem_.clear();
  return true;
}

void DatabaseFile::roll_back_journal() {
  abandon_transaction();
  Connection writer(absolute_path(path_), SQLITE_OPEN_READWRITE | kOpenFlags);
  sqlite3_busy_timeout(writer.get(), static_cast<int>(timeout_.count()));
  number_of(writer, kUserVersion);  // SQLite rolls back before it reads
}

void DatabaseFile::abandon_transaction() {
  if (connection_ && !sqlite3_get_autocommit(connection_->get()))
    sqlite3_exec(connection_->get(), kRollback, nullptr, nullptr, nullptr);
}

void DatabaseFile::fail(Purpose purpose, const DatabaseError& error) {
  const bool is_write = purpose == Purpose::write;
  counters_.write_failures += is_write;
  abandon_transaction();
  std::string& problem = is_write ? write_problem_ : problem_;
  if (error.is_busy()) {
    counters_.busy++;
    is_locked_ = true;
    problem = fmt::format("locked by another process; {} after {} ms; try again when it is done",
                          is_write ? "nothing is stored" : "a miss", timeout_.count());
  } else if (error.is_damage()) {
    counters_.bad_files++;
    is_damaged_ = true;
    problem_ = fmt::format("damaged ({}); rows that can still be read are used, nothing is written; {}",
                           one_line(error.what(), kMaxReasonBytes), options_.remedy);
    report_locked(problem_);
    return;
  } else {
    if (!is_write) counters_.bad_files++;
    problem = cause_of(error, path_, is_write);
  }
  report_locked(problem);
}

void DatabaseFile::disable(const std::string& reason) {
  disconnect();
  struct stat info {};
  if (!path_.empty() && lstat(path_.c_str(), &info) == 0) disabled_ = info;
  problem_ = reason;
  counters_.bad_files++;
  report_locked(reason);
}

void DatabaseFile::disconnect() {
  // A forked child must neither use nor close the parent's connection.
  if (connection_ && owner_ != getpid()) static_cast<void>(connection_.release());
  connection_.reset();
  is_damaged_ = was_checked_ = false;
}

bool DatabaseFile::open(Purpose purpose) {
  if (connection_ && (owner_ != getpid() || has_changed())) disconnect();
  if (!connection_ && !connect(purpose)) return false;
  if (purpose == Purpose::read) return true;
  if (is_damaged_) return false;
  if (connection_->is_read_only()) {
    report_locked(write_problem_);
    return false;
  }
  struct stat info {};
  if (!std::exchange(was_checked_, true) && lstat(path_.c_str(), &info) == 0 && info.st_size <= kMaxCheckedBytes)
    check_structure(*connection_);
  return true;
}

bool DatabaseFile::has_changed() const {
  if (!fixed_) return connection_->has_moved();
  struct stat info {};  // SQLite does not look again at a file opened as immutable
  return stat(path_.c_str(), &info) != 0 || !is_same_file(*fixed_, info) || !is_whole_and_fixed(path_);
}

bool DatabaseFile::may_connect(Purpose purpose, bool exists, const struct stat& info) {
  if (disabled_ && exists && is_same_file(*disabled_, info)) return false;
  disabled_.reset();
  if (path_.empty()) {
    problem_ = "no path: neither a folder variable nor HOME is set; name a file, or set SEQTILE_CACHE_DIR";
    report_locked(problem_);
    return false;
  }
  if (!exists && (purpose == Purpose::read || options_.is_read_only)) {
    problem_ = fmt::format("does not exist; {}", options_.filling);
    return false;
  }
  if (sqlite3_libversion_number() < kFirstVersionOfStrictTables) {
    problem_ =
        fmt::format("needs SQLite 3.37 or later for its STRICT tables, this is {}; update it", sqlite3_libversion());
    report_locked(problem_);
    return false;
  }
  if (const std::string refusal = exists ? refusal_by_kind(path_, info) : ""; !refusal.empty()) {
    disable(refusal);
    return false;
  }
  return true;
}

bool DatabaseFile::connect(Purpose purpose) {
  struct stat info {};
  const bool exists = lstat(path_.c_str(), &info) == 0;
  if (!may_connect(purpose, exists, info)) return false;
  try {
    const std::string problem = exists ? "" : make_parent_folders(path_);
    if (!problem.empty()) throw DatabaseError(SQLITE_CANTOPEN, problem);
    const std::string path = absolute_path(path_);
    if (!exists && options_.is_private) create_private_file(path);
    const int access = options_.is_read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    const int create = exists ? 0 : SQLITE_OPEN_CREATE;
    if (!attach(path, access | create)) return false;
    if (options_.is_read_only) return true;
    const bool folder_is_writable = ::access(parent_folder(path).c_str(), W_OK) == 0;  // SQLite makes the journal there
    write_problem_ = fixed_                        ? kFixedProblem
                     : connection_->is_read_only() ? read_only_problem(path)
                     : folder_is_writable          ? ""
                                                   : kReadOnlyFolder;
    return true;
  } catch (const DatabaseError& error) {
    disconnect();
    if (!error.is_damage()) throw;
    disable(
        fmt::format("not a SQLite database, or one damaged beyond use ({}); it is left as it is; move it away or name "
                    "another file",
                    one_line(error.what(), kMaxReasonBytes)));
    return false;
  }
}

bool DatabaseFile::attach(const std::string& path, int flags) {
  fixed_.reset();
  owner_ = getpid();
  try {
    connection_ = std::make_unique<Connection>(path, flags | kOpenFlags);
    harden();
    return verify_identity();
  } catch (const DatabaseError& error) {
    // SQLite needs files beside a database in WAL mode, and a folder that is not writable cannot take them.
    struct stat info {};
    const int code = error.code() & 0xff;
    if ((code != SQLITE_CANTOPEN && code != SQLITE_READONLY) || !is_whole_and_fixed(path) ||
        stat(path.c_str(), &info) != 0)
      throw;
    disconnect();
    connection_ =
        std::make_unique<Connection>(immutable_uri(path), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | kOpenFlags);
    fixed_ = info;
    harden();
    return verify_identity();
  }
}

void DatabaseFile::create_private_file(const std::string& path) const {
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
}

void DatabaseFile::harden() {
  sqlite3* handle = connection_->get();
  sqlite3_busy_handler(handle, on_busy, this);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, nullptr);
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, options_.max_value_bytes);
  sqlite3_limit(handle, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(handle, SQLITE_LIMIT_TRIGGER_DEPTH, 1);
  connection_->execute(kConnectionSetup);
  connection_->execute(options_.synchronous);
}

bool DatabaseFile::verify_identity() {
  connection_->execute(kBeginRead);
  bool is_ours = identity_is_ours();
  connection_->execute(kCommit);
  // A reader creates the schema too: rolling back a writer that was killed while it made the file leaves an empty file.
  if (!is_ours && problem_.empty() && !options_.is_read_only && !connection_->is_read_only()) {
    create_schema();
    is_ours = true;
  }
  if (is_ours) {
    // A database browser may have left the file in WAL mode, which a read-only folder cannot serve. SQLite refuses the
    // change while other processes have the file open, which does no harm.
    if (!connection_->is_read_only()) sqlite3_exec(connection_->get(), kRollbackJournal, nullptr, nullptr, nullptr);
    if (has_lost_marks_ && !options_.is_read_only && !connection_->is_read_only()) restore_marks();
    return true;
  }
  if (problem_.empty()) {
    disconnect();
    problem_ = fmt::format("is empty; {}", options_.filling);
    return false;
  }
  counters_.foreign_files += is_foreign_;
  disable(std::string(problem_));
  return false;
}

/// False with an empty `problem_` means an empty database. `.dump` writes neither number: a file without them is known
/// by its tables.
bool DatabaseFile::identity_is_ours() {
  problem_.clear();
  std::vector<std::string> texts;
  {
    Statement statement = connection_->prepare(kSchemaTexts);
    while (statement.step()) statement.read(0, texts.emplace_back());
  }
  const int64_t application = number_of(*connection_, kApplicationId), version = number_of(*connection_, kUserVersion);
  if (texts.empty() && application == 0 && version == 0) return false;
  const Schema& schema = *options_.schema;
  const Schema& other = &schema == &kTuningSchema ? kArtifactSchema : kTuningSchema;
  const auto has_all = [&](std::span<const char* const> tables) {
    return std::all_of(tables.begin(), tables.end(),
                       [&](const char* table) { return std::find(texts.begin(), texts.end(), table) != texts.end(); });
  };
  has_lost_marks_ =
      version == 0 && (application == 0 || application == schema.application_id) && has_all(schema.tables);
  if (has_lost_marks_) return true;
  const auto is_of = [&](const Schema& one) {
    return application == one.application_id || (application == 0 && connection_->prepare(one.column_query).step());
  };
  is_foreign_ = !is_of(schema);
  if (is_foreign_ && is_of(other)) {
    problem_ = fmt::format("is {}, not {}; it is left as it is; were the paths of the two swapped?", other.subject,
                           schema.subject);
  } else if (is_foreign_) {
    problem_ = fmt::format(
        "another program's SQLite database (application_id {:#x}, not {:#x}); it is left as it is; name "
        "another file",
        application, schema.application_id);
  } else if (has_all(schema.tables) && (version < 0 || application == 0)) {
    problem_ = fmt::format(
        "has the tables of {}, but application_id {:#x} and user_version {}, which no release writes; it is left as it "
        "is; if another program changed them, restore them: sqlite3 FILE 'PRAGMA application_id={}; PRAGMA "
        "user_version={}'",
        schema.subject, application, version, schema.application_id, schema.user_version);
  } else if (application == 0) {
    problem_ = fmt::format(
        "has the tables of {}, but not in the words of schema {}: a dump that another program wrote or changed, or one "
        "of another release; it is left as it is; restore one that `sqlite3 FILE .dump` writes, or move it away to "
        "start a new one",
        schema.subject, schema.user_version);
  } else if (version > schema.user_version) {
    problem_ = fmt::format(
        "written by a newer release (schema {}, this one reads {}); it is left as it is; update, or name "
        "another file",
        version, schema.user_version);
  } else if (version > 0 && version < schema.user_version) {
    problem_ = fmt::format(
        "written by an earlier release (schema {}, this one reads {}); it is left as it is; move it away to start a "
        "new one",
        version, schema.user_version);
  } else if (version < 0) {
    problem_ = fmt::format(
        "its user_version is {}, which no release writes (this one writes {}); it is left as it is; move it away to "
        "start a new one",
        version, schema.user_version);
  } else if (version != schema.user_version || !has_all(schema.tables)) {
    problem_ =
        fmt::format("its tables are not those of schema {}; it is left as it is; move it away to start a new one",
                    schema.user_version);
  }
  return problem_.empty();
}

void DatabaseFile::create_schema() {
  connection_->execute(kBeginWrite);
  if (!identity_is_ours()) {  // else another process has created the schema
    if (!problem_.empty()) throw DatabaseError(SQLITE_CORRUPT, problem_);
    const Schema& schema = *options_.schema;
    for (const char* table : schema.tables) connection_->execute(table);
    for (const char* view : schema.views) connection_->execute(view);
    connection_->execute(fmt::format("PRAGMA application_id = {}", schema.application_id).c_str());
    connection_->execute(fmt::format("PRAGMA user_version = {}", schema.user_version).c_str());
  }
  connection_->execute(kCommit);
}

/// Writes the application_id and the user_version, which `.dump` omits.
void DatabaseFile::restore_marks() {
  const Schema& schema = *options_.schema;
  try {
    connection_->execute(kBeginWrite);
    connection_->execute(fmt::format("PRAGMA user_version = {}", schema.user_version).c_str());
    connection_->execute(fmt::format("PRAGMA application_id = {}", schema.application_id).c_str());
    connection_->execute(kCommit);
  } catch (const DatabaseError&) {  // the file is locked or its folder is read-only; rows are served without the marks
    sqlite3_exec(connection_->get(), kRollback, nullptr, nullptr, nullptr);
  }
}

/// Pauses between tries grow shorter with the time waited, so that the process that has waited longest tries most
/// often. SQLite's own pauses grow longer; under load a writer then starves while others overtake it.
int DatabaseFile::on_busy(void* self, int) {
  using std::chrono::steady_clock, std::chrono::microseconds;
  auto& file = *static_cast<DatabaseFile*>(self);
  file.was_contended_ = true;
  const auto now = steady_clock::now();
  if (now >= file.busy_deadline_) return 0;
  const auto waited = std::chrono::duration_cast<milliseconds>(now - (file.busy_deadline_ - file.timeout_));
  const int64_t scatter = now.time_since_epoch().count() / 64 % 3000;
  std::this_thread::sleep_for(microseconds((500 + scatter) / (1 + waited.count() / 100)));
  return 1;
}

bool DatabaseFile::may_be_written() const {
  if (options_.is_read_only || is_damaged_ || !connection_ || connection_->is_read_only()) return false;
  return access(parent_folder(path_).c_str(), W_OK) == 0;
}

bool DatabaseFile::is_writable() {
  const std::lock_guard lock(mutex_);
  return may_be_written();
}

bool DatabaseFile::is_lastingly_unwritable() {
  const std::lock_guard lock(mutex_);
  return !may_be_written() && !is_damaged_ && counters_.busy == 0;
}

bool DatabaseFile::is_damaged() {
  const std::lock_guard lock(mutex_);
  return is_damaged_;
}

std::optional<std::string> DatabaseFile::move_aside(const std::string& suffix) {
  const std::lock_guard lock(mutex_);
  timeout_ = kWriteTimeout;
  busy_deadline_ = std::chrono::steady_clock::now() + timeout_;
  try {
    if (!open(Purpose::read) || !is_damaged_) return std::nullopt;  // another process has put a sound file at the path
    connection_->execute(kBeginExclusive);  // rolls back a pending journal before the file's name changes
    const std::string name = free_name(path_ + suffix);
    if (connection_->has_moved()) return std::nullopt;
    const bool is_renamed = rename(path_.c_str(), name.c_str()) == 0;
    if (!is_renamed)
      problem_ = fmt::format("damaged, and cannot be renamed to {} ({}); move it away", name, strerror(errno));
    disconnect();
    return is_renamed ? std::optional(name) : std::nullopt;
  } catch (const DatabaseError& error) {
    fail(Purpose::write, error);
    return std::nullopt;
  }
}

std::string DatabaseFile::name() const { return path_.empty() ? subject_ : subject_ + " " + path_; }

std::string DatabaseFile::status() {
  const std::lock_guard lock(mutex_);
  const std::string& problem = problem_.empty() ? write_problem_ : problem_;
  return problem.empty() ? "" : fmt::format("{}: {}", name(), problem);
}

FileCounters DatabaseFile::counters() const {
  return {.bad_files = counters_.bad_files,
          .write_failures = counters_.write_failures,
          .busy = counters_.busy,
          .foreign_files = counters_.foreign_files};
}

}  // namespace seqtile::cache

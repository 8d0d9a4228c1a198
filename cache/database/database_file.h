// cache/database/database_file.h -- one SQLite file that may be absent, foreign, damaged, locked or unwritable at any
// time.
// SPDX-License-Identifier: Apache-2.0
//
// Private to cache/. A store asks `read` or `write` to run some statements; whatever goes wrong becomes `false`, a
// counter and one log line (repeated only when the reason changes). The file is opened on first use and again when its
// path names another file than the one that is open, so a deleted and recreated file is followed. Rules that protect
// the file:
//   - anything that is not ours (folder, symlink, other SQLite file, newer schema) is never written;
//   - after the first sign of damage nothing is written until the path names another file;
//   - nothing but SQLite opens the file: a stray close() in this process would drop SQLite's locks.
// Thread-safe: one mutex around every call. A forked child abandons the inherited connection and opens its own.
#pragma once
#include <sys/stat.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "cache/database/schema.h"
#include "cache/database/sqlite.h"

namespace seqtile::cache {

struct FileOptions {
  const Schema* schema;
  bool is_read_only = false;
  bool is_private = false;                                              ///< created with mode 0600
  const char* remedy = "move it away to start a new one";               ///< of damage, for people
  const char* filling = "name another file, or prewarm into this one";  ///< of a file that is absent or empty
  const char* synchronous = kSynchronousFull;
  int max_value_bytes = 1 << 20;
};

struct FileCounters {
  int64_t bad_files = 0, write_failures = 0, busy = 0;
  int64_t foreign_files = 0;  ///< those of `bad_files` that are no stores of this kind at all
};

class DatabaseFile {
 public:
  /// `subject` begins every message, e.g. "tuning store".
  DatabaseFile(std::string subject, std::string path, const FileOptions& options);
  ~DatabaseFile();
  DatabaseFile(const DatabaseFile&) = delete;
  DatabaseFile& operator=(const DatabaseFile&) = delete;

  using Body = std::function<void(Connection&)>;
  /// Runs `body` in one read transaction; false when the file could not be read to the end.
  bool read(const Body& body);
  /// Runs `body` in one write transaction, created file and folders included; true when it is committed.
  bool write(const Body& body);
  /// Refuses a write for a reason of the caller's, as if the file had.
  void refuse_write(const std::string& reason);
  /// Logs unless it is what was logged last.
  void report(const std::string& line);

  const std::string& path() const { return path_; }
  bool is_writable();
  bool is_damaged();  ///< as far as it was looked at
  /// Renames the damaged file to its path with `suffix`, when nobody else uses it, so that the next write starts a new
  /// one; the new name, or nothing when that was not possible. Who has the old one open follows the path.
  std::optional<std::string> move_aside(const std::string& suffix);
  std::string status();
  FileCounters counters() const;

 private:
  enum class Purpose { read, write };
  bool run(Purpose purpose, const Body& body);
  bool attempt(Purpose purpose, const Body& body);
  /// Undoes what a killed writer has left unfinished, as every program does that opens the file for writing.
  void roll_back_journal();
  void abandon_transaction();
  bool open(Purpose purpose);
  bool may_connect(Purpose purpose, bool exists, const struct stat& info);
  bool connect(Purpose purpose);
  /// Opens the file and looks whether it is ours.
  bool attach(const std::string& path, int flags);
  bool has_changed() const;
  void harden();
  bool verify_identity();
  bool identity_is_ours();
  void create_schema();
  void restore_marks();
  void create_private_file(const std::string& path) const;
  void disconnect();
  void fail(Purpose purpose, const DatabaseError& error);
  /// The file as it is now is not usable; looked at again only when it changes.
  void condemn(const std::string& reason);
  void report_locked(const std::string& line);
  static int on_busy(void* self, int attempts);

  const std::string subject_, path_;
  const FileOptions options_;
  mutable std::mutex mutex_;
  std::unique_ptr<Connection> connection_;
  pid_t owner_ = 0;  ///< the process that opened `connection_`
  bool is_damaged_ = false, is_locked_ = false, was_contended_ = false, was_checked_ = false;
  std::optional<struct stat> condemned_;
  std::optional<struct stat> fixed_;  ///< opened as a file that nobody changes, and what it was then
  bool has_lost_marks_ = false;       ///< ours by its tables alone
  bool is_foreign_ = false;           ///< another program's, or the other kind of store
  std::string problem_;               ///< why rows are not read
  std::string write_problem_;         ///< why rows are not written, until one is
  std::string last_line_;
  FileCounters counters_;
  std::chrono::milliseconds patience_{};
  std::chrono::steady_clock::time_point busy_deadline_;
};

}  // namespace seqtile::cache

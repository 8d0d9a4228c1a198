// cache/database/database_file.h -- one SQLite file that may be absent, foreign, damaged, locked or unwritable at any
// time.
// SPDX-License-Identifier: Apache-2.0
//
// Private to cache/. A store asks `read` or `write` to run some statements. A failure becomes `false`, a counter and
// one log line, which is repeated only when the reason changes. The file is opened on first use. It is opened again
// when its path names another file, so that a deleted and recreated file is followed. Rules that protect the file:
//   - a path that is not our file (folder, symlink, other SQLite file, newer schema) is never written;
//   - after the first sign of damage nothing is written until the path names another file;
//   - nothing but SQLite opens the file: a stray close() in this process would drop SQLite's locks.
// Thread-safe: one mutex around every call but counters(). A forked child abandons the inherited connection and opens
// its own.
#pragma once
#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
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
  const char* remedy = "move it away to start a new one";               ///< next step for a damaged file
  const char* filling = "name another file, or prewarm into this one";  ///< next step for an absent or empty file
  const char* synchronous = kSynchronousFull;
  int max_value_bytes = 1 << 20;
};

struct FileCounters {
  int64_t bad_files = 0, write_failures = 0, busy = 0;
  int64_t foreign_files = 0;  ///< the part of `bad_files` that is no store of this kind
};

class DatabaseFile {
 public:
  /// `subject` begins every message, e.g. "tuning store".
  DatabaseFile(std::string subject, std::string path, const FileOptions& options);
  ~DatabaseFile();
  DatabaseFile(const DatabaseFile&) = delete;
  DatabaseFile& operator=(const DatabaseFile&) = delete;

  /// The statements of one transaction. A body whose first run fails with a DatabaseError, because a killed writer left
  /// a journal or the file was emptied in place, may run a second time, on a new transaction. A body therefore begins
  /// by resetting what it fills. A body must not call this object, except for counters().
  using Body = std::function<void(Connection&)>;
  /// Runs `body`, at most twice, in one read transaction. Returns false if the file could not be read to the end.
  bool read(const Body& body);
  /// Runs `body`, at most twice, in one write transaction; creates the file and its folders. Returns true after the
  /// commit, which is that of the last run: no earlier run has changed the file.
  bool write(const Body& body);
  /// Counts and reports a write that the caller refuses for `reason`.
  void refuse_write(const std::string& reason);
  /// Logs the line unless it equals the last one.
  void report(const std::string& line);

  const std::string& path() const { return path_; }
  bool is_writable();
  /// True if writes fail and will go on to: not for damage, which a repair mends, nor after a lock was met.
  bool is_lastingly_unwritable();
  bool is_damaged();  ///< damage found so far
  /// Appends `suffix` to the name of the damaged file if no other process uses it, so that the next write starts a new
  /// file. Returns the new name, or nullopt if the file was not renamed. A process that has the old file open follows
  /// the path.
  std::optional<std::string> move_aside(const std::string& suffix);
  std::string status();
  /// Waits for no transaction.
  FileCounters counters() const;

 private:
  enum class Purpose { read, write };
  bool run(Purpose purpose, const Body& body);
  bool attempt(Purpose purpose, const Body& body);
  /// Undoes what a killed writer has left unfinished, as every program does that opens the file for writing.
  void roll_back_journal();
  void abandon_transaction();
  bool open(Purpose purpose);
  bool may_be_written() const;
  bool may_connect(Purpose purpose, bool exists, const struct stat& info);
  bool connect(Purpose purpose);
  /// Opens the file. Returns true if it is ours.
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
  /// Marks the present file as not usable; it is looked at again only when it changes.
  void disable(const std::string& reason);
  std::string name() const;  ///< what the file is and its path, for messages
  void report_locked(const std::string& line);
  static int on_busy(void* self, int attempts);

  const std::string subject_, path_;
  const FileOptions options_;
  mutable std::mutex mutex_;
  std::unique_ptr<Connection> connection_;
  pid_t owner_ = 0;  ///< the process that opened `connection_`
  bool is_damaged_ = false, is_locked_ = false, was_contended_ = false, was_checked_ = false;
  std::optional<struct stat> disabled_;
  std::optional<struct stat> fixed_;  ///< state of the file when it was opened as immutable
  bool has_lost_marks_ = false;       ///< only the tables identify the file as ours
  bool is_foreign_ = false;           ///< the file belongs to another program or is the other kind of store
  std::string problem_;               ///< reason why rows cannot be read
  std::string write_problem_;         ///< reason why rows cannot be written; cleared by a write
  std::string last_line_;
  struct {
    std::atomic<int64_t> bad_files{0}, write_failures{0}, busy{0}, foreign_files{0};
  } counters_;  ///< as FileCounters; changed under `mutex_`, read without it
  std::chrono::milliseconds timeout_{};
  std::chrono::steady_clock::time_point busy_deadline_;
};

}  // namespace seqtile::cache

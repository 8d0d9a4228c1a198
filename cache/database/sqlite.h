// cache/database/sqlite.h -- SQLite's handles with C++ lifetimes, typed columns, and errors as one exception.
// SPDX-License-Identifier: Apache-2.0
//
// Private to cache/. `DatabaseError` never leaves a store: database_file.cpp turns it into a counter and a log line.
// The readers here never convert: a column whose stored type is not the declared one is damage.
#pragma once
#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace seqtile::cache {

class DatabaseError : public std::runtime_error {
 public:
  DatabaseError(int code, const std::string& message, int system_errno = 0)
      : std::runtime_error(message), code_(code), system_errno_(system_errno) {}
  int code() const { return code_; }                  ///< extended result code
  int system_errno() const { return system_errno_; }  ///< of the file operation that failed; 0: not known
  bool is_busy() const { return (code_ & 0xff) == SQLITE_BUSY || (code_ & 0xff) == SQLITE_LOCKED; }
  bool is_damage() const { return (code_ & 0xff) == SQLITE_CORRUPT || (code_ & 0xff) == SQLITE_NOTADB; }
  /// A killed writer has left a journal, which a connection for reading only cannot roll back.
  bool needs_rollback() const { return code_ == SQLITE_READONLY_ROLLBACK; }
  /// A statement does not fit the tables of the file.
  bool lacks_tables() const { return code_ == SQLITE_ERROR; }

 private:
  int code_, system_errno_;
};

/// A prepared statement on loan from its Connection. Parameters are bound in order. The destructor resets the
/// statement.
class Statement {
 public:
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement();

  void bind(int64_t value);
  void bind(double value);
  void bind(std::string_view text);
  void bind_null();
  /// The bytes must live until the statement has run.
  void bind_blob(std::span<const std::byte> bytes);

  /// Returns true if there is a row to read.
  bool step();
  /// Runs a statement that returns no row.
  void run() {
    while (step()) {
    }
  }

  /// Each returns false and leaves `out` alone if the column has another type.
  bool read(int column, int64_t& out);
  bool read(int column, double& out);
  bool read(int column, std::string& out);
  bool read_blob(int column, std::span<const std::byte>& out);  ///< valid until the next step

 private:
  void require(int code);
  sqlite3_stmt* statement_;
  int next_parameter_ = 1;
};

/// One open database file and its prepared statements. Not thread-safe.
class Connection {
 public:
  /// Errors: DatabaseError. `flags` as for sqlite3_open_v2.
  Connection(const std::string& path, int flags);
  sqlite3* get() const { return handle_.get(); }
  /// Prepares each text once. `sql` must be a constant of schema.h, because statements are found by its address.
  Statement prepare(const char* sql);
  void execute(const char* sql);
  bool is_read_only() const;
  /// True if the path no longer names the open file.
  bool has_moved() const;

 private:
  struct CloseHandle {
    void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3, CloseHandle> handle_;
  std::unordered_map<const char*, std::unique_ptr<sqlite3_stmt, Finalize>> statements_;
};

/// Reads the whole file. Errors: DatabaseError at the first damage of its structure.
void check_structure(Connection& connection);
/// All structural problems that SQLite finds, one line each.
std::vector<std::string> structure_problems(Connection& connection);

}  // namespace seqtile::cache

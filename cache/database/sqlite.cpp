// cache/database/sqlite.cpp -- see sqlite.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/database/sqlite.h"

#include "cache/database/schema.h"

namespace seqtile::cache {
namespace {

/// SQLite keeps the number for a statement that failed, and for the file where a commit failed.
int system_errno(sqlite3* handle, int code) {
  if ((code & 0xff) != SQLITE_IOERR && (code & 0xff) != SQLITE_CANTOPEN) return 0;
  int number = sqlite3_system_errno(handle);
  if (number == 0) sqlite3_file_control(handle, "main", SQLITE_FCNTL_LAST_ERRNO, &number);
  return number;
}

[[noreturn]] void fail(sqlite3* handle, int code) {
  throw DatabaseError(code, sqlite3_errmsg(handle), system_errno(handle, code));
}

}  // namespace

Statement::~Statement() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Statement::require(int code) {
  if (code != SQLITE_OK) fail(sqlite3_db_handle(statement_), code);
}

void Statement::bind(int64_t value) { require(sqlite3_bind_int64(statement_, next_parameter_++, value)); }
void Statement::bind(double value) { require(sqlite3_bind_double(statement_, next_parameter_++, value)); }
void Statement::bind_null() { require(sqlite3_bind_null(statement_, next_parameter_++)); }

void Statement::bind(std::string_view text) {
  // A null pointer would bind NULL, so an empty view gets an address.
  require(sqlite3_bind_text64(statement_, next_parameter_++, text.empty() ? "" : text.data(), text.size(),
                              SQLITE_TRANSIENT, SQLITE_UTF8));
}

void Statement::bind_blob(std::span<const std::byte> bytes) {
  const void* address = bytes.empty() ? static_cast<const void*>("") : bytes.data();
  require(sqlite3_bind_blob64(statement_, next_parameter_++, address, bytes.size(), SQLITE_STATIC));
}

bool Statement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  fail(sqlite3_db_handle(statement_), code);
}

bool Statement::read(int column, int64_t& out) {
  if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) return false;
  out = sqlite3_column_int64(statement_, column);
  return true;
}

bool Statement::read(int column, double& out) {
  if (sqlite3_column_type(statement_, column) != SQLITE_FLOAT) return false;
  out = sqlite3_column_double(statement_, column);
  return true;
}

bool Statement::read(int column, std::string& out) {
  if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) return false;
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (!text) return false;
  out.assign(text, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
  return true;
}

bool Statement::read_blob(int column, std::span<const std::byte>& out) {
  if (sqlite3_column_type(statement_, column) != SQLITE_BLOB) return false;
  const void* bytes = sqlite3_column_blob(statement_, column);
  out = {static_cast<const std::byte*>(bytes), static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
  return true;
}

Connection::Connection(const std::string& path, int flags) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags | SQLITE_OPEN_EXRESCODE, nullptr);
  handle_.reset(handle);
  if (code != SQLITE_OK && !handle) throw DatabaseError(code, sqlite3_errstr(code));
  if (code != SQLITE_OK) fail(handle, code);
}

Statement Connection::prepare(const char* sql) {
  auto& slot = statements_[sql];
  if (!slot) {
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v3(get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) fail(get(), code);
    slot.reset(statement);
  }
  return Statement(slot.get());
}

void Connection::execute(const char* sql) {
  const int code = sqlite3_exec(get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(get(), code);
}

bool Connection::is_read_only() const { return sqlite3_db_readonly(get(), "main") != 0; }

bool Connection::has_moved() const {
  int moved = 0;
  sqlite3_file_control(get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0;
}

void check_structure(Connection& connection) {
  Statement statement = connection.prepare(kStructureCheck);
  std::string line;
  if (statement.step() && statement.read(0, line) && line != "ok") throw DatabaseError(SQLITE_CORRUPT, line);
}

std::vector<std::string> structure_problems(Connection& connection) {
  std::vector<std::string> problems;
  Statement statement = connection.prepare(kIntegrityCheck);
  for (std::string line; statement.step();)
    if (statement.read(0, line) && line != "ok") problems.push_back("integrity check: " + line);
  return problems;
}

}  // namespace seqtile::cache

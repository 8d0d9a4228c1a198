// tests/cache/database_file_test.cpp -- the rules that bodies of transactions rely on.
// SPDX-License-Identifier: Apache-2.0
#include "cache/database/database_file.h"

#include "tests/cache/support.h"

using namespace seqtile::cache;
using namespace seqtile::test;

TEST_CASE("database file: counters are read while a transaction runs", "[cache]") {
  const TempFolder folder;
  DatabaseFile file("tuning store", folder.file("tuning.db"), {.schema = &kTuningSchema});
  file.refuse_write("too long");
  int64_t seen = -1;
  CHECK(file.write([&](Connection&) { seen = file.counters().write_failures; }));
  CHECK(seen == 1);
}

TEST_CASE("database file: a body whose first run fails runs again on an unchanged file", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  DatabaseFile file("tuning store", path, {.schema = &kTuningSchema});
  const auto count_rows = [](Connection& connection) {
    Statement statement = connection.prepare("SELECT count(*) FROM workload");
    int64_t rows = -1;
    if (statement.step()) statement.read(0, rows);
    return rows;
  };
  int runs = 0;
  std::vector<int64_t> rows;
  CHECK(file.write([&](Connection& connection) {
    rows.push_back(count_rows(connection));
    connection.execute("INSERT INTO workload VALUES(NULL, 'hash', 'linear', 'source', 1, '{}', zeroblob(16))");
    if (++runs == 1) throw DatabaseError(SQLITE_ERROR, "no such table");
  }));
  CHECK(runs == 2);
  CHECK(rows == std::vector<int64_t>{0, 0});
  CHECK(file.counters().write_failures == 0);
  CHECK(file.read([&](Connection& connection) { rows.push_back(count_rows(connection)); }));
  CHECK(rows.back() == 1);
}

TEST_CASE("database file: a file open for reading only is lastingly unwritable, a damaged one is not", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  DatabaseFile writer("tuning store", path, {.schema = &kTuningSchema});
  CHECK_FALSE(writer.is_lastingly_unwritable());
  DatabaseFile reader("tuning store", path, {.schema = &kTuningSchema, .is_read_only = true});
  CHECK(reader.is_lastingly_unwritable());
  CHECK_FALSE(reader.read([](Connection&) { throw DatabaseError(SQLITE_CORRUPT, "damaged"); }));
  CHECK_FALSE(reader.is_lastingly_unwritable());
}

// cache/schema_version.cpp -- see schema_version.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/schema_version.h"

#include <fmt/format.h>

namespace seqtile::cache {

int64_t number_of(Connection& connection, const char* pragma) {
  Statement statement = connection.prepare(pragma);
  int64_t value = 0;
  if (statement.step()) statement.read(0, value);
  return value;
}

bool is_current(Connection& connection, const Schema& schema) {
  return number_of(connection, kUserVersion) == schema.user_version;
}

void make_current(Connection& connection, const Schema& schema) {
  if (is_current(connection, schema)) return;
  for (const char* table : schema.added_tables) connection.execute(table);
  for (const char* view : schema.added_views) connection.execute(view);
  connection.execute(fmt::format("PRAGMA user_version = {}", schema.user_version).c_str());
}

}  // namespace seqtile::cache

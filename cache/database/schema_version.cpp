// cache/database/schema_version.cpp -- see schema_version.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/database/schema_version.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace seqtile::cache {

int64_t number_of(Connection& connection, const char* pragma) {
  Statement statement = connection.prepare(pragma);
  int64_t value = 0;
  if (statement.step()) statement.read(0, value);
  return value;
}

int64_t version_of(Connection& connection, const Schema& schema) {
  if (const int64_t version = number_of(connection, kUserVersion); version != 0) return version;
  std::vector<std::string> texts;
  Statement statement = connection.prepare(kSchemaTexts);
  while (statement.step()) statement.read(0, texts.emplace_back());
  const bool has_added = std::all_of(schema.added_tables.begin(), schema.added_tables.end(), [&](const char* table) {
    return std::find(texts.begin(), texts.end(), table) != texts.end();
  });
  return texts.empty() ? 0 : schema.user_version - !has_added;
}

bool is_current(Connection& connection, const Schema& schema) {
  return version_of(connection, schema) == schema.user_version;
}

void make_current(Connection& connection, const Schema& schema) {
  if (!is_current(connection, schema)) {
    for (const char* table : schema.added_tables) connection.execute(table);
    for (const char* view : schema.added_views) connection.execute(view);
  } else if (number_of(connection, kUserVersion) == schema.user_version) {
    return;
  }
  connection.execute(fmt::format("PRAGMA user_version = {}", schema.user_version).c_str());
}

}  // namespace seqtile::cache

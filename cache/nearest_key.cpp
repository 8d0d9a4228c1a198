// cache/nearest_key.cpp -- see nearest_key.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/nearest_key.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace seqtile::cache {
namespace {

using Json = nlohmann::json;

void compare_texts(std::string_view name, const std::string& wanted, const std::string& stored,
                   std::vector<std::string>& differences) {
  if (wanted != stored) differences.push_back(fmt::format("{}: {} wanted, {} stored", name, wanted, stored));
}

std::string field_text(const Json& object, const std::string& name) {
  const auto field = object.find(name);
  if (field == object.end()) return "nothing";
  return field->is_string() ? field->get<std::string>() : field->dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Compares two JSON objects field by field, other texts as a whole.
void compare_json(const std::string& prefix, const std::string& wanted, const std::string& stored,
                  std::vector<std::string>& differences) {
  if (wanted == stored) return;
  const Json wanted_object = Json::parse(wanted, nullptr, false), stored_object = Json::parse(stored, nullptr, false);
  if (!wanted_object.is_object() || !stored_object.is_object())
    return compare_texts(prefix, wanted, stored, differences);
  std::set<std::string> names;
  for (const auto& [name, value] : wanted_object.items()) names.insert(name);
  for (const auto& [name, value] : stored_object.items()) names.insert(name);
  const size_t before = differences.size();
  for (const auto& name : names) {
    const auto a = wanted_object.find(name), b = stored_object.find(name);
    if (a != wanted_object.end() && b != stored_object.end() && *a == *b) continue;
    compare_texts(prefix + "." + name, field_text(wanted_object, name), field_text(stored_object, name), differences);
  }
  // The fields are equal but written differently; the text is hashed, so that the spelling alone makes the keys differ.
  if (differences.size() == before) compare_texts(prefix, wanted, stored, differences);
}

std::vector<std::string> key_differences(const TuningKey& wanted, const TuningKey& stored) {
  std::vector<std::string> differences;
  compare_texts("operation", wanted.operation, stored.operation, differences);
  compare_texts("source_hash", wanted.source_hash, stored.source_hash, differences);
  compare_json("workload", wanted.workload_json, stored.workload_json, differences);
  compare_texts("device_kind", wanted.device_kind, stored.device_kind, differences);
  compare_json("env", wanted.env_json, stored.env_json, differences);
  return differences;
}

}  // namespace

bool is_same_key(const TuningKey& a, const TuningKey& b) {
  return a.operation == b.operation && a.workload_json == b.workload_json && a.source_hash == b.source_hash &&
         a.env_json == b.env_json && a.device_kind == b.device_kind;
}

std::vector<std::string> nearest_key_difference(std::span<const TuningKey> stored, const TuningKey& wanted) {
  std::optional<std::vector<std::string>> nearest;
  bool nearest_is_same_operation = false;
  for (const TuningKey& key : stored) {
    auto differences = key_differences(wanted, key);
    const bool is_same_operation = wanted.operation == key.operation;
    // A key of the same operation is nearer than any key of another operation.
    const bool is_nearer = !nearest || is_same_operation > nearest_is_same_operation ||
                           (is_same_operation == nearest_is_same_operation && differences.size() < nearest->size());
    if (is_nearer) nearest = std::move(differences), nearest_is_same_operation = is_same_operation;
  }
  return nearest.value_or(std::vector<std::string>{});
}

std::vector<TuningKey> distinct_keys(TuningStore& store) {
  std::vector<TuningKey> keys;
  for (KeyedRecord& keyed : store.all_records())  // in the order of their keys
    if (keys.empty() || !is_same_key(keys.back(), keyed.key)) keys.push_back(std::move(keyed.key));
  return keys;
}

}  // namespace seqtile::cache

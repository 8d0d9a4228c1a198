// tests/cache/nearest_key_test.cpp -- each part of the key matters, and a miss names the different part.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "cache/nearest_key.h"
#include "tests/cache/support.h"

using namespace seqtile;
using namespace seqtile::cache;
using namespace seqtile::test;

namespace {

/// Changes one field of a JSON text: a number grows by one, a text by a letter.
std::string with_changed_field(const std::string& text, const std::string& field) {
  auto object = nlohmann::json::parse(text);
  auto& value = object.at(field);
  if (value.is_string()) value = value.get<std::string>() + "x";
  else value = value.get<int64_t>() + 1;
  return object.dump();
}

}  // namespace

TEST_CASE("nearest key: each field of the key changed in turn is a miss that names the field", "[cache]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  REQUIRE(store->publish(sample_key(), sample_record(), {}));
  REQUIRE(store->records(sample_key()).size() == 1);

  std::vector<std::pair<TuningKey, std::string>> changed;
  const auto add = [&](const std::string& name, auto change) {
    TuningKey key = sample_key();
    change(key);
    changed.emplace_back(key, name);
  };
  add("device_kind", [](TuningKey& key) { key.device_kind = "cuda"; });
  add("operation", [](TuningKey& key) { key.operation = "softmax"; });
  add("source_hash", [](TuningKey& key) { key.source_hash[0] = 'c'; });
  const auto env = nlohmann::json::parse(sample_key().env_json),
             workload = nlohmann::json::parse(sample_key().workload_json);
  for (const auto& [name, value] : env.items()) {
    add("env." + name, [&, field = name](TuningKey& key) { key.env_json = with_changed_field(key.env_json, field); });
  }
  for (const auto& [name, value] : workload.items()) {
    add("workload." + name,
        [&, field = name](TuningKey& key) { key.workload_json = with_changed_field(key.workload_json, field); });
  }
  REQUIRE(changed.size() == 3 + 4 + 4);
  for (const auto& [key, name] : changed) {
    INFO(name);
    CHECK(store->records(key).empty());
    const auto differences = nearest_key_difference(distinct_keys(*store), key);
    REQUIRE(differences.size() == 1);
    CHECK(differences[0].rfind(name + ": ", 0) == 0);
  }
  TuningKey key = sample_key();
  key.workload_json = with_changed_field(key.workload_json, "threads");
  CHECK(nearest_key_difference(distinct_keys(*store), key) ==
        std::vector<std::string>{"workload.threads: 3 wanted, 2 stored"});

  // The name is for people: the same part with another label is the same key.
  key = sample_key();
  key.device_name = "another label";
  CHECK(store->records(key).size() == 1);
}

TEST_CASE("nearest key: the fewest differing fields win, absent fields and empty stores are said", "[cache]") {
  const TempFolder folder;
  auto store = TuningStore::open(folder.file("tuning.db"), OpenMode::read_write);
  CHECK(nearest_key_difference(distinct_keys(*store), sample_key()).empty());
  TuningKey far = sample_key();
  far.env_json = "{}";
  far.source_hash = "old";
  TuningKey near = sample_key(8192);
  TuningKey other_operation = sample_key();
  other_operation.operation = "rms_norm";
  for (const auto& key : {far, near, other_operation}) REQUIRE(store->publish(key, sample_record(), {}));
  CHECK(nearest_key_difference(distinct_keys(*store), sample_key()) ==
        std::vector<std::string>{"workload.n: 4096 wanted, 8192 stored"});
  TuningKey wanted = far;
  wanted.env_json = R"({"llvm":"19.1.7"})";
  CHECK(nearest_key_difference(distinct_keys(*store), wanted) ==
        std::vector<std::string>{"env.llvm: 19.1.7 wanted, nothing stored"});
  // The wanted key is stored, so that nothing differs.
  CHECK(nearest_key_difference(distinct_keys(*store), near).empty());
}

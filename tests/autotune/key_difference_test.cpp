// tests/autotune/key_difference_test.cpp -- the text about a key without a record: the device first, no idle facts.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/key_difference.h"

#include "tests/cache/support.h"

using namespace seqtile;
using namespace seqtile::test;
using seqtile::autotune::key_difference;

TEST_CASE("key difference: the device comes first, and the host's threads are no matter beside a GPU", "[autotune]") {
  const TempFolder folder;
  const auto store = cache::TuningStore::open(folder.file("tuning.db"), cache::OpenMode::read_write);
  CHECK(key_difference(*store, sample_key()).empty());
  cache::TuningKey stored = sample_key();
  stored.workload_json = R"({"dtype":"f32","k":96,"threads":2})", stored.env_json = R"({"cores":8,"model":"A"})";
  REQUIRE(store->publish(stored, sample_record(), {}));

  cache::TuningKey wanted = stored;
  wanted.workload_json = R"({"dtype":"f32","k":112,"threads":1})", wanted.env_json = R"({"cores":8,"model":"B"})";
  CHECK(key_difference(*store, wanted) == std::vector<std::string>{"env.model: B wanted, A stored",
                                                                   "workload.k: 112 wanted, 96 stored",
                                                                   "workload.threads: 1 wanted, 2 stored"});
  wanted.device_kind = "cuda";
  CHECK(key_difference(*store, wanted) ==
        std::vector<std::string>{"device_kind: cuda wanted, " + stored.device_kind + " stored",
                                 "workload.k: 112 wanted, 96 stored"});

  wanted = stored;
  wanted.operation = "softmax", wanted.source_hash = "other", wanted.workload_json = R"({"columns":5})";
  CHECK(key_difference(*store, wanted) ==
        std::vector<std::string>{"operation: softmax wanted, " + stored.operation + " stored"});
}

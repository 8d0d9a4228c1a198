// tests/bench/environment_test.cpp -- benchmarks take the records that the engine takes.
// SPDX-License-Identifier: Apache-2.0
#include "bench/environment.h"

#include <catch2/catch.hpp>

#include "autotune/keys.h"
#include "seqtile/op.h"
#include "seqtile/stores.h"
#include "tests/support/temp_folder.h"

namespace seqtile::bench {

TEST_CASE("environment: a record that the engine refuses is none", "[bench]") {
  const test::TempFolder folder;
  const Environment environment({.threads = {1}, .cache = folder.file("bench.db")});
  const autotune::OpDef& op = environment.registry().find("rms_norm");
  const autotune::Workload workload = op.normalize({"rms_norm", DType::f32, 1, {{"n", 64}}});
  const auto device = open_device("cpu", 1);
  const auto key = autotune::make_key(op, workload, device->info(), autotune::TuneOptions{}.policy);
  const auto record = [&](int64_t length, std::string config) {
    const autotune::Bucket bucket = autotune::bucket(length);
    return cache::KeyedRecord{key,
                              {.bucket_version = autotune::kBucketVersion,
                               .lo = bucket.lo,
                               .hi = bucket.hi,
                               .origin = cache::Origin::tuned,
                               .config_json = std::move(config),
                               .median_us = 1,
                               .default_us = 1,
                               .samples = 5,
                               .measured_length = bucket.hi}};
  };
  const std::string usual = op.default_config(workload, 8, device->target()).json();
  const auto store = cache::TuningStore::open(folder.file("bench.db"), cache::OpenMode::read_write);
  REQUIRE(store->publish_all({record(8, usual), record(1000, R"({"block_m": 3})")}));
  REQUIRE(store->records(key).size() == 2);
  const auto records = environment.records(workload);
  REQUIRE(records.size() == 1);
  CHECK(records[0].config_json == usual);
}

}  // namespace seqtile::bench

// tests/autotune/engine/usable_test.cpp -- the records that may serve; engine and tuner agree about each.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/usable.h"

#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "autotune/keys.h"
#include "autotune/tuning/session.h"
#include "seqtile/stores.h"
#include "tests/support/fakes/fake_op.h"
#include "tests/support/fakes/fake_runner.h"

using namespace seqtile;
using namespace seqtile::test;
using autotune::Bucket, autotune::Config;
using cache::Origin;
using Catch::Matchers::Contains;

namespace {

cache::Record record_of(const Bucket& bucket, const std::string& config, Origin origin = Origin::tuned) {
  return {.bucket_version = autotune::kBucketVersion,
          .lo = bucket.lo,
          .hi = bucket.hi,
          .origin = origin,
          .config_json = config,
          .space_hash = std::string(64, '0'),
          .median_us = 2,
          .p20_us = 2,
          .p80_us = 2,
          .default_us = 4,
          .samples = 9,
          .measured_length = bucket.hi};
}

/// A fault of a record, and a part of its refusal.
struct Fault {
  std::string name;
  std::function<void(cache::Record&)> plant;
  std::string says;
};

std::vector<Fault> faults() {
  const auto config = [](std::string json) { return [=](cache::Record& r) { r.config_json = json; }; };
  return {
      {"outside the space", config(R"({"block":12})"), "parameter block cannot be 12"},
      {"no parameter", config("{}"), "does not fit the operation"},
      {"one too many", config(R"({"block":8,"more":1})"), "there is no parameter more"},
      {"another one", config(R"({"blocks":8})"), "does not fit the operation"},
      {"a text for a number", config(R"({"block":"8"})"), "does not fit the operation"},
      {"a real for an integer", config(R"({"block":8.5})"), "does not fit the operation"},
      {"a list", config(R"({"block":[8]})"), "no JSON object of numbers and texts"},
      {"a name twice", config(R"({"block":8,"block":8})"), "no JSON object of numbers and texts, each name once"},
      {"no object", config("[8]"), "no JSON object of numbers and texts"},
      {"no JSON", config(R"({"block":8)"), "no JSON object of numbers and texts"},
      {"no text", config(""), "no JSON object of numbers and texts"},
      {"a number that no integer holds", config(R"({"block":99999999999999999999})"), ""},
      {"more memory than there is", config(R"({"block":1099511627776})"), "parameter block cannot be"},
      {"another ladder", [](cache::Record& r) { r.bucket_version = 7; }, "buckets are those of version 7"},
      {"no bucket", [](cache::Record& r) { r.hi += 1; }, "there is no bucket"},
      {"a bucket below the ladder", [](cache::Record& r) { r.lo = 0; }, "there is no bucket 0.."},
  };
}

/// Runs a session as `prewarm` does, on a fake runner.
autotune::TuneReport tune(FakeWorld& world, FakeRunner& runner, int64_t lo, int64_t hi) {
  const auto store = cache::TuningStore::open(world.cache, cache::OpenMode::read_write);
  autotune::Workload workload = world.workload;
  workload.threads = world.threads;
  autotune::TuneOptions options;
  auto items = autotune::make_items(world.registry, {{"", workload, lo, hi}}, world.info, options.policy);
  const Target target = FakeDevice().target();
  autotune::load_records(items, target, *store);
  return autotune::TuningSession(items, target, *store, runner, options).run();
}

std::vector<cache::Record> records_of(FakeWorld& world) {
  return cache::TuningStore::open(world.cache, cache::OpenMode::read_only)->records(world.key());
}

void store(FakeWorld& world, const cache::Record& record) {
  REQUIRE(cache::TuningStore::open(world.cache, cache::OpenMode::read_write)->publish(world.key(), record, {}));
}

}  // namespace

TEST_CASE("usable: a good record may serve, and a neighbour's configuration too", "[autotune][usable]") {
  const autotune::OpDef op = scale_rows_op();
  autotune::Usability usable(op, scale_rows(), FakeDevice().target());
  const auto judgement = usable.judge(record_of({19, 20}, R"({ "block": 8 })"));
  CHECK(judgement.is_usable());
  CHECK(judgement.config == Config{{"block", int64_t{8}}});
}

TEST_CASE("usable: what is in the space of a far bucket alone does not serve", "[autotune][usable]") {
  autotune::OpDef op = scale_rows_op();
  const auto space_of = op.config_space;
  op.config_space = [&](const autotune::Workload& w, int64_t length, const Target& t) {
    autotune::ConfigSpace space;
    return length >= 1024 ? space.parameter("block", {int64_t{12}}) : space_of(w, length, t);
  };
  const bool is_far_first = GENERATE(false, true);  // earlier judgements change nothing
  autotune::Usability usable(op, scale_rows(), FakeDevice().target());
  const auto serves = [&](Bucket bucket) { return usable.judge(record_of(bucket, R"({"block":12})")).is_usable(); };
  if (is_far_first) CHECK(serves({961, 1024}));
  CHECK(serves({225, 240}));        // 17 buckets below the default's
  CHECK_FALSE(serves({113, 120}));  // 25 buckets below
  CHECK(serves({961, 1024}));
  CHECK_FALSE(serves({113, 120}));
}

TEST_CASE("usable: times that are none, and scratch memory that no machine has", "[autotune][usable]") {
  autotune::OpDef op = scale_rows_op();
  autotune::Usability usable(op, scale_rows(), FakeDevice().target());
  cache::Record record = record_of({19, 20}, R"({"block":8})");
  record.median_us = std::numeric_limits<double>::infinity();
  CHECK_THAT(usable.judge(record).refusal, Contains("it says inf us"));
  record.median_us = -1;
  CHECK_THAT(usable.judge(record).refusal, Contains("it says -1 us"));
  op.workspaces = [](const autotune::Workload&, const Config&) {
    return std::vector<autotune::Workspace>{{"scratch", DType::f32, autotune::SizeExpr{int64_t{1} << 50, {}}}};
  };
  autotune::Usability greedy(op, scale_rows(), FakeDevice().target());
  CHECK_THAT(greedy.judge(record_of({19, 20}, R"({"block":8})")).refusal, Contains("bytes of scratch memory"));
}

TEST_CASE("usable: a stored binary serves where it is the configuration's own", "[autotune][usable]") {
  FakeWorld world;
  world.record(20, 8);
  world.open(MissPolicy::strict)->prepare(world.workload);  // stores the binary
  autotune::Workload workload = world.workload;
  workload.threads = world.threads;
  const autotune::OpDef& op = world.registry.find("scale_rows");
  FakeDevice device;
  const auto artifacts = cache::ArtifactDb::open(world.artifacts, cache::default_key_path());
  const auto lack = [&](int64_t block) {
    autotune::Usability usable(op, workload, device.target());
    const auto judgement = usable.judge(record_of({19, 20}, Config{{"block", block}}.json()), device, *artifacts);
    CHECK(judgement.is_usable());
    return judgement.lack;
  };
  CHECK(lack(8) == "");
  CHECK(lack(16) == "no binary for its configuration");
  const auto key = [&](int64_t block) {
    return autotune::make_artifact_key(op, workload, {{"block", block}}, device.target());
  };
  KernelBinary binary = *artifacts->load(key(8));
  REQUIRE(artifacts->store(key(16), binary));
  CHECK_THAT(lack(16), Contains("is that of scale_rows_f32_8_"));
  binary.num_slots = 11;
  REQUIRE(artifacts->store(key(8), binary));
  CHECK_THAT(lack(8), Contains("takes 11 argument slots"));
  binary.target = "cpu:other";
  REQUIRE(artifacts->store(key(8), binary));
  CHECK_THAT(lack(8), Contains("for cpu:other"));

  // The engine compiles a binary that does not fit again, and serves.
  world.compilations = 0;
  const auto engine = world.open(MissPolicy::strict);
  CHECK(engine->prepare(world.workload).lookup(20));
  CHECK(world.compilations == 1);
  CHECK(lack(8) == "");
}

TEST_CASE("usable: what the engine refuses the tuner replaces, and nothing else", "[autotune][usable][engine]") {
  const Bucket good{17, 18}, wrong{19, 20};
  const Origin origin = GENERATE(Origin::tuned, Origin::merged, Origin::fallback, Origin::pinned);
  for (const Fault& fault : faults()) {
    DYNAMIC_SECTION(fault.name << ", " << cache::origin_name(origin)) {
      FakeWorld world;
      store(world, record_of(good, R"({"block":32})", Origin::pinned));
      cache::Record planted = record_of(wrong, R"({"block":8})", origin);
      fault.plant(planted);
      store(world, planted);
      {
        const auto engine = world.open(MissPolicy::strict);
        const Handle handle = engine->prepare(world.workload);
        CHECK(handle.lookup(18));
        CHECK_FALSE(handle.lookup(20));
        CHECK(engine->counters().bad_rows == (planted.bucket_version == autotune::kBucketVersion));
        if (planted.lo == wrong.lo) CHECK_THAT(handle.explain(20).reason, Contains(fault.says));
      }
      FakeRunner runner([](const Config&, int64_t) { return 50.0; });
      const autotune::TuneReport report = tune(world, runner, 17, 20);
      CHECK(report.covered);
      CHECK(report.complete);
      const auto records = records_of(world);
      const bool is_foreign = planted.bucket_version != autotune::kBucketVersion;  // records of other releases stay
      REQUIRE(records.size() == (is_foreign ? 3 : 2));  // the pinned record, and a new one in the place of the fault
      CHECK(records[0].origin == Origin::pinned);
      CHECK(records[0].config_json == R"({"block":32})");
      CHECK(records[1].origin == Origin::tuned);
      if (is_foreign) CHECK((records[2].bucket_version == 7 && records[2].origin == origin));
      const auto engine = world.open(MissPolicy::strict);
      const Handle handle = engine->prepare(world.workload);
      for (const int64_t length : {17, 18, 19, 20}) CHECK(handle.lookup(length));
      CHECK(engine->counters().bad_rows == 0);
    }
  }
}

TEST_CASE("usable: engine and tuner agree about random stores", "[autotune][usable][engine]") {
  const auto all = faults();
  const auto ladder = autotune::buckets(1, 64);
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    FakeWorld world;
    std::set<int64_t> served;  // buckets by lo
    for (const Bucket& bucket : ladder) {
      cache::Record record = record_of(bucket, R"({"block":16})");
      const size_t fault = random() % (2 * all.size());
      if (fault < all.size()) all[fault].plant(record);
      else served.insert(bucket.lo);
      store(world, record);
    }
    const auto engine = world.open(MissPolicy::strict);
    const Handle handle = engine->prepare(world.workload);
    const auto store = cache::TuningStore::open(world.cache, cache::OpenMode::read_write);
    autotune::Workload workload = world.workload;
    workload.threads = world.threads;
    auto items = autotune::make_items(world.registry, {{"", workload, 1, 64}}, world.info, "cold");
    autotune::load_records(items, FakeDevice().target(), *store);
    for (const auto& state : items[0].buckets) {
      INFO("bucket " << state.bucket.lo << ".." << state.bucket.hi);
      CHECK(handle.lookup(state.bucket.lo) == served.contains(state.bucket.lo));
      CHECK(state.record.has_value() == served.contains(state.bucket.lo));
    }
  }
}

TEST_CASE("usable: a refused record of a first layer hides no good one behind it", "[autotune][usable][engine]") {
  FakeWorld world;
  const std::string pinned = world.folder.file("pinned.db");
  world.record(20, 12, Origin::tuned, pinned);
  world.record(20, 8);
  EngineOptions options = world.options(MissPolicy::strict);
  options.pinned = pinned;
  const auto engine = autotune::open_engine(options, world.registry, world.parts());
  const Handle handle = engine->prepare(world.workload);
  CHECK(handle.lookup(20));
  CHECK(handle.explain(20).config.get_int("block") == 8);
}

TEST_CASE("usable: damaged rows of a key cost its records until the tuner writes it anew", "[autotune][usable]") {
  FakeWorld world;
  for (const int64_t length : {18, 20}) world.record(length, 8);
  const char* damage =
      GENERATE("UPDATE env SET manifest = replace(manifest, 'cold', 'hot')",
               "UPDATE workload SET workload = workload || ' '", "UPDATE env SET row_sum = zeroblob(16)");
  run_sql(world.cache, damage);
  CHECK_FALSE(world.open(MissPolicy::strict)->prepare(world.workload).lookup(20));
  std::vector<cache::BadRecord> bad;
  const auto store = cache::TuningStore::open(world.cache, cache::OpenMode::read_write);
  CHECK(store->records(world.key(), &bad).empty());
  REQUIRE(bad.size() == 2);
  CHECK_THAT(bad[0].reason, Contains("does not match its checksum"));
  REQUIRE(store->add_trials(world.key(), {}));
  CHECK(store->records(world.key()).size() == 2);
  CHECK(world.open(MissPolicy::strict)->prepare(world.workload).lookup(20));
}

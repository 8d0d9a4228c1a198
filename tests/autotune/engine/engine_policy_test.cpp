// tests/autotune/engine/engine_policy_test.cpp -- calls with and without a record, by miss policy.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "seqtile/device.h"
#include "seqtile/error.h"
#include "tests/support/fakes/fake_op.h"

using namespace seqtile;
using namespace seqtile::test;
using Catch::Matchers::Contains;

namespace {

/// Calls the handle at `length`. Returns the block of rows of its configuration.
int64_t call_block(FakeWorld& world, const Handle& handle, int64_t length) {
  ScaleCall call(length);
  const int64_t factor = 3;
  handle(call.tensors(), length, {&factor, 1});
  CHECK(call.is_right(factor));
  return world.device->last_block;
}

std::string call_error(const Handle& handle, int64_t length, ErrorCode code = ErrorCode::invalid_argument) {
  ScaleCall call(std::max<int64_t>(length, 1));
  const int64_t factor = 3;
  try {
    handle(call.tensors(), length, {&factor, 1});
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("engine: a recorded bucket is served by its configuration, under every policy", "[autotune][engine]") {
  FakeWorld world;
  world.record(20, 8);
  world.record(40, 64);
  for (const MissPolicy policy :
       {MissPolicy::strict, MissPolicy::fallback, MissPolicy::nearest, MissPolicy::background, MissPolicy::tune}) {
    const auto engine = world.open(policy);
    const Handle handle = engine->prepare(world.workload);
    for (const int64_t length : {19, 20}) CHECK(call_block(world, handle, length) == 8);
    for (const int64_t length : {37, 40}) CHECK(call_block(world, handle, length) == 64);
    const EngineCounters counters = engine->counters();
    CHECK(counters.hits == 4);
    CHECK(counters.launches == 4);
    CHECK(counters.misses_no_record + counters.misses_above_top + counters.compiles + counters.tunings == 0);
  }
}

TEST_CASE("engine: a strict miss is an error that says what to do", "[autotune][engine]") {
  FakeWorld world;
  world.record(20, 8);
  const auto engine = world.open(MissPolicy::strict);
  const Handle handle = engine->prepare(world.workload);
  CHECK_THAT(call_error(handle, 16, ErrorCode::no_record),
             Contains("scale_rows at length 16") && Contains("bucket 9..16 has no record") &&
                 Contains("longest recorded length is 20") && Contains("`seqtile tune scale_rows --set ") &&
                 Contains(" --length 16 --threads ") &&
                 Contains(" --cache " + world.cache + " --artifacts " + world.artifacts + "`"));
  CHECK_THAT(call_error(handle, 21, ErrorCode::no_record), Contains("bucket 21..22"));
  // An engine with a limit wants all lengths up to it, not the bucket of this call.
  CHECK_THAT(call_error(world.open(MissPolicy::strict, 100)->prepare(world.workload), 16, ErrorCode::no_record),
             Contains(" --lengths 1..100 --threads "));
  CHECK_FALSE(handle.lookup(16));
  CHECK(handle.lookup(20));
  const EngineCounters counters = engine->counters();
  CHECK(counters.misses_no_record == 2);
  CHECK(counters.misses_above_top == 1);
  CHECK(counters.launches == 0);
  CHECK(handle.explain(16).origin == "none");
}

TEST_CASE("engine: policy default serves a missing bucket by the default configuration", "[autotune][engine]") {
  FakeWorld world;
  world.record(20, 8);
  const auto engine = world.open(MissPolicy::fallback);
  const Handle handle = engine->prepare(world.workload);
  CHECK(engine->counters().compiles_at_load == 3);  // the record's configuration and the two defaults
  CHECK(call_block(world, handle, 16) == 4);
  CHECK(call_block(world, handle, 1'000) == 16);
  CHECK(call_block(world, handle, 20) == 8);
  CHECK(handle.explain(16).origin == "default");
  CHECK(engine->counters().compiles == 0);
}

TEST_CASE("engine: policy nearest serves a missing bucket by its nearest record, the longer one in a tie",
          "[autotune][engine]") {
  FakeWorld world;
  world.record(3, 4);    // bucket 2 of the ladder
  world.record(18, 8);   // bucket 5: 17..18
  world.record(22, 64);  // bucket 7: 21..22
  const auto engine = world.open(MissPolicy::nearest);
  const Handle handle = engine->prepare(world.workload);
  CHECK(call_block(world, handle, 1) == 4);
  CHECK(call_block(world, handle, 8) == 4);
  CHECK(call_block(world, handle, 16) == 8);
  CHECK(call_block(world, handle, 20) == 64);
  CHECK(call_block(world, handle, 100'000) == 64);
  const EngineCounters counters = engine->counters();
  CHECK(counters.misses_no_record == 4);
  CHECK(counters.misses_above_top == 1);
  CHECK(counters.compiles_at_load == 3);
  const Explanation explanation = handle.explain(20);
  CHECK(explanation.origin == "nearest tuned");
  CHECK(explanation.bucket == autotune::Bucket{19, 20});
  CHECK_THAT(explanation.reason, Contains("bucket 19..20 has no record") && Contains("bucket 21..22 tuned: 2.50 us"));
}

TEST_CASE("engine: without any record the default configuration serves, whatever the policy but strict",
          "[autotune][engine]") {
  FakeWorld world;
  const auto engine = world.open(MissPolicy::nearest);
  const Handle handle = engine->prepare(world.workload);
  CHECK(call_block(world, handle, 7) == 4);
  CHECK(call_block(world, handle, 700) == 16);
  CHECK(engine->counters().misses_no_record == 2);
  CHECK(handle.ranges().empty());
  CHECK_FALSE(std::filesystem::exists(world.cache));  // serving creates no tuning.db
}

TEST_CASE("engine: lengths below 1 and above max_length are refused, never clamped", "[autotune][engine]") {
  FakeWorld world;
  for (const int64_t length : {int64_t{1}, int64_t{100}, int64_t{5'000}}) world.record(length, 8);
  const auto engine = world.open(MissPolicy::nearest, 100);
  const Handle handle = engine->prepare(world.workload);
  CHECK_THAT(call_error(handle, 0), Contains("length is 0; it must be at least 1"));
  CHECK_THAT(call_error(handle, -1), Contains("length is -1"));
  CHECK(call_block(world, handle, 100) == 8);
  CHECK_THAT(call_error(handle, 101), Contains("length 101 is above the engine's max_length 100") && Contains("split"));
  CHECK_FALSE(handle.lookup(101));
  CHECK(engine->counters().misses_above_top == 2);
  CHECK_THROWS_AS(handle.lookup(0), Error);
  CHECK_THROWS_AS(handle.explain(101), Error);
}

TEST_CASE("engine: where a call may have no rows, a lookup, explanation and capacity still have one at least",
          "[autotune][engine]") {
  FakeWorld world;
  autotune::OpDef op = test::scale_rows_op();
  op.schema = [schema = op.schema](const autotune::Workload& workload) {
    autotune::Schema with_no_rows = schema(workload);
    with_no_rows.least_length = 0;
    return with_no_rows;
  };
  world.registry = autotune::Registry();
  world.registry.add(std::move(op));
  world.record(8, 8);
  const auto engine = world.open(MissPolicy::nearest, 100);
  const Handle handle = engine->prepare(world.workload);
  CHECK_THROWS_WITH(handle.lookup(0), Contains("length is 0; it must be at least 1"));
  CHECK_THROWS_WITH(handle.explain(0), Contains("length is 0; it must be at least 1"));
  CHECK_THAT(call_error(handle, -1), Contains("length is -1; it must be at least 0"));
  CHECK(engine->counters().misses_above_top == 0);
}

TEST_CASE("engine: what a call is refused for begins with the operation", "[autotune][engine]") {
  FakeWorld world;
  world.record(8, 8);
  const auto engine = world.open(MissPolicy::nearest);
  const Handle handle = engine->prepare(world.workload);
  test::ScaleCall call(8);
  auto tensors = call.tensors();
  tensors[0].dtype = DType::bf16;
  const int64_t length = 8;
  CHECK_THROWS_WITH(handle(tensors, length, {&length, 1}),
                    Catch::StartsWith(world.workload.operation + ": argument 0 "));
  CHECK_THROWS_WITH(handle({}, length, {&length, 1}),
                    Catch::StartsWith(world.workload.operation + ": 0 tensors given"));
}

TEST_CASE("engine: the ladder goes on without max_length", "[autotune][engine]") {
  FakeWorld world;
  world.record(1, 8);
  const auto engine = world.open(MissPolicy::nearest);
  const Handle handle = engine->prepare(world.workload);
  CHECK_FALSE(handle.lookup(autotune::kMaxLength));
  CHECK(handle.explain(autotune::kMaxLength).origin == "nearest tuned");
  CHECK_THROWS_WITH(handle.explain(autotune::kMaxLength + 1), Contains("max_length"));
}

TEST_CASE("engine: explain names bucket, origin, configuration and measurement", "[autotune][engine]") {
  FakeWorld world;
  world.record(40, 64, cache::Origin::merged);
  const auto engine = world.open(MissPolicy::strict);
  const Explanation explanation = engine->prepare(world.workload).explain(38);
  CHECK(explanation.bucket == autotune::Bucket{37, 40});
  CHECK(explanation.origin == "merged");
  CHECK(explanation.config == autotune::Config{{"block", int64_t{64}}});
  CHECK(explanation.median_us == 2.5);
  CHECK_THAT(explanation.reason, Contains("default 5.00 us") && Contains("9 samples") && Contains(world.cache));
}

TEST_CASE("engine: ranges are runs of adjacent buckets with one configuration", "[autotune][engine]") {
  FakeWorld world;
  for (const int64_t length : {1, 2, 3}) world.record(length, 4);
  for (const int64_t length : {9, 17}) world.record(length, 64);
  using Ranges = std::vector<std::pair<autotune::Bucket, autotune::Config>>;
  const autotune::Config small{{"block", int64_t{4}}}, large{{"block", int64_t{64}}};
  // The bucket 5..8 has no record: strict leaves it out, nearest gives it to the longer neighbour.
  CHECK(world.open(MissPolicy::strict)->prepare(world.workload).ranges() == Ranges{{{1, 4}, small}, {{9, 18}, large}});
  CHECK(world.open(MissPolicy::nearest)->prepare(world.workload).ranges() == Ranges{{{1, 4}, small}, {{5, 18}, large}});
}

TEST_CASE("engine: bad options, operations and empty handles are refused", "[autotune][engine]") {
  FakeWorld world;
  EngineOptions options = world.options(MissPolicy::nearest);
  options.threads = -1;
  CHECK_THROWS_WITH(autotune::open_engine(options, world.registry, world.parts()), Contains("threads is -1"));
  options.threads = 0;
  options.max_length = -7;
  CHECK_THROWS_WITH(autotune::open_engine(options, world.registry, world.parts()), Contains("max_length is -7"));
  options = {};
  options.policy = static_cast<MissPolicy>(9);
  CHECK_THROWS_WITH(autotune::open_engine(options, world.registry, world.parts()), Contains("policy is enumerator 9"));
  options = {};
  options.cache = options.artifacts = "one.db";
  CHECK_THROWS_WITH(autotune::open_engine(options, world.registry, world.parts()),
                    Contains("cache and artifacts are both one.db"));
  options = {};
  options.system_caches = {"one.db", ""};
  CHECK_THROWS_WITH(autotune::open_engine(options, world.registry, world.parts()),
                    Contains("system_caches[1] is empty; name a file"));
  struct Pool final : Executor {
    int workers = 2;
    int num_workers() const override { return workers; }
    void run(int64_t count, Task task, void* context) override { task(context, 0, count); }
  } pool;
  options = {};
  options.executor = &pool, options.threads = 4;
  CHECK_THROWS_WITH(autotune::open_engine(options, world.registry, world.parts()),
                    Contains("threads is 4, the executor has 2"));
  options.threads = 0;
  for (const int workers : {0, -1}) {
    pool.workers = workers;
    CHECK_THROWS_WITH(Engine::open(options, world.registry),
                      Contains(fmt::format("executor has {} workers; it must have at least 1", workers)));
  }
  pool.workers = 1025;
  CHECK_THROWS_WITH(Engine::open(options, world.registry), Contains("executor has 1025 workers; the limit is 1024"));
  const auto engine = world.open(MissPolicy::nearest);
  autotune::Workload unknown = world.workload;
  unknown.operation = "scale_cows";
  CHECK_THROWS_WITH(engine->prepare(unknown), Contains("scale_cows"));
  unknown = world.workload;
  unknown.fields.set("k", int64_t{4});
  CHECK_THROWS_WITH(engine->prepare(unknown), Contains("unknown field k"));
  CHECK_THROWS_WITH(Handle()({}, 1), Contains("handle is empty"));
  CHECK(parse_miss_policy("default") == MissPolicy::fallback);
  CHECK_THROWS_WITH(parse_miss_policy("sometimes"), Contains("sometimes") && Contains("strict, default, nearest"));
}

TEST_CASE("engine: the default of an octave is computed once", "[autotune][engine]") {
  FakeWorld world;
  std::vector<int64_t> asked;
  autotune::OpDef op = scale_rows_op();
  op.default_config = [&asked, inner = op.default_config](const autotune::Workload& workload, int64_t length,
                                                          const Target& target) {
    asked.push_back(length);
    return inner(workload, length, target);
  };
  world.registry = {};
  world.registry.add(std::move(op));
  const auto engine = world.open(MissPolicy::nearest);
  const Handle handle = engine->prepare(world.workload);
  std::vector<int64_t> octave_ends;
  for (int64_t end = 1; end <= autotune::kMaxLength; end *= 2) octave_ends.push_back(end);
  CHECK(asked == octave_ends);
  engine->refresh();
  CHECK(asked.size() == octave_ends.size());
  CHECK(call_block(world, handle, 17) == 16);
}

TEST_CASE("engine: a default configuration that cannot be compiled is an error of prepare", "[autotune][engine]") {
  FakeWorld world;
  world.compiler_fails = true;
  const auto engine = world.open(MissPolicy::nearest);
  try {
    engine->prepare(world.workload);
    FAIL("prepare returned");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    CHECK_THAT(error.what(), Contains("default configuration") && Contains("told to fail"));
  }
  world.compiler_fails = false;
  CHECK(call_block(world, engine->prepare(world.workload), 5) == 4);
}

TEST_CASE("engine: equal workloads share their plans, and handles outlive their engine", "[autotune][engine]") {
  FakeWorld world;
  world.record(20, 8);
  auto engine = world.open(MissPolicy::nearest);
  const Handle first = engine->prepare(world.workload);
  const Handle second = engine->prepare(world.workload);
  CHECK(world.compilations == 1);
  CHECK(first.workload().threads == 2);
  CHECK(&first.schema() == &second.schema());
  engine.reset();
  CHECK(call_block(world, first, 20) == 8);
}

TEST_CASE("engine: a fixed handle keeps to its choices, whatever stores and policies do", "[autotune][engine]") {
  FakeWorld world;
  world.record(20, 8);
  for (const MissPolicy policy : {MissPolicy::nearest, MissPolicy::background, MissPolicy::tune}) {
    const auto engine = world.open(policy);
    const Handle handle = engine->prepare(world.workload);
    Handle::Choices choices = handle.choices();
    CHECK(choices[autotune::bucket_index(16)].has_value() == (policy != MissPolicy::tune));
    choices[autotune::bucket_index(16)] = autotune::Config{{"block", int64_t{64}}};
    choices[autotune::bucket_index(40)].reset();
    const Handle fixed = handle.fixed(choices);
    world.record(20, policy == MissPolicy::nearest ? 16 : 8);
    engine->refresh();
    CHECK(call_block(world, fixed, 20) == 8);
    CHECK(fixed.explain(20).origin == "tuned");
    CHECK(call_block(world, fixed, 16) == 64);
    CHECK(fixed.explain(16).origin == "given");
    CHECK_THAT(call_error(fixed, 40, ErrorCode::no_record), Contains("scale_rows at length 40"));
    CHECK(engine->counters().tunings == 0);
    world.record(20, 8);
  }
  const auto engine = world.open(MissPolicy::nearest);
  const Handle handle = engine->prepare(world.workload);
  CHECK_THAT(call_error(handle.fixed({}), 20, ErrorCode::no_record),
             Contains("has a record, but these plans are fixed"));
  CHECK_THAT(handle.fixed(handle.choices()).explain(400).reason,
             Contains("has no record (the longest recorded length is"));
  CHECK_THROWS_WITH(Handle().fixed({}), Contains("the handle is empty"));
}

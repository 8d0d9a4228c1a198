// tests/autotune/engine/engine_stores_test.cpp -- layers of stores, keys, damaged decisions, binaries, refresh.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "seqtile/error.h"
#include "tests/support/fakes/fake_op.h"

using namespace seqtile;
using namespace seqtile::test;
using Catch::Matchers::Contains;

namespace {

int64_t block_at(const Handle& handle, int64_t length) { return handle.explain(length).config.get_int("block", -1); }

/// What `body` writes to standard error.
std::string logged(FakeWorld& world, const std::function<void()>& body) {
  const std::string path = world.folder.file("said");
  const int before = dup(STDERR_FILENO), file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  REQUIRE((before >= 0 && file >= 0));
  dup2(file, STDERR_FILENO);
  body();
  dup2(before, STDERR_FILENO);
  close(file), close(before);
  std::ifstream said(path);
  return {std::istreambuf_iterator<char>(said), {}};
}

std::string strict_error(FakeWorld& world) {
  const auto engine = world.open(MissPolicy::strict);
  const Handle handle = engine->prepare(world.workload);
  ScaleCall call(20, world.workload.fields.get_int("n"));
  const int64_t factor = 1;
  try {
    handle(call.tensors(), 20, {&factor, 1});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("engine: pinned file before user file before system files", "[autotune][engine]") {
  FakeWorld world;
  const std::string pinned = world.folder.file("pinned.db"), system1 = world.folder.file("system1.db"),
                    system2 = world.folder.file("system2.db");
  world.record(1, 4, cache::Origin::tuned, pinned);
  for (const int64_t length : {1, 2}) world.record(length, 8);
  for (const int64_t length : {1, 2, 3}) world.record(length, 16, cache::Origin::tuned, system1);
  for (const int64_t length : {1, 2, 3, 5}) world.record(length, 32, cache::Origin::tuned, system2);
  EngineOptions options = world.options(MissPolicy::strict);
  options.pinned = pinned;
  options.system_caches = {system1, system2};
  const auto engine = autotune::open_engine(options, world.registry, world.parts());
  const Handle handle = engine->prepare(world.workload);
  CHECK(block_at(handle, 1) == 4);
  CHECK(handle.explain(1).origin == "pinned");
  CHECK(block_at(handle, 2) == 8);
  CHECK(block_at(handle, 4) == 16);
  CHECK(block_at(handle, 8) == 32);
  CHECK_THAT(handle.explain(8).reason, Contains(system2));
}

TEST_CASE("engine: each field of the key, changed in turn, is a miss that names the field", "[autotune][engine]") {
  FakeWorld world;
  world.record(20, 8);
  REQUIRE(strict_error(world) == "");
  SECTION("device kind") {
    world.info.kind = "other";
    CHECK_THAT(strict_error(world), Contains("device_kind: other wanted, fake stored"));
  }
  SECTION("facts of the device") {
    const size_t fact = GENERATE(0u, 1u, 2u);
    const auto [name, value] = world.info.facts[fact];
    world.info.facts[fact].second = "changed";
    CHECK_THAT(strict_error(world), Contains("env." + name + ": changed wanted, " + value + " stored"));
  }
  SECTION("a fact that was not there") {
    world.info.facts.push_back({"zone", "1"});
    CHECK_THAT(strict_error(world), Contains("env.zone: 1 wanted, nothing stored"));
  }
  SECTION("threads") {
    world.threads = 4;
    CHECK_THAT(strict_error(world), Contains("workload.threads: 4 wanted, 2 stored"));
  }
  SECTION("a static field") {
    world.workload = scale_rows(8);
    CHECK_THAT(strict_error(world), Contains("workload.n: 8 wanted, 4 stored"));
  }
  SECTION("dtype") {
    world.workload.dtype = DType::bf16;
    CHECK_THAT(strict_error(world), Contains("workload.dtype: bf16 wanted, f32 stored"));
  }
  SECTION("version of the operation") {
    autotune::OpDef op = scale_rows_op();
    op.version = 2;
    world.registry = {};
    world.registry.add(std::move(op));
    CHECK_THAT(strict_error(world), Contains("source_hash: "));
  }
  SECTION("the name of the device is for people, not part of the key") {
    world.info.name = "Fake 1 in another slot";
    CHECK(strict_error(world) == "");
  }
}

TEST_CASE("engine: toolchain and measurement policy are fields of the key", "[autotune][engine]") {
  FakeWorld world;
  const auto publish_with = [&](const std::string& field, const std::string& value) {
    cache::TuningKey key = world.key();
    autotune::Fields env = autotune::Fields::parse(key.env_json);
    REQUIRE(env.contains(field));
    env.set(field, value);
    key.env_json = env.json();
    cache::Record record{.bucket_version = 1,
                         .lo = 19,
                         .hi = 20,
                         .origin = cache::Origin::tuned,
                         .config_json = R"({"block":8})",
                         .space_hash = std::string(64, '0'),
                         .measured_length = 20};
    const auto store = cache::TuningStore::open(world.cache, cache::OpenMode::read_write);
    REQUIRE(store->publish(key, record, {}));
  };
  SECTION("toolchain") {
    publish_with("toolchain", "seqtile 0.0.1");
    CHECK_THAT(strict_error(world), Contains("env.toolchain: ") && Contains("seqtile 0.0.1 stored"));
  }
  SECTION("policy") {
    publish_with("policy", "warm");
    CHECK_THAT(strict_error(world), Contains("env.policy: cold wanted, warm stored"));
  }
}

TEST_CASE("engine: a tuning.db moved to another user costs no tuning, only binaries", "[autotune][engine]") {
  FakeWorld world;
  for (const int64_t length : {1, 2, 3, 20, 100}) world.record(length, length < 10 ? 4 : 32);
  {
    const auto engine = world.open(MissPolicy::strict);
    engine->prepare(world.workload);
    CHECK(engine->counters().compiles_at_load == 2);
  }
  {
    const auto engine = world.open(MissPolicy::strict);
    engine->prepare(world.workload);
    CHECK(engine->counters().compiles_at_load == 0);  // all binaries come from artifacts.db
  }
  // Another user has fresh artifacts and a fresh key. Only the tuning file moves along, and it is read-only.
  FakeWorld other;
  std::filesystem::copy_file(world.cache, other.cache);
  std::filesystem::permissions(other.cache, std::filesystem::perms::owner_read);
  const auto engine = other.open(MissPolicy::strict);
  const Handle handle = engine->prepare(other.workload);
  CHECK(other.compilations == 2);
  CHECK(engine->counters().compiles_at_load == 2);
  for (const int64_t length : {1, 2, 4, 19, 97}) CHECK(handle.lookup(length));
  ScaleCall call(100);
  const int64_t factor = 5;
  handle(call.tensors(), 100, {&factor, 1});
  CHECK(call.is_right(factor));
  const EngineCounters counters = engine->counters();
  CHECK(counters.compiles + counters.tunings + counters.misses_no_record == 0);
}

TEST_CASE("engine: binaries of another user or target are not trusted but compiled again", "[autotune][engine]") {
  FakeWorld world;
  world.record(20, 8);
  world.open(MissPolicy::strict)->prepare(world.workload);
  REQUIRE(world.compilations == 1);
  FakeWorld other;  // has a key file of its own
  std::filesystem::copy_file(world.cache, other.cache);
  std::filesystem::copy_file(world.artifacts, other.artifacts);
  const auto engine = other.open(MissPolicy::strict);
  CHECK(engine->prepare(other.workload).lookup(20));
  CHECK(other.compilations == 1);
}

TEST_CASE("engine: a decision that does not fit is a miss with a counter, never a wrong kernel",
          "[autotune][engine][fault]") {
  FakeWorld world;
  world.record(1, 8);
  world.record(2, 12);  // the space lacks 12
  {
    const auto store = cache::TuningStore::open(world.cache, cache::OpenMode::read_write);
    cache::Record record{.bucket_version = 1,
                         .lo = 3,
                         .hi = 4,
                         .origin = cache::Origin::tuned,
                         .config_json = R"({"block":[8]})",
                         .space_hash = std::string(64, '0'),
                         .measured_length = 4};
    REQUIRE(store->publish(world.key(), record, {}));
    record.config_json = R"({"block":16})";
    record.lo = 5, record.hi = 7;  // the ladder has no such bucket
    REQUIRE(store->publish(world.key(), record, {}));
    record.lo = 9, record.hi = 16, record.bucket_version = 2;  // a ladder of another release, which is no bad row
    REQUIRE(store->publish(world.key(), record, {}));
  }
  const auto engine = world.open(MissPolicy::strict);
  const Handle handle = engine->prepare(world.workload);
  CHECK(handle.lookup(1));
  for (const int64_t length : {2, 3, 4, 5, 7, 9}) CHECK_FALSE(handle.lookup(length));
  CHECK(engine->counters().bad_rows == 3);
  CHECK(world.compilations == 1);
}

TEST_CASE("engine: a decision whose kernel does not compile is a miss with a counter", "[autotune][engine][fault]") {
  FakeWorld world;
  world.record(20, 8);
  world.compiler_fails = true;
  const auto engine = world.open(MissPolicy::strict);
  const Handle handle = engine->prepare(world.workload);
  CHECK_FALSE(handle.lookup(20));
  CHECK(engine->counters().bad_rows == 1);
}

TEST_CASE("engine: a kernel whose arguments are not the schema's is refused", "[autotune][engine]") {
  FakeWorld world;
  autotune::EngineParts parts = world.parts();
  const auto compile = parts.compile;
  parts.compile = [compile](const auto& op, const auto& workload, const auto& config, const auto& target) {
    KernelBinary binary = compile(op, workload, config, target);
    binary.num_slots = 11;
    return binary;
  };
  const auto engine = autotune::open_engine(world.options(MissPolicy::nearest), world.registry, std::move(parts));
  CHECK_THROWS_WITH(engine->prepare(world.workload),
                    Contains("takes 11 argument slots, the schema with 1 workspaces gives 14"));
}

TEST_CASE("engine: a cache that is no database, or a folder, is a miss", "[autotune][engine][fault]") {
  FakeWorld world;
  SECTION("garbage") { write_bytes(world.cache, std::string(5'000, 'x')); }
  SECTION("folder") { std::filesystem::create_directory(world.cache); }
  SECTION("absent") {}
  const auto engine = world.open(MissPolicy::nearest);
  const Handle handle = engine->prepare(world.workload);
  ScaleCall call(20);
  const int64_t factor = 5;
  handle(call.tensors(), 20, {&factor, 1});
  CHECK(call.is_right(factor));
  CHECK(engine->counters().bad_files == (std::filesystem::exists(world.cache) ? 1 : 0));
  CHECK_THAT(strict_error(world), Contains("bucket 19..20 has no record") && Contains(world.cache));
}

TEST_CASE("engine: prepare says why a named cache with records serves none", "[autotune][engine]") {
  FakeWorld world;
  world.record(20, 8);
  const auto prepare = [&](MissPolicy policy) { world.open(policy)->prepare(world.workload); };
  CHECK(logged(world, [&] { prepare(MissPolicy::nearest); }) == "");
  world.threads = 4;
  CHECK(logged(world, [&] { prepare(MissPolicy::tune); }) == "");  // its calls make the records
  CHECK(logged(world, [&] { prepare(MissPolicy::nearest); }) ==
        "seqtile: scale_rows: no record serves; the nearest key in " + world.cache +
            " differs: workload.threads: 4 wanted, 2 stored\n");
  write_bytes(world.cache, "");
  CHECK_THAT(logged(world, [&] { prepare(MissPolicy::nearest); }),
             Contains("tuning store " + world.cache + ": is empty") && !Contains("no record serves"));
}

TEST_CASE("engine: background says once that its file cannot be written, and does not tune", "[autotune][engine]") {
  FakeWorld world;
  world.cache = world.folder.path();
  const std::string said = logged(world, [&] {
    const auto engine = world.open(MissPolicy::background);
    const Handle handle = engine->prepare(world.workload);
    const int64_t factor = 3;
    for (const int64_t length : {20, 40}) {
      ScaleCall call(length);
      handle(call.tensors(), length, {&factor, 1});
    }
  });
  CHECK_THAT(said, Contains("policy background: " + world.cache + " cannot be written, nothing will be tuned"));
  CHECK_THAT(said, !Contains("is served untuned"));
  CHECK(world.tune_calls == 0);
}

TEST_CASE("engine: an artifact store that cannot be used is counted, and the log says what follows",
          "[autotune][engine][fault]") {
  FakeWorld world;
  world.record(20, 8);
  std::filesystem::create_directory(world.artifacts);
  const std::string said = logged(world, [&] {
    const auto engine = world.open(MissPolicy::strict);
    engine->prepare(world.workload);
    CHECK(engine->counters().compiles_at_load == 1);
    CHECK(engine->counters().bad_files == 1);
  });
  CHECK_THAT(said, Contains("artifact store " + world.artifacts +
                            ": binaries that it lacks are compiled at every start; "
                            "make a NEW file with `seqtile cache build --artifacts NEW`\n"));
}

TEST_CASE("engine: refresh takes over what another process has recorded", "[autotune][engine]") {
  FakeWorld world;
  world.record(20, 8);
  const auto engine = world.open(MissPolicy::strict);
  const Handle handle = engine->prepare(world.workload);
  world.record(40, 16);
  world.record(20, 64);
  CHECK_FALSE(handle.lookup(40));
  CHECK(block_at(handle, 20) == 8);
  engine->refresh();
  CHECK(handle.lookup(40));
  CHECK(block_at(handle, 40) == 16);
  CHECK(block_at(handle, 20) == 64);
  CHECK(engine->counters().compiles == 0);
  CHECK(engine->counters().compiles_at_load == 3);
}

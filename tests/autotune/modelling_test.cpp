// tests/autotune/modelling_test.cpp -- decisions for a GPU that is not here, and the GPU's later measurements of them.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <catch2/catch.hpp>
#include <map>

#include "autotune/keys.h"
#include "autotune/tuning/session.h"
#include "seqtile/device.h"
#include "tests/cache/support.h"
#include "tests/support/fakes/fake_runner.h"
#include "tests/support/fakes/toy_ops.h"

using namespace seqtile;
using namespace seqtile::autotune;
using test::FakeRunner;

namespace {

const std::string kForms = "a/16,b/16,c/16";

Config config(const std::string& form) { return {{"form", form}, {"block", int64_t{16}}}; }

/// The toy operation on a GPU. The cost model knows the instructions of a program of each form.
struct World {
  test::TempFolder folder;
  std::unique_ptr<cache::TuningStore> store =
      cache::TuningStore::open(folder.file("tuning.db"), cache::OpenMode::read_write);
  std::unique_ptr<Device> device = open_device("h200", 1);
  TuneOptions options;
  Registry registry;
  std::map<std::string, double> instructions = {{"a", 9e4}, {"b", 6e4}, {"c", 8e4}};
  std::string forms = kForms;
  bool has_samples = true, has_samples_of_length = false;  ///< one small call for all lengths, or one for each

  World() {
    OpDef op = test::toy_add_op();
    op.gpu_work = [this](const Workload&, const Config& c, int64_t length, const Target&) {
      GpuWork work;
      work.programs = static_cast<double>(length);
      work.warp_instructions = instructions.at(c.get_string("form"));
      return work;
    };
    op.gpu_samples = [this](const Workload& w, const Config&, int64_t length) {
      const GpuSample sample{w, has_samples_of_length ? length : 16, 1};
      return has_samples ? std::vector<GpuSample>{sample} : std::vector<GpuSample>{};
    };
    registry.add(std::move(op));
  }

  TuneReport run(FakeRunner& runner, Evidence evidence = Evidence::predicted, int64_t hi = 512) {
    auto items = make_items(registry, {{"toy", test::toy_add(forms), 1, hi}}, device->info(), options.policy);
    load_records(items, device->target(), *store, evidence);
    return TuningSession(items, device->target(), *store, runner, options, evidence).run();
  }
  cache::TuningKey key() { return make_key(registry.find("toy_add"), test::toy_add(forms), device->info(), "cold"); }
  std::vector<cache::Record> records() { return store->records(key()); }
  std::map<std::string, cache::TrialRow> trials(int64_t length) {
    std::map<std::string, cache::TrialRow> rows;
    for (auto& row : store->trials(key(), kBucketVersion, bucket(length).lo, bucket(length).hi))
      rows[Config::parse(row.config_json).get_string("form")] = row;
    return rows;
  }
};

double flat(const Config&, int64_t) { return 100; }

}  // namespace

TEST_CASE("modelling: every bucket is decided and has its binary, and nothing is launched", "[autotune][modelling]") {
  World world;
  FakeRunner runner(flat);
  const TuneReport report = world.run(runner);
  CHECK(report.covered);
  CHECK(report.complete);
  CHECK(report.modelled == report.buckets);
  CHECK(report.tunings + report.merges == 0);
  CHECK(report.failed_trials == 0);
  CHECK(runner.measured == 0);
  const auto records = world.records();
  REQUIRE(static_cast<int64_t>(records.size()) == report.buckets);
  for (const cache::Record& record : records) {
    CHECK(record.origin == cache::Origin::modelled);
    CHECK(Config::parse(record.config_json) == config("b"));
    CHECK(record.samples == 0);
    CHECK(record.median_us > 0);
    CHECK(record.default_us >= record.median_us);
    CHECK(record.measured_length == record.hi);
  }
  CHECK(runner.kept == std::set<std::string>{config("b").json()});
  CHECK(report.binaries == 1);
  const auto trials = world.trials(512);
  REQUIRE(trials.contains("a"));  // the default is a candidate
  CHECK(trials.at("a").outcome == "modelled");
  CHECK(trials.at("a").samples == 0);
  CHECK(trials.at("a").median_us > trials.at("b").median_us);

  FakeRunner second(flat);
  const TuneReport again = world.run(second);
  CHECK(again.trials == 0);
  CHECK(second.compiles == 0);
  CHECK(again.complete);
}

TEST_CASE("modelling: counters overrule the estimate, and each small call runs once", "[autotune][modelling]") {
  World world;
  FakeRunner runner(flat);
  runner.counter = [](const CountTask& task) {
    const bool is_b = task.config.get_string("form") == "b";
    return Counted{{}, {is_b ? 2e5 : 5e4, 0, 0}};
  };
  world.run(runner);
  CHECK(runner.counts == 3);
  for (const cache::Record& record : world.records()) CHECK(Config::parse(record.config_json) != config("b"));
  CHECK(world.trials(512).at("b").detail.find("counted on the PTX machine: 200000 warp instructions") !=
        std::string::npos);
}

TEST_CASE("modelling: a slow machine counts as much, and decides the same, as a fast one", "[autotune][modelling]") {
  const auto decided = [](double seconds) {
    World world;
    world.has_samples_of_length = true;
    FakeRunner runner(flat);
    runner.counter = [&](const CountTask& task) {  // the counts contradict the model: b is the slowest
      runner.clock_s += seconds;
      return Counted{{}, {task.config.get_string("form") == "b" ? 2e5 : 5e4, 0, 0}};
    };
    CHECK(world.run(runner).complete);
    std::vector<std::string> configs{std::to_string(runner.counts)};
    for (const cache::Record& record : world.records()) configs.push_back(record.config_json);
    return configs;
  };
  CHECK(decided(10) == decided(0.01));
}

TEST_CASE("modelling: no more is counted than an operation may, every bucket's best candidate first",
          "[autotune][modelling]") {
  World world;
  world.has_samples_of_length = true;
  world.instructions = {{"a", 9e4}, {"b", 6e4}, {"c", 8e4}, {"d", 9e4}};
  world.forms = "a/16,b/16,c/16,d/16";
  FakeRunner runner(flat);
  runner.counter = [](const CountTask& task) {
    return Counted{{}, {task.config.get_string("form") == "b" ? 6e4 : 8e4, 0, 0}};
  };
  constexpr int64_t kLongest = 1 << 22;
  CHECK(world.run(runner, Evidence::predicted, kLongest).complete);
  CHECK(runner.counts == 512);
  for (const Bucket& bucket : buckets(1, kLongest)) {
    const auto trials = world.trials(bucket.hi);
    REQUIRE(trials.contains("b"));
    CHECK(trials.at("b").detail.starts_with("counted on the PTX machine"));
    REQUIRE(trials.contains("c"));
    CHECK(trials.at("c").detail.starts_with("counted on the PTX machine"));
  }
  CHECK(world.trials(kLongest).at("d").detail.find("not among the 512 best small calls") != std::string::npos);
}

TEST_CASE("modelling: an operation whose counting is cut off decides nothing, and the next run does it",
          "[autotune][modelling]") {
  World world;
  world.has_samples_of_length = true;
  std::atomic<bool> interrupt{false};
  world.options.interrupt = &interrupt;
  FakeRunner stopped(flat);
  stopped.counter = [&](const CountTask&) {
    if (stopped.counts == 40) interrupt = true;
    return Counted{{}, {5e4, 0, 0}};
  };
  const TuneReport report = world.run(stopped);
  CHECK(report.interrupted);
  CHECK_FALSE(report.covered);
  CHECK(report.modelled == 0);
  CHECK(world.records().empty());
  CHECK(stopped.kept.empty());

  interrupt = false;
  world.options.budget_s = 5;
  FakeRunner slow(flat);
  slow.counter = [&](const CountTask&) {
    slow.clock_s += 1;
    return Counted{{}, {5e4, 0, 0}};
  };
  CHECK_THROWS_WITH(world.run(slow), Catch::Matchers::Contains("budget 5 s is too small for one operation"));
  CHECK(world.records().empty());

  world.options.budget_s = 0;
  FakeRunner whole(flat);
  CHECK(world.run(whole).complete);
  CHECK(whole.counts > 100);  // all small calls
}

TEST_CASE("modelling: what the machine does not know is ranked by the model and says so", "[autotune][modelling]") {
  World world;
  FakeRunner runner(flat);
  runner.counter = [](const CountTask& task) {  // counted programs take twice the estimate
    const std::string form = task.config.get_string("form");
    if (form == "b") return Counted{{"error", "line 12: no such form"}, {}};
    return Counted{{}, {form == "a" ? 18e4 : 16e4, 0, 0}};
  };
  world.run(runner);
  for (const cache::Record& record : world.records()) CHECK(Config::parse(record.config_json) == config("b"));
  CHECK(world.trials(512).at("b").detail == "the cost model alone; not counted: line 12: no such form");
}

TEST_CASE("modelling: neighbours share a configuration that the model cannot tell from the best",
          "[autotune][modelling]") {
  World world;
  world.has_samples = false;
  OpDef op = world.registry.find("toy_add");
  op.gpu_work = [](const Workload&, const Config& c, int64_t length, const Target&) {
    // b and c take turns at being 2 % faster; a is right only for the shortest length.
    const std::string form = c.get_string("form");
    const bool is_turn = (bucket_index(length) % 2 == 0) == (form == "b");
    GpuWork work;
    work.programs = 1e5;
    work.warp_instructions = form == "a" ? (length <= 8 ? 1e4 : 1e6) : is_turn ? 9.8e4 : 1e5;
    return work;
  };
  world.registry = Registry();
  world.registry.add(std::move(op));
  FakeRunner runner(flat);
  const TuneReport report = world.run(runner);
  CHECK(report.ranges == 2);
  CHECK(report.binaries == 2);
  for (const cache::Record& record : world.records())
    CHECK((Config::parse(record.config_json) == config("a")) == (record.hi <= 8));
}

TEST_CASE("modelling: a configuration that does not compile leaves the field", "[autotune][modelling]") {
  World world;
  FakeRunner runner(flat);
  runner.compile_failures[config("b").json()] = {"compile_error", "too many registers"};
  const TuneReport report = world.run(runner);
  CHECK(report.covered);
  CHECK(report.failed_trials == report.buckets);
  for (const cache::Record& record : world.records()) CHECK(Config::parse(record.config_json) == config("c"));
  CHECK(world.trials(512).at("b").outcome == "refused");
  FakeRunner gpu(flat, 0.005);
  world.run(gpu, Evidence::measured);
  CHECK(world.trials(512).at("b").outcome == "ok");  // the GPU's own compiler takes the kernel

  World hopeless;
  FakeRunner broken(flat);
  for (const char* form : {"a", "b", "c"}) broken.compile_failures[config(form).json()] = {"compile_error", "no"};
  CHECK_FALSE(hopeless.run(broken).covered);
  CHECK(hopeless.records().empty());
}

TEST_CASE("modelling: a binary that the artifact store does not take is counted as that, and the decisions stay",
          "[autotune][modelling]") {
  World world;
  FakeRunner runner(flat);
  runner.keeps = false;
  const TuneReport report = world.run(runner);
  CHECK(report.complete);
  CHECK(report.binaries == 0);
  CHECK(report.unstored_binaries == 1);
  CHECK(static_cast<int64_t>(world.records().size()) == report.buckets);
}

TEST_CASE("modelling: the GPU itself measures what was modelled, from the default on", "[autotune][modelling]") {
  World world;
  FakeRunner model(flat);
  world.run(model);  // chooses b everywhere

  FakeRunner gpu([](const Config& c, int64_t) { return c.get_string("form") == "c" ? 80.0 : 100.0; }, 0.005);
  const TuneReport report = world.run(gpu, Evidence::measured);
  CHECK(report.complete);
  CHECK(report.tunings + report.merges == report.buckets);
  for (const cache::Record& record : world.records()) {
    CHECK((record.origin == cache::Origin::tuned || record.origin == cache::Origin::merged));
    CHECK(Config::parse(record.config_json) == config("c"));
    CHECK(record.samples > 0);
    CHECK(record.default_us == Approx(100).epsilon(0.2));  // the time of the default, not of the modelled choice
  }
  CHECK(world.trials(512).at("b").outcome == "ok");  // the modelled choice raced

  FakeRunner third(flat);
  CHECK(world.run(third, Evidence::measured).trials == 0);
  FakeRunner profile(flat);
  CHECK(world.run(profile).modelled == 0);  // measured records stay
}

TEST_CASE("modelling: the default is kept where measuring shows the model wrong", "[autotune][modelling]") {
  World world;
  FakeRunner model(flat);
  world.run(model, Evidence::predicted, 64);
  FakeRunner gpu([](const Config& c, int64_t) { return c.get_string("form") == "a" ? 80.0 : 100.0; }, 0.005);
  world.run(gpu, Evidence::measured, 64);
  for (const cache::Record& record : world.records()) CHECK(Config::parse(record.config_json) == config("a"));
}

TEST_CASE("modelling: a budget that ends early leaves the rest modelled and serving", "[autotune][modelling]") {
  World world;
  FakeRunner model(flat);
  world.run(model);
  FakeRunner gpu(flat, 0.01);
  world.options.budget_s = 0.3;
  const TuneReport report = world.run(gpu, Evidence::measured);
  CHECK(report.covered);
  CHECK_FALSE(report.complete);
  int modelled = 0, measured = 0;
  for (const cache::Record& record : world.records())
    (record.origin == cache::Origin::modelled ? modelled : measured)++;
  CHECK(modelled > 0);
  CHECK(measured > 0);
}

TEST_CASE("modelling: memory that was short is no verdict for ever", "[autotune][modelling]") {
  World world;
  FakeRunner gpu(flat, 0.005);
  gpu.check_failures[config("b").json()] = {"oom", "the GPU has no more memory"};
  world.run(gpu, Evidence::measured, 1);
  CHECK(world.trials(1).at("b").outcome == "oom");
  // The next search of this bucket, here after a change of the space, tries b again.
  auto record = world.records().at(0);
  record.space_hash = std::string(64, '0');
  world.store->publish(world.key(), record, {});
  FakeRunner later(flat, 0.005);
  world.run(later, Evidence::measured, 1);
  CHECK(world.trials(1).at("b").outcome == "ok");
}

TEST_CASE("modelling: what the PTX machine ran is stored as modelled", "[autotune][modelling]") {
  World world;
  FakeRunner runner([](const Config& c, int64_t) { return c.get_string("form") == "b" ? 50.0 : 100.0; });
  const TuneReport report = world.run(runner, Evidence::simulated, 64);
  CHECK(report.complete);
  CHECK(runner.measured > 0);
  for (const cache::Record& record : world.records()) {
    CHECK(record.origin == cache::Origin::modelled);
    CHECK(Config::parse(record.config_json) == config("b"));
  }
  FakeRunner second(flat);
  CHECK(world.run(second, Evidence::simulated, 64).trials == 0);
}

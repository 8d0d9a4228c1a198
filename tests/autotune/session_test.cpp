// tests/autotune/session_test.cpp -- the tuner's decisions, on a fake clock with known true times.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/tuning/session.h"

#include <catch2/catch.hpp>
#include <set>

#include "seqtile/error.h"
#include "tests/support/fakes/tuner_world.h"

using namespace seqtile;
using namespace seqtile::autotune;
using test::config, test::FakeRunner, test::World;

namespace {

/// Form "a" costs 10 us a row and 20 us a call, "b" 5 and 500, "c" 8 and 100: b wins above 96 rows, a below 40.
double crossing(const Config& c, int64_t length) {
  const std::string form = c.get_string("form");
  const double rows = static_cast<double>(length);
  const double base = form == "a" ? 20 + 10 * rows : form == "b" ? 500 + 5 * rows : 100 + 8 * rows;
  return base * (c.get_int("block") == 16 ? 1.0 : 1.1);
}
const std::string kCrossing = "a/16,b,c,a/4";

}  // namespace

TEST_CASE("session: covers every bucket, tunes, and finds what is fastest at each length", "[autotune][tuner]") {
  World world;
  FakeRunner runner(crossing, 0.01);
  const TuneReport report = world.tune(runner, kCrossing, 4096);
  CHECK(report.buckets == 69);
  CHECK(report.covered);
  CHECK(report.complete);
  CHECK(report.tunings + report.merges == 69);
  CHECK(report.merges > 20);
  const auto records = world.records(kCrossing);
  REQUIRE(records.size() == 69);
  double worst = 0;
  for (const cache::Record& record : records) {
    const Config chosen = Config::parse(record.config_json);
    for (const int64_t length : {record.lo, record.hi}) {
      double best = 1e300;
      for (const Config& other : {config("a", 16), config("b", 16), config("c", 16)})
        best = std::min(best, crossing(other, length));
      worst = std::max(worst, crossing(chosen, length) / best);
    }
    CHECK(record.samples > 0);
    CHECK(record.default_us > 0);
    CHECK(runner.kept.contains(record.config_json));  // a decision needs its binary
  }
  CHECK(worst < 1.06);
  CHECK(report.ranges >= 3);
  CHECK(report.ranges <= 8);
  CHECK(static_cast<int64_t>(world.acknowledged.size()) == 3 * 69);  // built, measured, decided
}

TEST_CASE("session: a second run measures nothing", "[autotune][tuner]") {
  World world;
  FakeRunner runner(crossing, 0.01);
  world.tune(runner, kCrossing, 512);
  FakeRunner second(crossing, 0.01);
  const TuneReport report = world.tune(second, kCrossing, 512);
  CHECK(report.trials == 0);
  CHECK(report.tunings == 0);
  CHECK(report.merges == 0);
  CHECK(second.measured == 0);
  CHECK(second.compiles == 0);
  CHECK(report.complete);
}

TEST_CASE("session: without merging, tunings are the buckets touched", "[autotune][tuner]") {
  World world;
  world.options.merge = false;
  FakeRunner runner(crossing);
  const TuneReport report = world.tune(runner, kCrossing, 200, 100);
  CHECK(report.tunings == report.buckets);
  CHECK(report.merges == 0);
  CHECK(report.complete);
}

TEST_CASE("session: requests of one workload share their buckets", "[autotune][tuner]") {
  World world;
  FakeRunner runner(crossing);
  const auto workload = test::toy_add(kCrossing);
  const TuneReport report = world.tune(runner, {{"q", workload, 1, 64}, {"o", workload, 33, 128}});
  CHECK(report.operations == 1);
  CHECK(report.buckets == static_cast<int64_t>(buckets(1, 128).size()));
}

TEST_CASE("session: one candidate added to the space costs one trial per tuned bucket", "[autotune][tuner]") {
  World world;
  world.options.merge = false;
  FakeRunner runner(crossing);
  // The space belongs to the operation: its forms are a static field here, so that the test keeps the key and swaps the
  // space.
  std::string forms = "a/16,b/16";
  OpDef op = test::toy_add_op();
  const auto space_of = op.config_space;
  op.config_space = [&](const Workload& w, int64_t length, const Target& t) {
    Workload other = w;
    other.fields.set("forms", forms);
    return space_of(other, length, t);
  };
  op.predict_us = [](const Workload&, const Config& c, int64_t, const Target&) { return crossing(c, 64); };
  world.registry = Registry();
  world.registry.add(std::move(op));
  const auto request = std::vector<TuneRequest>{{"toy", test::toy_add("a/16"), 1, 256}};
  const TuneReport first = world.tune(runner, request);
  CHECK(first.trials == 2 * first.buckets);

  forms = "a/16,b/16,c/16";
  const TuneReport added = world.tune(runner, request);
  CHECK(added.buckets == first.buckets);
  CHECK(added.trials == added.buckets);
  CHECK(added.complete);
  for (const auto& record : world.records("a/16"))
    if (record.lo >= 48 && record.hi <= 80) CHECK(Config::parse(record.config_json) == config("c", 16));
  const TuneReport again = world.tune(runner, request);
  CHECK(again.trials == 0);
}

TEST_CASE("session: the default raced against its own copy is kept", "[autotune][tuner]") {
  // 100 searches between equals on a machine with 3 % noise and a drift of 9 % a round.
  int kept = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    World world;
    FakeRunner runner([](const Config&, int64_t) { return 100.0; }, 0.03, seed);
    world.tune(runner, "a/16,b/16", 64, 64);
    const auto records = world.records("a/16,b/16");
    REQUIRE(records.size() == 1);
    kept += Config::parse(records[0].config_json) == config("a", 16);
  }
  CHECK(kept >= 95);
}

TEST_CASE("session: a candidate that is 10 % faster replaces the default in spite of the noise", "[autotune][tuner]") {
  int replaced = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    World world;
    FakeRunner runner([](const Config& c, int64_t) { return c.get_string("form") == "b" ? 90.0 : 100.0; }, 0.03, seed);
    world.tune(runner, "a/16,b/16", 64, 64);
    replaced += Config::parse(world.records("a/16,b/16")[0].config_json) == config("b", 16);
  }
  CHECK(replaced >= 38);
}

TEST_CASE("session: of equal winners the smaller hash is taken, whatever the noise", "[autotune][tuner]") {
  std::set<std::string> chosen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    World world;
    FakeRunner runner([](const Config& c, int64_t) { return c.get_string("form") == "a" ? 100.0 : 80.0; }, 0.001, seed);
    world.tune(runner, "a/16,b/16,c/16", 64, 64);
    chosen.insert(world.records("a/16,b/16,c/16")[0].config_json);
  }
  const Config b = config("b", 16), c = config("c", 16);
  CHECK(chosen == std::set<std::string>{b.hash() < c.hash() ? b.json() : c.json()});
}

TEST_CASE("session: failed candidates are recorded with their reason and the search goes on", "[autotune][tuner]") {
  World world;
  FakeRunner runner([](const Config& c, int64_t) { return c.get_string("form") == "a" ? 100.0 : 50.0; });
  runner.compile_failures[config("b", 16).json()] = {"compile_error", "no lowering"};
  runner.check_failures[config("c", 16).json()] = {"crash", "signal 11"};
  runner.bucket_failures[config("d", 16).json()] = {"wrong_result", "y: row 3"};
  const std::string forms = "a/16,b/16,c/16,d/16,e/16";
  const TuneReport report = world.tune(runner, forms, 64, 64);
  CHECK(report.complete);
  CHECK(report.trials == 5);
  CHECK(report.failed_trials == 3);
  CHECK(Config::parse(world.records(forms)[0].config_json) == config("e", 16));
  std::map<std::string, std::string> outcomes;
  for (const auto& row : world.trials(forms, 64))
    outcomes[Config::parse(row.config_json).get_string("form")] = row.outcome;
  CHECK(outcomes == std::map<std::string, std::string>{
                        {"a", "ok"}, {"b", "compile_error"}, {"c", "crash"}, {"d", "wrong_result"}, {"e", "ok"}});
}

TEST_CASE("session: a default that fails is replaced by a search at once", "[autotune][tuner]") {
  World world;
  FakeRunner runner([](const Config& c, int64_t) { return c.get_string("form") == "b" ? 70.0 : 50.0; });
  runner.check_failures[config("a", 16).json()] = {"wrong_result", "y: row 0"};
  const TuneReport report = world.tune(runner, "a/16,b/16,c/16", 64, 64);
  CHECK(report.complete);
  CHECK(Config::parse(world.records("a/16,b/16,c/16")[0].config_json) == config("c", 16));
}

TEST_CASE("session: where everything fails there is no record and the run says so", "[autotune][tuner]") {
  World world;
  FakeRunner runner([](const Config&, int64_t) { return 50.0; });
  for (const char* form : {"a", "b"}) runner.check_failures[config(form, 16).json()] = {"hang", "no answer"};
  const TuneReport report = world.tune(runner, "a/16,b/16", 64, 33);
  CHECK_FALSE(report.covered);
  CHECK_FALSE(report.complete);
  CHECK(world.records("a/16,b/16").empty());
  CHECK(world.trials("a/16,b/16", 64).size() == 2);
}

TEST_CASE("session: coverage comes before tuning", "[autotune][tuner]") {
  World world;
  bool tuned = false, late_coverage = false;
  world.options.acknowledged = [&](const std::string& line) {
    tuned |= line.find(" tuned ") != std::string::npos;
    late_coverage |= tuned && line.find(" default ") != std::string::npos;
  };
  FakeRunner runner(crossing);
  world.tune(runner, {{"one", test::toy_add(kCrossing), 1, 300}, {"two", test::toy_add("a/16,c/16"), 1, 300}});
  CHECK(tuned);
  CHECK_FALSE(late_coverage);
}

TEST_CASE("session: every bucket is built before one is measured, with a binary an octave", "[autotune][tuner]") {
  World world;
  OpDef op = test::toy_add_op();
  const auto space_of = op.config_space;
  op.config_space = [&](const Workload& w, int64_t, const Target& t) { return space_of(w, 1, t); };
  op.default_config = [](const Workload&, int64_t length, const Target&) {  // the default differs in each bucket
    return config("f" + std::to_string(bucket_index(length) % 60), 16);
  };
  world.registry = Registry();
  world.registry.add(std::move(op));
  std::string forms;
  for (int i = 0; i < 60; ++i) forms += (i ? ",f" : "f") + std::to_string(i);
  FakeRunner runner([](const Config&, int64_t) { return 100.0; });
  std::vector<cache::Record> built;
  int64_t checks = 0;
  runner.on_measure = [&] {
    if (!built.empty()) return;
    built = world.records(forms);
    checks = runner.bucket_checks;
  };
  world.options.budget_s = 1;  // 1 s of the fake clock: measuring begins and does not end
  const TuneReport report =
      world.tune(runner, {{"one", test::toy_add(forms), 1, 512}, {"two", test::toy_add(forms), 1, 512}});
  const auto num_buckets = static_cast<int64_t>(buckets(1, 512).size());
  REQUIRE(static_cast<int64_t>(built.size()) == num_buckets);
  std::set<std::string> configs;
  for (const auto& record : built) {
    CHECK(grade_of(record) == Grade::built);
    CHECK(record.samples == 0);
    configs.insert(record.config_json);
  }
  CHECK(configs.size() == 10);  // {1} {2} {4} {8} {16} and the octaves up to 512
  CHECK(checks == 5 + 2 * 5);   // both ends of a run
  CHECK(report.covered);
  CHECK(report.built + report.measured + report.searched == num_buckets);

  world.options.budget_s = 0;
  const TuneReport rest = world.tune(runner, {{"one", test::toy_add(forms), 1, 512}});
  CHECK(rest.searched == num_buckets);
  for (const auto& record : world.records(forms)) CHECK(grade_of(record) == Grade::searched);
}

TEST_CASE("session: a built default that crashes when it is timed does not stay", "[autotune][tuner]") {
  World world;
  FakeRunner runner([](const Config&, int64_t) { return 100.0; });
  runner.measure_failures[config("a", 16).json()] = {"crash", "signal 11"};
  SECTION("another one takes its place") {
    CHECK(world.tune(runner, "a/16,b/16", 64, 64).covered);
    CHECK(Config::parse(world.records("a/16,b/16").at(0).config_json) == config("b", 16));
  }
  SECTION("there is no other one") {
    const TuneReport report = world.tune(runner, "a/16", 64, 64);
    CHECK_FALSE(report.covered);
    CHECK(report.failed_buckets == 1);
    CHECK(world.records("a/16").empty());
  }
}

TEST_CASE("session: a built default whose timing fails for a passing reason stays", "[autotune][tuner]") {
  const std::string outcome = GENERATE("hang", "compile_timeout", "oom", "slow");
  INFO(outcome);
  World world;
  FakeRunner busy([](const Config&, int64_t) { return 100.0; });
  busy.measure_failures[config("a", 16).json()] = {outcome, "busy"};
  const TuneReport report = world.tune(busy, "a/16,b/16", 64, 64);
  CHECK(report.covered);
  CHECK_FALSE(report.complete);
  REQUIRE(world.records("a/16,b/16").size() == 1);
  CHECK(grade_of(world.records("a/16,b/16")[0]) == Grade::built);
  REQUIRE(world.trials("a/16,b/16", 64).size() == 1);
  CHECK(world.trials("a/16,b/16", 64)[0].outcome == outcome);

  FakeRunner idle([](const Config&, int64_t) { return 100.0; });
  CHECK(world.tune(idle, "a/16,b/16", 64, 64).complete);
  CHECK(Config::parse(world.records("a/16,b/16")[0].config_json) == config("a", 16));
  CHECK(world.records("a/16,b/16")[0].median_us == Approx(100));
  for (const auto& trial : world.trials("a/16,b/16", 64)) CHECK(trial.outcome == "ok");
}

TEST_CASE("session: where an octave's default fails nothing is timed before everything is built", "[autotune][tuner]") {
  World world;
  OpDef op = test::toy_add_op();
  const auto space_of = op.config_space;
  op.config_space = [&](const Workload& w, int64_t, const Target& t) { return space_of(w, 1, t); };
  op.default_config = [](const Workload&, int64_t length, const Target&) {
    return config(length == 64 ? "bad" : length == 60 ? "worse" : length > 64 ? "late" : "own", 16);
  };
  world.registry = Registry();
  world.registry.add(std::move(op));
  const std::string forms = "bad/16,worse/16,own/16,late/16";
  FakeRunner runner([](const Config&, int64_t) { return 100.0; });
  for (const char* form : {"bad", "worse"}) runner.check_failures[config(form, 16).json()] = {"crash", "signal 11"};
  std::vector<cache::Record> built;
  runner.on_measure = [&] {
    if (built.empty()) built = world.records(forms);
  };
  const TuneReport report = world.tune(runner, forms, 128, 33);
  CHECK(report.complete);
  const auto ladder = buckets(33, 128);
  std::set<int64_t> served;
  for (const auto& record : built) {
    served.insert(record.hi);
    CHECK(record.samples == 0);
    CHECK(Config::parse(record.config_json) == config(record.hi > 64 ? "late" : "own", 16));
  }
  for (const Bucket& bucket : ladder) CHECK(served.contains(bucket.hi) == (bucket.hi != 60 && bucket.hi != 64));
  CHECK(world.records(forms).size() == ladder.size());
}

TEST_CASE("session: a budget that ends early leaves coverage and the best so far", "[autotune][tuner]") {
  World world;
  FakeRunner runner(crossing);
  world.options.budget_s = 1.5;
  const TuneReport report = world.tune(runner, kCrossing, 2048);
  CHECK(report.covered);
  CHECK_FALSE(report.complete);
  CHECK(report.seconds < 3);  // at most one search is under way when the time is up
  CHECK(world.records(kCrossing).size() == 61);

  world.options.budget_s = 0;
  FakeRunner second(crossing);
  const TuneReport rest = world.tune(second, kCrossing, 2048);
  CHECK(rest.complete);
}

TEST_CASE("session: a budget too small for one measurement is refused with a number", "[autotune][tuner]") {
  World world;
  FakeRunner runner(crossing);
  world.options.budget_s = 1e-9;
  runner.clock_s = 5;
  try {
    world.items.clear();
    auto items = make_items(world.registry, {{"toy", test::toy_add(kCrossing), 1, 64}}, world.device, "cold");
    TuningSession session(items, world.target, *world.store, runner, world.options);
    runner.clock_s += 0.3;
    session.run();
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK(std::string(error.what()).find("too small for one measurement") != std::string::npos);
  }
}

TEST_CASE("session: an interrupt keeps what was measured and the next run goes on from it", "[autotune][tuner]") {
  World world;
  std::atomic<bool> interrupt{false};
  world.options.interrupt = &interrupt;
  FakeRunner runner(crossing);
  int measurements = 0;
  runner.on_measure = [&] { interrupt = ++measurements >= 40; };
  const TuneReport report = world.tune(runner, kCrossing, 1024);
  CHECK(report.interrupted);
  CHECK_FALSE(report.complete);
  const size_t kept = world.records(kCrossing).size();
  CHECK(kept > 0);

  interrupt = false;
  FakeRunner second(crossing);
  const TuneReport rest = world.tune(second, kCrossing, 1024);
  CHECK(rest.complete);
  CHECK(rest.trials > 0);
  // Each candidate of a bucket is counted once.
  int64_t rows = 0;
  for (const Bucket& b : buckets(1, 1024)) rows += static_cast<int64_t>(world.trials(kCrossing, b.lo).size());
  CHECK(report.trials + rest.trials == rows);
}

TEST_CASE("session: a search cut short is finished from its stored trials", "[autotune][tuner]") {
  World world;
  std::atomic<bool> interrupt{false};
  world.options.interrupt = &interrupt;
  world.options.strategy = "exhaustive";
  std::string forms;
  for (int i = 0; i < 20; ++i) forms += (i ? ",f" : "f") + std::to_string(i);
  const auto model = [](const Config& c, int64_t) {
    return c.get_string("form") == "f3" && c.get_int("block") == 16 ? 50.0 : 100.0;
  };
  FakeRunner runner(model);
  int measurements = 0;
  runner.on_measure = [&] { interrupt = ++measurements >= 3; };  // the coverage, batch one, and batch two of three
  const TuneReport cut = world.tune(runner, forms, 64, 64);
  CHECK(cut.interrupted);
  CHECK(cut.tunings == 0);
  CHECK(cut.trials > 16);
  interrupt = false;
  FakeRunner second(model);
  const TuneReport rest = world.tune(second, forms, 64, 64);
  CHECK(cut.trials + rest.trials == 40);
  CHECK(rest.complete);
  CHECK(Config::parse(world.records(forms)[0].config_json) == config("f3", 16));
}

TEST_CASE("session: a search that only has to be decided knows the default's time", "[autotune][tuner]") {
  World world;
  const auto model = [](const Config& c, int64_t) { return c == config("b", 16) ? 50.0 : 100.0; };
  FakeRunner runner(model), second(model);
  REQUIRE(world.tune(runner, "a,b", 64, 64).complete);
  // As if the run had been killed behind its last batch: trials are there, the record is still the default's.
  const Item& item = world.items[0];
  const Config standard = item.op->default_config(item.workload, 64, world.target);
  REQUIRE(
      world.store->publish(item.key, make_record(bucket(64), standard, "", cache::Origin::fallback, {100}, {100}), {}));
  CHECK(world.tune(second, "a,b", 64, 64).complete);
  const cache::Record record = world.records("a,b")[0];
  CHECK(record.origin == cache::Origin::tuned);
  CHECK(record.median_us == 50);
  CHECK(record.default_us == 100);
}

TEST_CASE("session: every strategy completes", "[autotune][tuner]") {
  for (const char* strategy : {"exhaustive", "topk", "halving", "evolutionary"}) {
    World world;
    world.options.strategy = strategy;
    FakeRunner runner(crossing, 0.005);
    CHECK(world.tune(runner, kCrossing, 600).complete);
    for (const auto& record : world.records(kCrossing))
      if (record.lo > 200) CHECK(Config::parse(record.config_json).get_string("form") == "b");
  }
}

TEST_CASE("session: a pinned record is left alone", "[autotune][tuner]") {
  World world;
  FakeRunner runner(crossing);
  auto items = make_items(world.registry, {{"toy", test::toy_add(kCrossing), 1, 64}}, world.device, "cold");
  auto record = make_record(bucket(64), config("c", 4), "", cache::Origin::pinned, {1}, {1});
  REQUIRE(world.store->publish(items[0].key, record, {}));
  CHECK(world.tune(runner, kCrossing, 64).complete);
  CHECK(Config::parse(world.records(kCrossing).back().config_json) == config("c", 4));
  CHECK(world.records(kCrossing).back().origin == cache::Origin::pinned);
}

TEST_CASE("session: a store that refuses to write ends the run with its reason", "[autotune][tuner]") {
  World world;
  world.store = cache::TuningStore::open(world.folder.path() + "/no/such/\x01/file", cache::OpenMode::read_only);
  FakeRunner runner(crossing);
  try {
    world.tune(runner, kCrossing, 64);
    FAIL("went on");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::io);
  }
}

TEST_CASE("session: progress counts up to its total", "[autotune][tuner]") {
  World world;
  FakeRunner runner(crossing);
  int64_t last = 0, total = 0;
  bool backwards = false;
  world.options.progress = [&](const TuneProgress& p) {
    backwards |= p.done < last;
    last = p.done;
    total = p.total;
  };
  world.tune(runner, kCrossing, 512);
  CHECK_FALSE(backwards);
  CHECK(total == 2 * static_cast<int64_t>(buckets(1, 512).size()));
  CHECK(last == total);
}

TEST_CASE("session: adjacent buckets of one configuration are one range", "[autotune][tuner]") {
  World world;
  FakeRunner runner([](const Config&, int64_t) { return 10.0; });
  const TuneReport report = world.tune(runner, "a/16", 300);
  CHECK(report.ranges == 1);
}

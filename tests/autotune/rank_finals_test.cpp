// tests/autotune/rank_finals_test.cpp -- decisions of all ranks together, on a fake clock with known true times.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <set>

#include <catch2/catch.hpp>

#include "autotune/keys.h"
#include "tests/support/fakes/tuner_world.h"

using namespace seqtile;
using namespace seqtile::autotune;
using test::config, test::FakeRunner, test::World;

namespace {

/// The toy operation as two ranks would run it.
struct RankWorld : World {
  RankWorld() {
    OpDef op = test::toy_add_op();
    op.on_rank = [](const Workload&, int, int64_t length) { return RankCall{2, "threads", {}, {length}}; };
    registry = Registry();
    registry.add(std::move(op));
  }
  cache::TrialRow trial_of(const std::string& forms, int64_t length, const std::string& form) {
    for (auto& row : trials(forms, length))
      if (Config::parse(row.config_json).get_string("form") == form) return row;
    FAIL("no trial of " << form);
    return {};
  }
  std::string chosen_at(const std::string& forms, int64_t length) {
    for (const auto& record : records(forms))
      if (record.lo <= length && length <= record.hi) return Config::parse(record.config_json).get_string("form");
    return "none";
  }
};

const std::string kForms = "a/16,b/16,c/16";

/// b is the fastest for a process without peers,
double alone(const Config& c, int64_t) {
  const std::string form = c.get_string("form");
  return form == "a" ? 100 : form == "b" ? 70 : 80;
}
/// and the slowest if the ranks wait for each other.
double together(const Config& c, int64_t) {
  const std::string form = c.get_string("form");
  return form == "a" ? 110 : form == "b" ? 130 : 90;
}

}  // namespace

TEST_CASE("rank finals: what is the fastest alone and not together is not chosen", "[autotune][tuner]") {
  RankWorld world;
  FakeRunner runner(alone, 0.01);
  runner.on_ranks = together;
  const TuneReport report = world.tune(runner, kForms, 64, 64);
  CHECK(report.complete);
  CHECK(report.rank_races == 1);
  const auto records = world.records(kForms);
  REQUIRE(records.size() == 1);
  CHECK(world.chosen_at(kForms, 64) == "c");
  CHECK(records[0].origin == cache::Origin::tuned);
  // Both times come from races of all ranks.
  CHECK(records[0].default_us / records[0].median_us == Approx(110.0 / 90).epsilon(0.05));
  const cache::TrialRow chosen = world.trial_of(kForms, 64, "c"), other = world.trial_of(kForms, 64, "b");
  CHECK((chosen.ranks == 2 && chosen.chosen && other.ranks == 2 && !other.chosen));
  CHECK((chosen.ranks_p20_us <= chosen.ranks_us && chosen.ranks_us <= chosen.ranks_p80_us));
  CHECK(other.ranks_us / chosen.ranks_us == Approx(130.0 / 90).epsilon(0.05));  // the clock drifts from round to round
  // Times in one process stay comparable with the times of trials that no rank has run.
  for (const auto& row : world.trials(kForms, 64))
    CHECK(row.median_us == Approx(alone(Config::parse(row.config_json), 64)).epsilon(0.2));
  CHECK(world.acknowledged.back().ends_with(", by all 2 ranks"));
  CHECK(runner.kept.contains(records[0].config_json));
}

TEST_CASE("rank finals: a second run measures nothing", "[autotune][tuner]") {
  RankWorld world;
  FakeRunner runner(alone, 0.01), second(alone, 0.01);
  runner.on_ranks = together;
  world.tune(runner, kForms, 300);
  const TuneReport report = world.tune(second, kForms, 300);
  CHECK(report.complete);
  CHECK(second.measured == 0);
  CHECK(report.rank_races == 0);
}

TEST_CASE("rank finals: inside the noise the winner of the first stage stays", "[autotune][tuner]") {
  int kept = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RankWorld world;
    FakeRunner runner(alone, 0.03, seed);
    runner.on_ranks = [](const Config&, int64_t) { return 100.0; };
    world.tune(runner, kForms, 64, 64);
    kept += world.chosen_at(kForms, 64) == "b";
  }
  CHECK(kept >= 34);  // the default wins if it seems 2 % faster
}

TEST_CASE("rank finals: what ranks cannot run together is a failed trial", "[autotune][tuner]") {
  RankWorld world;
  FakeRunner runner(alone, 0.01), second(alone, 0.01);
  runner.on_ranks = together;
  SECTION("a challenger") {
    runner.rank_failures[config("c", 16).json()] = {"hang", "no answer within 20 s"};
    CHECK(world.tune(runner, kForms, 64, 64).complete);
    CHECK(world.chosen_at(kForms, 64) == "a");  // the default is faster on all ranks than the fastest in one process
    CHECK(world.trial_of(kForms, 64, "c").ranks == 2);
    CHECK(world.trial_of(kForms, 64, "c").detail == "no answer within 20 s");
  }
  SECTION("what the first stage has chosen") {
    runner.rank_failures[config("b", 16).json()] = {"crash", "rank 1 ended by signal 11"};
    CHECK(world.tune(runner, kForms, 64, 64).complete);
    CHECK(world.chosen_at(kForms, 64) == "c");
    CHECK(world.trial_of(kForms, 64, "b").ranks == 2);
    CHECK(world.trial_of(kForms, 64, "b").detail == "rank 1 ended by signal 11");
  }
  SECTION("all of them: the record stays, and they are not tried again") {
    for (const char* form : {"a", "b", "c"}) runner.rank_failures[config(form, 16).json()] = {"hang", "no answer"};
    CHECK(world.tune(runner, kForms, 64, 64).complete);
    CHECK(world.chosen_at(kForms, 64) == "b");
    CHECK(world.tune(second, kForms, 64, 64).complete);
    CHECK(second.rank_races == 0);
  }
  SECTION("what is wrong in this bucket") {
    runner.bucket_failures[config("c", 16).json()] = {"wrong_result", "y: row 3"};
    CHECK(world.tune(runner, kForms, 64, 64).complete);
    CHECK(world.chosen_at(kForms, 64) == "a");
  }
}

TEST_CASE("rank finals: without memory for all ranks the first stage stands and the next run tries again",
          "[autotune][tuner]") {
  RankWorld world;
  FakeRunner runner(alone, 0.01), second(alone, 0.01);
  runner.rank_failures[config("b", 16).json()] = {"oom", "no 80 bytes of shared memory"};
  CHECK_FALSE(world.tune(runner, kForms, 64, 64).complete);
  CHECK(world.chosen_at(kForms, 64) == "b");
  second.on_ranks = together;
  CHECK(world.tune(second, kForms, 64, 64).complete);
  CHECK(world.chosen_at(kForms, 64) == "c");
}

TEST_CASE("rank finals: where both ends of a range keep its configuration nothing between is timed",
          "[autotune][tuner]") {
  RankWorld world;
  FakeRunner runner(alone);
  runner.on_ranks = [](const Config& c, int64_t) { return c.get_string("form") == "b" ? 100.0 : 120.0; };
  const TuneReport report = world.tune(runner, kForms, 2048, 64);
  CHECK(report.complete);
  CHECK(report.ranges == 1);
  CHECK(report.rank_races == 2);
  const cache::TrialRow between = world.trial_of(kForms, 500, "b");
  CHECK((between.ranks == 2 && between.chosen && between.ranks_us == 0));
  CHECK(between.detail == "chosen at 61..64 and 1921..2048, the ends of its range");
}

TEST_CASE("rank finals: a range that ranks see otherwise at one end is halved", "[autotune][tuner]") {
  RankWorld world;
  FakeRunner runner(alone);
  runner.on_ranks = [](const Config& c, int64_t length) {
    const std::string form = c.get_string("form");
    return form == (length > 700 ? "c" : "b") ? 100.0 : 150.0;
  };
  const TuneReport report = world.tune(runner, kForms, 2048, 64);
  CHECK(report.complete);
  CHECK(report.rank_races < report.buckets);
  for (const auto& record : world.records(kForms))
    CHECK(world.chosen_at(kForms, record.hi) == (record.hi > 700 ? "c" : "b"));
}

TEST_CASE("rank finals: the time of all ranks is never that of one process", "[autotune][tuner]") {
  RankWorld world;
  FakeRunner first(alone), second(alone), third(alone);
  first.on_ranks = second.on_ranks = together;
  REQUIRE(world.tune(first, kForms, 2048, 64).complete);
  test::run_sql(world.folder.file("tuning.db"), "DELETE FROM trial");
  REQUIRE(world.tune(second, kForms, 2048, 64).complete);
  CHECK(second.rank_races == 2);  // of the ends of the range that the first run has left
  for (const Bucket& each : buckets(64, 2048)) {
    CHECK_FALSE(world.trials(kForms, each.lo).empty());
    for (const auto& row : world.trials(kForms, each.lo)) {
      INFO(row.lo << ": " << row.config_json);
      CHECK((row.ranks == 2 && row.median_us == 0 && row.samples == 0));
    }
  }
  CHECK(world.tune(third, kForms, 2048, 64).complete);
  CHECK(third.measured == 0);
}

TEST_CASE("rank finals: Ctrl-C keeps what is decided and the next run goes on", "[autotune][tuner]") {
  RankWorld world;
  std::atomic<bool> interrupt{false};
  world.options.interrupt = &interrupt;
  FakeRunner runner(alone), second(alone);
  runner.on_ranks = second.on_ranks = together;
  runner.on_measure = [&] { interrupt = runner.rank_races >= 2; };
  const TuneReport cut = world.tune(runner, kForms, 512, 64);
  CHECK(cut.interrupted);
  CHECK(cut.covered);
  CHECK_FALSE(cut.complete);
  interrupt = false;
  const TuneReport rest = world.tune(second, kForms, 512, 64);
  CHECK(rest.complete);
  CHECK(cut.rank_races + rest.rank_races == cut.buckets);  // each end changes, so that each bucket is timed once
  for (const auto& record : world.records(kForms)) CHECK(world.chosen_at(kForms, record.hi) == "c");
}

TEST_CASE("rank finals: only where there are ranks of this machine", "[autotune][tuner]") {
  const OpDef op = test::toy_ranks_op();
  const DeviceInfo cpu{"cpu", "", {}}, sim{"sim", "", {}};
  CHECK(ranks_to_race(op, test::toy_ranks("a/16", "threads", 3), cpu) == 3);
  CHECK(ranks_to_race(op, test::toy_ranks("a/16", "processes", 2), cpu) == 2);
  CHECK(ranks_to_race(op, test::toy_ranks("a/16", "threads", 1), cpu) == 0);
  CHECK(ranks_to_race(op, test::toy_ranks("a/16", "sim:sm_80", 2), sim) == 0);
  CHECK(ranks_to_race(op, test::toy_ranks("a/16", "sim:sm_80", 2), cpu) == 0);
  CHECK(ranks_to_race(test::toy_add_op(), test::toy_add("a/16"), cpu) == 0);
}

TEST_CASE("rank finals: ranks that share cores have keys of their own", "[autotune][tuner]") {
  const OpDef op = test::toy_ranks_op();
  const DeviceInfo device{"cpu", "", {{"cores", "2"}}}, larger{"cpu", "", {{"cores", "8"}}};
  const auto key = [&](const Workload& workload, const DeviceInfo& on) {
    const cache::TuningKey made = make_key(op, workload, on, "cold");
    return made.env_json + made.workload_json;
  };
  const Workload two = test::toy_ranks("a/16", "threads", 2);
  Workload wide = two;
  wide.threads = 2;
  const std::set<std::string> keys{key(two, device), key(two, larger), key(wide, device),
                                   key(test::toy_ranks("a/16", "threads", 4), device),
                                   key(test::toy_ranks("a/16", "processes", 2), device)};
  CHECK(keys.size() == 5);
}

TEST_CASE("rank finals: a pinned record is left alone", "[autotune][tuner]") {
  RankWorld world;
  FakeRunner runner(alone);
  auto items = make_items(world.registry, {{"toy", test::toy_add(kForms), 64, 64}}, world.device, "cold");
  REQUIRE(world.store->publish(items[0].key,
                               make_record(bucket(64), config("a", 16), "", cache::Origin::pinned, {1}, {1}), {}));
  CHECK(world.tune(runner, kForms, 64, 64).complete);
  CHECK(runner.rank_races == 0);
}

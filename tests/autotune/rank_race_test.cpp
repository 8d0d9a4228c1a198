// tests/autotune/rank_race_test.cpp -- groups of ranks in real worker processes, and ranks that misbehave.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "autotune/keys.h"
#include "autotune/worker/process_runner.h"
#include "autotune/worker/stats.h"
#include "seqtile/stores.h"
#include "seqtile/tuner.h"
#include "tests/cache/support.h"
#include "tests/support/fakes/toy_ops.h"

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

constexpr const char* kFabrics[] = {"threads", "processes"};

// The limit after which a group that does not end is killed, beyond its own rounds. Busy cores need time to start a
// group.
#if defined(__SANITIZE_THREAD__)
constexpr double kMeasureS = 20;
#else
constexpr double kMeasureS = 4;
#endif

Config config(const std::string& form) { return {{"form", form}, {"block", int64_t{4}}}; }

/// Both stores, and real workers.
struct Bench {
  test::TempFolder folder;
  std::unique_ptr<cache::TuningStore> store;
  std::unique_ptr<cache::ArtifactDb> artifacts;
  Registry registry = test::toy_registry();

  Bench() {
    setenv("SEQTILE_WORKER", SEQTILE_TUNING_HELPER, 1);
    setenv("SEQTILE_CACHE_DIR", folder.path().c_str(), 1);
    store = cache::TuningStore::open(folder.file("tuning.db"), cache::OpenMode::read_write);
    artifacts = cache::ArtifactDb::open(folder.file("artifacts.db"), folder.file("key"));
  }
  ~Bench() { unsetenv("SEQTILE_CACHE_DIR"); }

  std::vector<Series> race(const std::string& fabric, const std::vector<std::string>& forms, int world_size = 2,
                           double measure_s = 20) {
    std::string list;
    std::vector<Config> configs;
    for (const std::string& form : forms) {
      list += (list.empty() ? "" : ",") + form + "/4";
      configs.push_back(config(form));
    }
    const RunnerLimits limits{30, 10, measure_s};
    ProcessRunner runner("cpu", host_target(), "cold", *artifacts, limits);
    runner.begin(registry.find("toy_ranks"), test::toy_ranks(list, fabric, world_size), 256);
    for (const Verdict& verdict : runner.compile(configs)) REQUIRE(verdict.detail == "");
    for (const Config& one : configs) REQUIRE(runner.check(one).detail == "");
    return runner.measure(configs, {64, 7, 7, 1, false, true});
  }
};

}  // namespace

TEST_CASE("rank race: every rank runs every candidate, the slowest one counts", "[autotune][worker]") {
  Bench bench;
  for (const char* fabric : kFabrics)
    for (const int world_size : {2, 3}) {
      INFO(fabric << ", " << world_size << " ranks");
      const auto series = bench.race(fabric, {"together", "late"}, world_size);
      for (const Series& one : series) {
        CHECK(one.verdict.detail == "");
        CHECK(one.us.size() >= 3);
      }
      CHECK(median(series[1].us) > 5 * median(series[0].us));  // rank 1 is late
    }
}

TEST_CASE("rank race: a rank that dies or stays is to blame, and the others go on", "[autotune][worker]") {
  Bench bench;
  for (const char* fabric : kFabrics) {
    INFO(fabric);
    const auto series = bench.race(fabric, {"together", "dies", "stays"}, 2, kMeasureS);
    CHECK(series[0].verdict.detail == "");
    CHECK(series[0].us.size() >= 3);
    CHECK(series[1].verdict.outcome == "crash");
    CHECK_THAT(series[1].verdict.detail, Catch::Contains("ended by signal"));
    CHECK(series[2].verdict.outcome == "hang");
    CHECK(series[2].us.empty());
  }
}

TEST_CASE("rank race: the tuner stores what all ranks have chosen", "[autotune][worker]") {
  for (const std::string other : {"late", "dies"}) {  // the default, which is as fast as "together" in one process
    INFO(other);
    Bench bench;
    const Workload workload = test::toy_ranks(other + "/4,together/4", "threads");
    const TuneReport report =
        tune(bench.registry, {{"toy", workload, 64, 64}}, "cpu", *bench.store, *bench.artifacts, TuneOptions{});
    CHECK(report.complete);
    CHECK(report.rank_races == 1);
    const auto key = make_key(bench.registry.find("toy_ranks"), workload, open_device("cpu", 1)->info(), "cold");
    const auto records = bench.store->records(key);
    REQUIRE(records.size() == 1);
    CHECK(Config::parse(records[0].config_json) == config("together"));
    if (other == "late") CHECK(records[0].default_us > 5 * records[0].median_us);
    std::map<std::string, cache::TrialRow> trials;
    for (const auto& row : bench.store->trials(key, kBucketVersion, records[0].lo, records[0].hi))
      trials[Config::parse(row.config_json).get_string("form")] = row;
    const cache::TrialRow &chosen = trials["together"], &left = trials[other];
    CHECK((chosen.outcome == "ok" && chosen.ranks == 2 && chosen.chosen && chosen.ranks_us > 0));
    CHECK((left.ranks == 2 && !left.chosen));
    if (other == "late") CHECK(left.ranks_us > 5 * chosen.ranks_us);
    else CHECK_THAT(left.outcome + " " + left.detail, Catch::StartsWith("crash ended by signal"));
  }
}

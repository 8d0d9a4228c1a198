// tests/cache/plan_store_test.cpp -- plans beside tuning records are found whole or not at all.
// SPDX-License-Identifier: Apache-2.0
#include "cache/plan_store.h"

#include "cache/row_codec.h"
#include "tests/cache/support.h"

using namespace seqtile;
using namespace seqtile::cache;
using namespace seqtile::test;

namespace {

StoredPlan sample_plan(int number = 1) {
  return {.manifest_json = fmt::format(R"({{"costs":"calibrated","graph":"{:064x}","mesh":[2,4]}})", number),
          .records_json = R"({"linear {\"k\":96}":"0123456789abcdef"})",
          .plan_json = R"({"operators":[{"name":"y","strategy":"S0 n"}]})",
          .objective = 0.1 + number,
          .lower_bound = 1.0 / 3,
          .is_exact = true,
          .ms = 12.34,
          .created_us = 1'700'000'000'000'000 + number};
}

bool same(const StoredPlan& a, const StoredPlan& b) {
  return a.manifest_json == b.manifest_json && a.records_json == b.records_json && a.plan_json == b.plan_json &&
         a.objective == b.objective && a.lower_bound == b.lower_bound && a.is_exact == b.is_exact && a.ms == b.ms &&
         a.created_us == b.created_us;
}

std::unique_ptr<PlanStore> writer(const std::string& path) { return PlanStore::open(path, OpenMode::read_write); }
std::unique_ptr<PlanStore> reader(const std::string& path) { return PlanStore::open(path, OpenMode::read_only); }

}  // namespace

TEST_CASE("plan store: what is put there is found again, by another process's eyes too", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  CHECK_FALSE(reader(path)->find(sample_plan().manifest_json));
  CHECK(reader(path)->all().empty());
  CHECK_FALSE(std::filesystem::exists(path));
  REQUIRE(writer(path)->publish(sample_plan(2)));
  REQUIRE(writer(path)->publish(sample_plan(1)));
  const auto found = reader(path)->find(sample_plan(1).manifest_json);
  REQUIRE(found);
  CHECK(same(*found, sample_plan(1)));
  CHECK_FALSE(reader(path)->find(sample_plan(3).manifest_json));
  const auto all = reader(path)->all();
  REQUIRE(all.size() == 2);
  CHECK(same(all[0], sample_plan(1)));  // plans are in the order of their making
  CHECK(same(all[1], sample_plan(2)));
  CHECK(run_sql(path, "SELECT costs, mesh, operators, exact FROM v_plans LIMIT 1") ==
        std::vector<std::string>{"calibrated|[2,4]|1|1"});
  const CheckReport report = TuningStore::open(path, OpenMode::read_only)->check();
  CHECK(report.ok());
  CHECK(report.rows == 2);
}

TEST_CASE("plan store: a later plan of the same manifest takes the place of the first", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  StoredPlan plan = sample_plan();
  REQUIRE(writer(path)->publish(plan));
  plan.records_json = "{}";
  plan.objective = 7;
  REQUIRE(writer(path)->publish(plan));
  REQUIRE(reader(path)->all().size() == 1);
  CHECK(same(*reader(path)->find(plan.manifest_json), plan));
}

TEST_CASE("plan store: an edited plan is a miss that `check` names, and is replaced", "[cache][fault]") {
  for (const std::string column : {"manifest = '{}'", "records = '{}'", "plan = '{}'", "objective = 0",
                                   "lower_bound = 0", "is_exact = 0", "ms = 1", "created_us = 1"}) {
    INFO(column);
    const TempFolder folder;
    const std::string path = folder.file("tuning.db");
    REQUIRE(writer(path)->publish(sample_plan()));
    run_sql(path, "UPDATE plan SET " + column);
    CHECK_FALSE(reader(path)->find(sample_plan().manifest_json));
    const auto store = reader(path);
    CHECK(store->bad_rows() == 0);
    CHECK(store->all().empty());
    CHECK(store->bad_rows() == 1);
    CHECK_FALSE(store->find(sample_plan().manifest_json));
    CHECK(store->bad_rows() == 2);
    const CheckReport report = TuningStore::open(path, OpenMode::read_only)->check();
    CHECK(report.bad_rows == 1);
    REQUIRE(report.problems.size() == 1);
    CHECK(report.problems[0].find("plan ") == 0);
    REQUIRE(writer(path)->publish(sample_plan()));
    CHECK(reader(path)->find(sample_plan().manifest_json));
  }
}

TEST_CASE("plan store: what cannot be stored is refused, and nothing is written", "[cache]") {
  const TempFolder folder;
  const std::string path = folder.file("tuning.db");
  StoredPlan infinite = sample_plan(), control = sample_plan(), huge = sample_plan();
  infinite.objective = std::numeric_limits<double>::infinity();
  control.plan_json += '\n';
  huge.plan_json = std::string((16 << 20) + 1, 'x');
  StoredPlan together = sample_plan();
  together.records_json = std::string(8 << 20, 'x');
  together.plan_json.assign(kMaxPlanTextBytes - together.records_json.size() - together.manifest_json.size(), 'x');
  const StoredPlan largest = together;
  together.plan_json += 'x';
  CHECK(why_not_storable(together) ==
        "manifest, records and plan have 16776193 bytes together, at most 16776192 are "
        "stored");
  for (const StoredPlan& plan : {infinite, control, huge, together}) CHECK_FALSE(writer(path)->publish(plan));
  CHECK(reader(path)->all().empty());
  StoredPlan large = sample_plan();
  large.plan_json = std::string(3 << 20, 'x');
  CHECK(writer(path)->publish(large));
  CHECK(same(*reader(path)->find(large.manifest_json), large));
  REQUIRE(writer(path)->publish(largest));
  CHECK(same(*reader(path)->find(largest.manifest_json), largest));
  CHECK(TuningStore::open(path, OpenMode::read_only)->check().ok());
}

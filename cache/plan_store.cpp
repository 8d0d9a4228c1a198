// cache/plan_store.cpp -- PlanStore over one SQLite file.
// SPDX-License-Identifier: Apache-2.0
#include "cache/plan_store.h"

#include <atomic>

#include "cache/database/database_file.h"
#include "cache/row_codec.h"
#include "cache/row_scan.h"
#include "jit/base/hash.h"

namespace seqtile::cache {
namespace {

class SqlitePlanStore final : public PlanStore {
 public:
  SqlitePlanStore(const std::string& path, OpenMode mode)
      : file_(
            "tuning store", path,
            {.schema = &kTuningSchema, .is_read_only = mode == OpenMode::read_only, .max_value_bytes = kMaxPlanBytes}) {
  }

  std::optional<StoredPlan> find(const std::string& manifest_json) override {
    std::optional<StoredPlan> found;
    Tally tally;
    file_.read([&](Connection& connection) {
      found.reset(), tally = {};
      Statement statement = connection.prepare(kSelectPlan);
      statement.bind(sha256_hex(manifest_json));
      if (!statement.step()) return;
      StoredPlan plan;
      if (tally.take(read_plan(statement, 0, plan)) && plan.manifest_json == manifest_json) found = std::move(plan);
    });
    count(tally);
    return found;
  }

  std::vector<StoredPlan> all() override {
    std::vector<StoredPlan> plans;
    Tally tally;
    file_.read([&](Connection& connection) {
      plans.clear(), tally = {};
      Statement statement = connection.prepare(kSelectAllPlans);
      while (statement.step()) {
        std::string hash;
        StoredPlan plan;
        if (tally.take(read_hashed_plan(statement, hash, plan))) plans.push_back(std::move(plan));
      }
    });
    count(tally);
    return plans;
  }

  int64_t bad_rows() const override { return bad_rows_; }

  bool publish(const StoredPlan& given) override {
    if (const std::string reason = why_not_storable(given); !reason.empty()) {
      file_.refuse_write(reason);
      return false;
    }
    StoredPlan plan = given;
    if (plan.created_us == 0) plan.created_us = unix_time_us();
    return file_.write([&](Connection& connection) {
      Statement statement = connection.prepare(kInsertPlan);
      statement.bind(sha256_hex(plan.manifest_json));
      insert_plan(statement, plan);
    });
  }

 private:
  void count(const Tally& tally) {
    bad_rows_ += tally.bad();
    if (tally.bad() > 0) file_.report(kBadRows);
  }

  DatabaseFile file_;
  std::atomic<int64_t> bad_rows_{0};
};

}  // namespace

std::unique_ptr<PlanStore> PlanStore::open(const std::string& path, OpenMode mode) {
  return std::make_unique<SqlitePlanStore>(path, mode);
}

}  // namespace seqtile::cache

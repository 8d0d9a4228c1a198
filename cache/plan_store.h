// cache/plan_store.h -- plans of graphs over meshes, in the same file as the tuning records that price them.
// SPDX-License-Identifier: Apache-2.0
//
// A row is found by the hash of its manifest, a readable text of all inputs of a plan except kernel records. `records`
// names the kernel records behind the plan's prices; the caller compares them. A damaged or foreign row, or one of
// another release, is a miss with a log line. A write that cannot be made is dropped with a log line. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "seqtile/stores.h"

namespace seqtile::cache {

struct StoredPlan {
  std::string manifest_json, records_json, plan_json;
  double objective = 0, lower_bound = 0;
  bool is_exact = false;
  double ms = 0;           ///< milliseconds that planning took
  int64_t created_us = 0;  ///< Unix time, for people; 0: now
};

class PlanStore {
 public:
  /// The rules of TuningStore::open() apply.
  static std::unique_ptr<PlanStore> open(const std::string& path, OpenMode mode);
  virtual ~PlanStore() = default;

  virtual std::optional<StoredPlan> find(const std::string& manifest_json) = 0;
  /// All valid plans, in the order in which they were made.
  virtual std::vector<StoredPlan> all() = 0;
  /// The number of damaged rows that find() and all() have met.
  virtual int64_t bad_rows() const = 0;
  /// Inserts the plan, or replaces the one with its manifest. Returns true when the row is durable.
  virtual bool publish(const StoredPlan& plan) = 0;
};

}  // namespace seqtile::cache

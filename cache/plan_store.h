// cache/plan_store.h -- plans of graphs over meshes, in the same file as the tuning records that price them.
// SPDX-License-Identifier: Apache-2.0
//
// A row is found by the hash of its manifest, a readable text of all that decides a plan but kernel records; `records`
// says which of those are in its prices, and whoever asks compares them. As of records, what is damaged, foreign or of
// another release is a miss with a log line, and a write that cannot be made is dropped with one. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/tuning_store.h"

namespace seqtile::cache {

struct StoredPlan {
  std::string manifest_json, records_json, plan_json;
  double objective = 0, lower_bound = 0;
  bool is_exact = false;
  double ms = 0;           ///< that planning took
  int64_t created_us = 0;  ///< Unix time, for people; 0: now
};

class PlanStore {
 public:
  /// As TuningStore::open().
  static std::unique_ptr<PlanStore> open(const std::string& path, OpenMode mode);
  virtual ~PlanStore() = default;

  virtual std::optional<StoredPlan> find(const std::string& manifest_json) = 0;
  /// Every valid plan, in the order in which they were made.
  virtual std::vector<StoredPlan> all() = 0;
  /// Damaged rows that find() and all() have met.
  virtual int64_t bad_rows() const = 0;
  /// Inserts or replaces the plan of its manifest; when it returns true the row is durable.
  virtual bool publish(const StoredPlan& plan) = 0;
};

}  // namespace seqtile::cache

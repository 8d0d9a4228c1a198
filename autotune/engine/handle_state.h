// autotune/engine/handle_state.h -- a prepared operation: its layout, its decisions, and the table that calls read.
// SPDX-License-Identifier: Apache-2.0
//
// Calls read `table_` and no other mutable member. A change of the table holds `mutex_` and ends in publish(), which
// swaps in a new table if it differs from the current one. Plans, records and old tables live as long as the state.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "autotune/engine/engine_core.h"
#include "autotune/engine/usable.h"
#include "jit/base/process_exit.h"

namespace seqtile {

struct Handle::State {
 public:
  /// Reads the decisions from the core's snapshot and makes their launch plans. Errors: as Engine::prepare.
  State(std::shared_ptr<autotune::EngineCore> core, const autotune::OpDef& op, autotune::Workload workload);

  /// The state of Handle::fixed(): a table of `base`'s plans that never changes. Errors: compile_failed.
  State(std::shared_ptr<State> base, const Choices& choices);

  /// `plan_length`: the length whose plan serves the call. Errors: as Handle::operator() and Handle::call_as.
  void call(std::span<const Tensor> tensors, int64_t length, std::span<const int64_t> scalars, Stream stream,
            int64_t plan_length);
  autotune::WorkspaceSet capture(std::span<const Tensor> tensors, int64_t capacity, const int64_t* device_length,
                                 std::span<const int64_t> scalars, Stream stream);
  bool lookup(int64_t length);
  Explanation explain(int64_t length);
  std::vector<std::pair<autotune::Bucket, autotune::Config>> ranges() const;
  Choices choices() const;

  /// Replaces the decisions by those of the core's current snapshot.
  void reload();
  /// Tunes one bucket unless it has a record. One caller at a time tunes a bucket; other callers wait for it. A failed
  /// tuning is logged once, and the bucket is served untuned.
  void tune_bucket(int index, const std::atomic<bool>* interrupt);
  /// Tunes the buckets that calls have missed since the previous call of this function (policy background).
  void tune_wanted(const std::atomic<bool>& interrupt);

  /// Appends the buckets that calls have missed.
  void add_misses(std::vector<Miss>& all) const;

  const autotune::OpDef& operation() const { return op_; }

  const autotune::Workload workload;
  const autotune::Schema schema;

 private:
  enum class TuneState : uint8_t { idle, running, failed };

  const autotune::PlanEntry& entry(int64_t length) const {
    return table_.load(std::memory_order_acquire)->entries[autotune::bucket_index(length)];
  }
  [[noreturn]] void refuse_length(int64_t length, int64_t least = 1) const;
  void check_capacity(int64_t capacity, int64_t length) const;
  [[noreturn]] void refuse_miss(int64_t length) const;
  /// Calls watch_exit() once. A fixed state shares the watch of its base, because each watch takes memory that is never
  /// freed.
  void watch_exit_once();
  void count_miss(const autotune::PlanEntry& entry, int64_t length);
  /// The plan that serves `length`; counts a hit or a miss.
  const autotune::LaunchPlan& plan_for(int64_t length);
  const autotune::LaunchPlan& plan_after_miss(int64_t length, const autotune::PlanEntry* missed);
  std::string miss_reason(int64_t length) const;

  // under mutex_
  const autotune::BucketRecord* accept(const autotune::StoredRecord& stored, const autotune::Config& config);
  void reject(const autotune::StoredRecord& stored, const std::string& reason);
  /// Makes the plans of `configs` that are not there yet. Returns the errors, by the configuration's JSON.
  std::map<std::string, std::string> make_plans(const std::vector<autotune::Config>& configs,
                                                std::atomic<int64_t>& compiles);
  std::string add_plan(const autotune::Config& config, const autotune::KernelLoader::Result& loaded);
  const autotune::LaunchPlan* find_plan(const autotune::Config& config) const;
  void take_over(const std::vector<autotune::StoredRecord>& stored, std::atomic<int64_t>& compiles);
  void publish(std::atomic<int64_t>& compiles);
  const autotune::BucketRecord* nearest_record(int index) const;
  /// The default configuration that serves the bucket where no record does. Each is computed once.
  const autotune::Config& default_of(int index);
  /// True if the bucket gets no plan without a record: a call then throws (strict) or tunes (tune).
  bool is_open(int index) const;
  int top_recorded() const;
  std::vector<autotune::StoredRecord> stored_records() const;

  // without mutex_
  autotune::StoredRecord run_tuning(int index, const std::atomic<bool>* interrupt);

  std::shared_ptr<State> base_;  ///< of a fixed state: the owner of its plans and records
  std::shared_ptr<autotune::EngineCore> core_;
  const autotune::OpDef& op_;
  const autotune::CallLayout layout_;
  const cache::TuningKey key_;
  const int64_t max_length_;

  std::atomic<const autotune::PlanTable*> table_{nullptr};
  std::array<std::atomic<bool>, autotune::kNumBuckets> wanted_{};
  std::array<std::atomic<int64_t>, autotune::kNumBuckets> missed_{};  ///< calls
  std::atomic<bool> is_exit_watched_{false};  ///< set by the first call: statics that hold the handle exist by then

  mutable std::mutex mutex_;
  std::condition_variable tuned_;
  std::string nearest_key_;  ///< Snapshot::nearest_key() where the key has no record
  autotune::Usability usable_;
  std::map<int, std::string> refusals_;           ///< by bucket: why its first unusable record may not serve
  std::map<int64_t, autotune::Config> defaults_;  ///< by the length that each is the default of
  std::array<TuneState, autotune::kNumBuckets> tune_states_{};
  std::array<const autotune::BucketRecord*, autotune::kNumBuckets> records_{};
  std::map<std::string, std::unique_ptr<autotune::LaunchPlan>> plans_;  ///< by the configuration's JSON
  std::vector<std::unique_ptr<const autotune::BucketRecord>> accepted_;
  std::vector<std::unique_ptr<const autotune::PlanTable>> tables_;
};

/// Makes a state that is not destroyed while the process exits, because a call may be inside.
template <class... Args>
std::shared_ptr<Handle::State> make_state(Args&&... args) {
  return {std::make_unique<Handle::State>(std::forward<Args>(args)...).release(), [](Handle::State* state) {
            if (!is_exiting()) std::default_delete<Handle::State>()(state);
          }};
}

}  // namespace seqtile

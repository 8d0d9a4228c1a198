// autotune/engine/handle_plans.cpp -- from stored decisions to the plan table of a handle; tuning of single buckets.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>

#include <fmt/core.h>

#include "autotune/engine/handle_state.h"
#include "autotune/keys.h"
#include "autotune/nearest_bucket.h"
#include "jit/base/log.h"
#include "seqtile/error.h"

namespace seqtile {

using autotune::Answer;
using autotune::Bucket;
using autotune::BucketRecord;
using autotune::Config;
using autotune::kNumBuckets;
using autotune::LaunchPlan;
using autotune::StoredRecord;

Handle::State::State(std::shared_ptr<autotune::EngineCore> core, const autotune::OpDef& op,
                     autotune::Workload normalized)
    : workload(std::move(normalized)),
      schema(op.schema(workload)),
      core_(std::move(core)),
      op_(op),
      layout_(schema, core_->parts.device->target().is_gpu()),
      key_(autotune::make_key(op, workload, core_->parts.device->info(), autotune::TuneOptions{}.policy)),
      max_length_(core_->options.max_length > 0 ? std::min(core_->options.max_length, autotune::kMaxLength)
                                                : autotune::kMaxLength),
      usable_(op_, workload, core_->parts.device->target()) {
  reload();
}

void Handle::State::reload() {
  const auto snapshot = core_->snapshot();
  const auto stored = snapshot->find(key_);
  const std::string nearest = stored.empty() ? snapshot->nearest_key(key_) : "";
  std::lock_guard lock(mutex_);
  if (!nearest.empty() && nearest != nearest_key_) core_->layers.log_without_records(op_.name, nearest);
  nearest_key_ = nearest;
  refusals_.clear();
  for (TuneState& state : tune_states_) {
    if (state == TuneState::failed) state = TuneState::idle;
  }
  take_over(stored, core_->compiles_at_load);
  publish(core_->compiles_at_load);
}

void Handle::State::reject(const StoredRecord& stored, const std::string& reason) {
  const cache::Record& record = stored.record;
  if (record.bucket_version == autotune::kBucketVersion) {  // a record of another release's version is not bad
    autotune::count(core_->bad_records);
    log_line(LogLevel::warning, fmt::format("{}: the record of {} for bucket {}..{} is not used: {}", stored.source,
                                            op_.name, record.lo, record.hi, reason));
  }
  const bool is_on_ladder = record.lo >= 1 && record.lo <= autotune::kMaxLength;
  if (is_on_ladder) refusals_.try_emplace(static_cast<int>(autotune::bucket_index(record.lo)), reason);
}

const BucketRecord* Handle::State::accept(const StoredRecord& stored, const Config& config) {
  const cache::Record& record = stored.record;
  const BucketRecord* known = records_[autotune::bucket_index(record.lo)];
  if (known && known->source == stored.source && known->record.config_json == record.config_json &&
      known->record.origin == record.origin && known->record.median_us == record.median_us) {
    return known;
  }
  accepted_.push_back(std::make_unique<const BucketRecord>(BucketRecord{record, stored.source, config}));
  return accepted_.back().get();
}

/// Chooses the first usable record of each bucket. An unusable record does not hide records of later layers.
void Handle::State::take_over(const std::vector<StoredRecord>& stored, std::atomic<int64_t>& compiles) {
  std::map<int, std::deque<std::pair<const StoredRecord*, Config>>> waiting;  // by bucket
  for (const StoredRecord& one : stored) {
    const autotune::Judgement judgement = usable_.judge(one.record);
    if (!judgement.is_usable()) reject(one, judgement.refusal);
    else waiting[static_cast<int>(autotune::bucket_index(one.record.lo))].emplace_back(&one, judgement.config);
  }
  std::array<const BucketRecord*, kNumBuckets> chosen{};
  while (!waiting.empty()) {
    std::vector<Config> configs;
    for (const auto& [index, records] : waiting) configs.push_back(records.front().second);
    const auto errors = make_plans(configs, compiles);
    for (auto& [index, records] : waiting) {
      const auto& [record, config] = records.front();
      const auto error = errors.find(config.json());
      if (error == errors.end()) chosen[index] = accept(*record, config);
      else reject(*record, error->second);
      records.pop_front();
    }
    std::erase_if(waiting, [&](const auto& bucket) { return chosen[bucket.first] || bucket.second.empty(); });
  }
  records_ = chosen;
}

std::map<std::string, std::string> Handle::State::make_plans(const std::vector<Config>& configs,
                                                             std::atomic<int64_t>& compiles) {
  std::vector<Config> absent;
  for (const Config& config : configs) {
    if (!find_plan(config) && std::find(absent.begin(), absent.end(), config) == absent.end()) absent.push_back(config);
  }
  std::map<std::string, std::string> errors;
  if (absent.empty()) return errors;
  int64_t compiled = 0;
  const auto loaded = core_->loader.load(op_, workload, absent, usable_, compiled);
  compiles.fetch_add(compiled, std::memory_order_relaxed);
  for (size_t i = 0; i < absent.size(); ++i) {
    const std::string error = add_plan(absent[i], loaded[i]);
    if (!error.empty()) errors[absent[i].json()] = error;
  }
  return errors;
}

std::string Handle::State::add_plan(const Config& config, const autotune::KernelLoader::Result& loaded) {
  if (!loaded.kernel) return loaded.error;
  auto plan = std::make_unique<LaunchPlan>();
  plan->config = config;
  plan->kernel = loaded.kernel;
  try {
    plan->grid = op_.grid(workload, config);
    if (op_.workspaces) plan->workspaces = op_.workspaces(workload, config);
  } catch (const std::exception& error) {  // OpDef::grid may throw anything
    return error.what();
  }
  const KernelBinary& binary = loaded.kernel->binary();
  if (const std::string problem = usable_.misfit(config, binary); !problem.empty())
    return fmt::format("kernel {} {}", binary.symbol, problem);
  plans_[config.json()] = std::move(plan);
  return "";
}

const LaunchPlan* Handle::State::find_plan(const Config& config) const {
  const auto found = plans_.find(config.json());
  return found == plans_.end() ? nullptr : found->second.get();
}

int Handle::State::top_recorded() const {
  int top = kNumBuckets - 1;
  while (top >= 0 && !records_[top]) --top;
  return top;
}

const BucketRecord* Handle::State::nearest_record(int index) const {
  const auto at = autotune::nearest_recorded(index, [&](int64_t i) { return records_[i] != nullptr; });
  return at ? records_[*at] : nullptr;
}

bool Handle::State::is_open(int index) const {
  const MissPolicy policy = core_->options.policy;
  return policy == MissPolicy::strict || (policy == MissPolicy::tune && tune_states_[index] != TuneState::failed);
}

const Config& Handle::State::default_of(int index) {
  const Bucket bucket = autotune::bucket_at(index);
  const int64_t length = core_->options.policy == MissPolicy::fallback ? bucket.hi : autotune::octave_end(bucket);
  const auto known = defaults_.find(length);
  if (known != defaults_.end()) return known->second;
  return defaults_.emplace(length, op_.default_config(workload, length, core_->parts.device->target())).first->second;
}

void Handle::State::publish(std::atomic<int64_t>& compiles) {
  auto table = std::make_unique<autotune::PlanTable>();
  const int top = top_recorded();
  const int count = static_cast<int>(autotune::bucket_index(max_length_)) + 1;
  const bool takes_nearest = core_->options.policy != MissPolicy::fallback;
  std::map<int, Config> defaults;
  for (int i = 0; i < count; ++i) {
    autotune::PlanEntry& entry = table->entries[i];
    entry.record = records_[i];
    entry.answer = entry.record ? Answer::hit : top >= 0 && i > top ? Answer::above_top : Answer::no_record;
    if (entry.record || is_open(i)) continue;
    if (takes_nearest) entry.record = nearest_record(i);
    if (entry.record) continue;
    defaults[i] = default_of(i);
  }
  std::vector<Config> configs;
  for (const auto& [index, config] : defaults) configs.push_back(config);
  const auto errors = make_plans(configs, compiles);
  if (!errors.empty()) {
    throw Error(ErrorCode::compile_failed, fmt::format("{}: the default configuration {} cannot be used: {}", op_.name,
                                                       errors.begin()->first, errors.begin()->second));
  }
  for (int i = 0; i < count; ++i) {
    autotune::PlanEntry& entry = table->entries[i];
    if (entry.record) entry.plan = find_plan(entry.record->config);
    else if (const auto found = defaults.find(i); found != defaults.end()) entry.plan = find_plan(found->second);
  }
  if (!tables_.empty() && tables_.back()->entries == table->entries) return;
  tables_.push_back(std::move(table));
  table_.store(tables_.back().get(), std::memory_order_release);
}

void Handle::State::tune_bucket(int index, const std::atomic<bool>* interrupt) {
  std::unique_lock lock(mutex_);
  tuned_.wait(lock, [&] { return tune_states_[index] != TuneState::running; });
  if (records_[index] || tune_states_[index] == TuneState::failed) return;
  tune_states_[index] = TuneState::running;
  lock.unlock();
  std::string failure;
  try {
    StoredRecord stored = run_tuning(index, interrupt);
    lock.lock();
    auto all = stored_records();
    all.push_back(std::move(stored));
    take_over(all, core_->compiles);
  } catch (const std::exception& error) {
    failure = error.what();
    if (!lock.owns_lock()) lock.lock();
  }
  const bool is_interrupted = interrupt && interrupt->load();
  const bool is_failed = !records_[index] && !is_interrupted;
  tune_states_[index] = is_failed ? TuneState::failed : TuneState::idle;
  tuned_.notify_all();
  if (is_failed) {
    const Bucket bucket = autotune::bucket_at(index);
    log_line(LogLevel::warning,
             fmt::format("{} bucket {}..{} is served untuned: {}", op_.name, bucket.lo, bucket.hi, failure));
  }
  publish(core_->compiles);
}

StoredRecord Handle::State::run_tuning(int index, const std::atomic<bool>* interrupt) {
  const Bucket bucket = autotune::bucket_at(index);
  autotune::TuneOptions options;
  options.merge = false;
  options.interrupt = interrupt;
  cache::TuningStore& store = core_->layers.user();
  const auto report = core_->parts.tune(*core_->registry, {{op_.name, workload, bucket.lo, bucket.hi}},
                                        core_->options.device, store, *core_->artifacts, options);
  core_->tunings.fetch_add(report.tunings, std::memory_order_relaxed);
  for (const cache::Record& record : store.records(key_)) {
    if (record.bucket_version == autotune::kBucketVersion && record.lo == bucket.lo) {
      return StoredRecord{record, store.path()};
    }
  }
  const std::string status = store.status();
  throw Error(ErrorCode::io,
              fmt::format("no record was stored in {}{}{}", store.path(), status.empty() ? "" : ": ", status));
}

std::vector<StoredRecord> Handle::State::stored_records() const {
  std::vector<StoredRecord> stored;
  for (const BucketRecord* record : records_) {
    if (record) stored.push_back({record->record, record->source});
  }
  return stored;
}

void Handle::State::tune_wanted(const std::atomic<bool>& interrupt) {
  for (int i = 0; i < kNumBuckets && !interrupt; ++i) {
    if (wanted_[i].exchange(false, std::memory_order_relaxed)) tune_bucket(i, &interrupt);
  }
}

}  // namespace seqtile

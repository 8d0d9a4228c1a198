// autotune/tuning/items.cpp -- requests and the store's records as the work list of a session.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "autotune/keys.h"
#include "autotune/op_def.h"
#include "autotune/tuning/session.h"
#include "autotune/worker/stats.h"
#include "jit/base/counted.h"
#include "jit/base/log.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

constexpr double kNoisySpread = 1.25, kNoisySelf = 0.05;  // p80 / p20, A against A

int64_t unix_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

void add_buckets(Item& item, int64_t lo, int64_t hi) {
  for (const Bucket& bucket : buckets(lo, hi)) {
    const auto at = std::lower_bound(item.buckets.begin(), item.buckets.end(), bucket.lo,
                                     [](const BucketState& s, int64_t value) { return s.bucket.lo < value; });
    if (at == item.buckets.end() || at->bucket != bucket)
      item.buckets.insert(at, BucketState{bucket, {}, false, false});
  }
}

}  // namespace

std::vector<Item> make_items(const Registry& registry, const std::vector<TuneRequest>& requests,
                             const DeviceInfo& device, const std::string& policy) {
  std::vector<Item> items;
  for (const TuneRequest& request : requests) {
    const OpDef& op = registry.find(request.workload.operation);
    Workload workload = op.normalize(request.workload);
    const auto known = std::find_if(items.begin(), items.end(), [&](const Item& i) { return i.workload == workload; });
    if (known != items.end()) {
      known->label += "+" + request.label;
      add_buckets(*known, request.lo, request.hi);
      continue;
    }
    Item item{request.label, &op, std::move(workload), {}, {}};
    item.key = make_key(op, item.workload, device, policy);
    item.num_ranks = ranks_to_race(op, item.workload, device);
    add_buckets(item, request.lo, request.hi);
    items.push_back(std::move(item));
  }
  return items;
}

namespace {

BucketState* state_of(Item& item, int64_t lo, int64_t hi) {
  const auto at = std::ranges::find(item.buckets, Bucket{lo, hi}, &BucketState::bucket);
  return at == item.buckets.end() ? nullptr : &*at;
}

bool is_of_ladder(int64_t lo, int64_t hi) { return lo >= 1 && lo <= kMaxLength && bucket(lo) == Bucket{lo, hi}; }

/// Takes a record that may serve.
void take_over(Item& item, BucketState& state, cache::Record record, const Target& target, cache::TuningStore& store,
               Evidence evidence) {
  using cache::Origin;
  const bool is_modelled = record.origin == Origin::modelled;
  if (evidence == Evidence::measured && is_modelled) state.outdated = true;
  else if (record.origin == Origin::tuned || is_modelled)
    state.outdated = record.space_hash != item.op->config_space(item.workload, state.bucket.hi, target).hash();
  else state.outdated = record.origin == Origin::fallback && evidence != Evidence::predicted;
  if (item.num_ranks > 0)
    state.is_raced = is_chosen_by_ranks(record, store.trials(item.key, kBucketVersion, record.lo, record.hi));
  state.record = std::move(record);
}

/// Rows of another bucket_version are another release's, which may use the same file: they are left alone.
void load_item(Item& item, const Target& target, cache::TuningStore& store, Evidence evidence) {
  item.usable = std::make_shared<Usability>(*item.op, item.workload, target);
  std::vector<cache::BadRecord> bad;
  std::vector<cache::Record> records = store.records(item.key, &bad);
  std::erase_if(bad, [](const auto& row) { return row.bucket_version != kBucketVersion; });
  for (cache::Record& record : records) {
    if (record.bucket_version != kBucketVersion) continue;
    const Judgement judgement = item.usable->judge(record);
    BucketState* state = state_of(item, record.lo, record.hi);
    if (!judgement.is_usable()) bad.push_back({record.bucket_version, record.lo, record.hi, judgement.refusal});
    if (!state) continue;
    if (judgement.is_usable()) take_over(item, *state, std::move(record), target, store, evidence);
    else state->unfit_config = record.config_json;
  }
  for (const cache::BadRecord& row : bad)
    if (!is_of_ladder(row.lo, row.hi)) item.misplaced.push_back(row);
  std::erase_if(bad, [&](const auto& row) { return is_of_ladder(row.lo, row.hi) && !state_of(item, row.lo, row.hi); });
  if (bad.empty()) return;
  log_line(LogLevel::warning, fmt::format("{}: {} may not serve and {} replaced; that of {}..{}: {}",
                                          describe(item, {item.buckets.front().bucket.lo, item.max_length()}),
                                          counted(bad.size(), "stored record"), bad.size() == 1 ? "is" : "are",
                                          bad[0].lo, bad[0].hi, bad[0].reason));
}

}  // namespace

void load_records(std::vector<Item>& items, const Target& target, cache::TuningStore& store, Evidence evidence) {
  for (Item& item : items) load_item(item, target, store, evidence);
}

void find_lacking(std::vector<Item>& items, Device& device, ArtifactStore& artifacts) {
  for (Item& item : items)
    for (BucketState& state : item.buckets)
      state.lacks_binary = state.record && !item.usable->judge(*state.record, device, artifacts).is_ready();
}

RankedSpace rank_space(const Item& item, int64_t length, const Target& target) {
  const OpDef& op = *item.op;
  const ConfigSpace space = op.config_space(item.workload, length, target);
  RankedSpace result{space.enumerate(), space.hash(), op.default_config(item.workload, length, target)};
  if (const auto reason = space.refusal(result.default_config))
    throw Error(ErrorCode::invalid_argument, "operation " + op.name + ": the default configuration " +
                                                 result.default_config.json() + " for length " +
                                                 std::to_string(length) + " is not in its space: " + *reason);
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < result.configs.size(); ++i)
    order.emplace_back(predicted_us(op, item.workload, result.configs[i], length, target), i);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Config> ranked;
  for (const auto& [predicted, i] : order) ranked.push_back(std::move(result.configs[i]));
  result.configs = std::move(ranked);
  return result;
}

int64_t count_ranges(const std::vector<Item>& items) {
  int64_t ranges = 0;
  for (const Item& item : items) {
    const cache::Record* last = nullptr;
    for (const BucketState& state : item.buckets) {
      if (state.record && (!last || last->config_json != state.record->config_json || last->hi + 1 != state.bucket.lo))
        ++ranges;
      last = state.record ? &*state.record : nullptr;
    }
  }
  return ranges;
}

std::string describe(const Item& item, const Bucket& bucket) {
  return fmt::format("{}{}{} {} t{} [{}..{}]", item.label, item.label.empty() ? "" : " ", item.op->name,
                     dtype_name(item.workload.dtype), item.workload.threads, bucket.lo, bucket.hi);
}

cache::TrialRow make_trial(const Bucket& bucket, const Config& config, const Verdict& verdict,
                           const std::vector<double>& us) {
  cache::TrialRow row;
  row.bucket_version = kBucketVersion;
  row.lo = bucket.lo;
  row.hi = bucket.hi;
  row.config_hash = config.hash();
  row.config_json = config.json();
  row.outcome = verdict.outcome;
  row.detail = verdict.detail;
  row.median_us = median(us);
  row.p20_us = quantile(us, 0.2);
  row.p80_us = quantile(us, 0.8);
  row.samples = static_cast<int64_t>(us.size());
  row.created_us = unix_us();
  return row;
}

cache::Record make_record(const Bucket& bucket, const Config& config, const std::string& space_hash,
                          cache::Origin origin, const std::vector<double>& us, const std::vector<double>& default_us) {
  cache::Record record;
  record.bucket_version = kBucketVersion;
  record.lo = bucket.lo;
  record.hi = bucket.hi;
  record.origin = origin;
  record.config_json = config.json();
  record.space_hash = space_hash;
  record.median_us = median(us);
  record.p20_us = quantile(us, 0.2);
  record.p80_us = quantile(us, 0.8);
  record.default_us = median(default_us);
  record.samples = static_cast<int64_t>(us.size());
  record.noisy = record.p80_us > kNoisySpread * record.p20_us || self_noise(us) > kNoisySelf;
  record.measured_length = bucket.hi;
  record.created_us = unix_us();
  return record;
}

}  // namespace seqtile::autotune

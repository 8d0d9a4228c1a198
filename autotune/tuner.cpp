// autotune/tuner.cpp -- see seqtile/tuner.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/tuner.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "autotune/strategies/strategy.h"
#include "autotune/tuning/session.h"
#include "autotune/worker/process_runner.h"
#include "cache/device_lock.h"
#include "jit/base/env.h"
#include "jit/base/log.h"
#include "jit/base/nearest_word.h"
#include "seqtile/error.h"
#include "seqtile/stores.h"

namespace seqtile::autotune {
namespace {

constexpr double kCoverageSeconds = 0.03, kTuneSeconds = 0.1, kRanksSeconds = 0.2;  // per bucket, for estimates
constexpr const char* kPolicies[] = {"cold", "warm", "cold-graph", "warm-graph"};

void check_options(const TuneOptions& options, const Target& target) {
  if (options.budget_s < 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("budget is {:g} s; it must be positive, or 0 for no limit", options.budget_s));
  const bool is_known = std::find(std::begin(kPolicies), std::end(kPolicies), options.policy) != std::end(kPolicies);
  if (!is_known || (options.policy.ends_with("-graph") && !target.is_gpu()))
    throw Error(ErrorCode::invalid_argument, "measurement policy \"" + options.policy +
                                                 "\"; there are: cold, warm, and for GPUs cold-graph, warm-graph" +
                                                 (is_known ? "" : did_you_mean(options.policy, kPolicies)));
  make_strategy(options.strategy, {}, options.seed);
}

bool is_decided(const std::vector<Item>& items, const cache::TuningStore& store) {
  for (const Item& item : items) {
    if (!item.misplaced.empty() && store.is_writable()) return false;
    for (const BucketState& state : item.buckets)
      if (!state.record || !state.is_resolved() || awaits_ranks(item, state)) return false;
  }
  return true;
}

bool has_all_binaries(const std::vector<Item>& items) {
  for (const Item& item : items)
    if (std::ranges::any_of(item.buckets, &BucketState::lacks_binary)) return false;
  return true;
}

/// Writes the rows that records refer to again for each key with a bad record. A record is valid again if only such a
/// row was damaged.
void repair_keys(const std::vector<Item>& items, cache::TuningStore& store) {
  for (const Item& item : items) {
    std::vector<cache::BadRecord> bad;
    store.records(item.key, &bad);
    if (!bad.empty()) store.add_trials(item.key, {});
  }
}

std::string folder_of(const std::string& path) {
  if (path.empty()) return "";
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

/// Name of the lock. One process at a time measures on a device; one process at a time decides without the device for
/// one store.
std::string lock_name(const DeviceInfo& device, Evidence evidence, const cache::TuningStore& store) {
  const std::string name = device.kind + " " + device.name;
  std::error_code error;
  if (evidence == Evidence::measured) return name;
  return name + " " + std::filesystem::weakly_canonical(store.path(), error).string();
}

/// Waits for other tuning processes until the budget ends or the user interrupts. Returns nullopt if no folder takes a
/// lock.
std::optional<cache::DeviceLock> lock_device(const DeviceInfo& device, Evidence evidence, const TuneOptions& options,
                                             const cache::TuningStore& store) {
  const std::string name = lock_name(device, evidence, store);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const auto timeout = options.budget_s > 0 ? std::chrono::milliseconds(static_cast<int64_t>(options.budget_s * 1e3))
                                            : std::chrono::milliseconds(std::chrono::hours(24 * 365));
  const auto on_wait = [&](const std::string& holder, const std::string& folder) {
    if (seconds() >= 1)  // the log writes equal lines once
      log_line(LogLevel::warning,
               fmt::format("waiting for {}, which tunes for {}; its lock is in {}", holder, name, folder));
    if (options.progress)
      options.progress({"waiting for " + holder + ", which tunes for this device", 0, 0, 0, seconds(), 0});
    return !(options.interrupt && options.interrupt->load());
  };
  // Measurements of all stores disturb each other; decisions without the device conflict only within one store.
  std::vector folders = {cache::machine_lock_folder(), folder_of(cache::default_tuning_path()),
                         folder_of(store.path())};
  if (evidence != Evidence::measured) std::swap(folders[0], folders[2]);
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    try {
      auto lock = cache::DeviceLock::lock(folder, name, timeout,
                                          [&](const std::string& holder) { return on_wait(holder, folder); });
      if (lock) return lock;
      const bool stopped = options.interrupt && options.interrupt->load();
      throw Error(stopped ? ErrorCode::aborted : ErrorCode::timeout,
                  stopped ? "interrupted while waiting for the device"
                          : fmt::format("{} was tuning for this device for the whole budget of {:g} s; try again later",
                                        cache::device_lock_holder(folder, name), options.budget_s));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io) throw;
      const bool is_named = env::lock_dir() == folder;
      log_line(is_named ? LogLevel::warning : LogLevel::info,
               fmt::format("{}device lock: {}", is_named ? "SEQTILE_LOCK_DIR: " : "", error.what()));
    }
  }
  log_line(LogLevel::warning, "no folder to put a lock into: another process may tune at the same time");
  return std::nullopt;
}

/// An artifact store without the binaries that the device does not load: a row may be sound and its code no kernel.
class LoadableArtifacts final : public ArtifactStore {
 public:
  LoadableArtifacts(Device& device, ArtifactStore& artifacts) : device_(device), artifacts_(artifacts) {}
  std::optional<KernelBinary> load(const ArtifactKey& key) override { return std::move(load_all({key}).front()); }
  bool store(const ArtifactKey& key, const KernelBinary& binary) override { return artifacts_.store(key, binary); }
  std::vector<std::optional<KernelBinary>> load_all(const std::vector<ArtifactKey>& keys) override {
    auto binaries = artifacts_.load_all(keys);
    for (auto& binary : binaries)
      if (binary && !is_loadable(*binary)) binary.reset();
    return binaries;
  }

 private:
  bool is_loadable(const KernelBinary& binary) {
    try {
      device_.load(binary);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  Device& device_;
  ArtifactStore& artifacts_;
};

TuneReport report_done(const std::vector<Item>& items) {
  TuneReport report;
  report.operations = static_cast<int64_t>(items.size());
  for (const Item& item : items) {
    report.buckets += static_cast<int64_t>(item.buckets.size());
    for (const BucketState& state : item.buckets) count_grade(grade_of(*state.record), report);
  }
  report.ranges = count_ranges(items);
  report.covered = report.complete = true;
  return report;
}

}  // namespace

TuneReport tune(const Registry& registry, const std::vector<TuneRequest>& requests, const std::string& device,
                cache::TuningStore& store, ArtifactStore& artifacts, const TuneOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const auto opened = open_device(device, 1);
  check_options(options, opened->target());
  const Target target = opened->target();
  const Evidence evidence = evidence_of(*opened);
  LoadableArtifacts loadable(*opened, artifacts);
  const auto read_items = [&] {
    auto items = make_items(registry, requests, opened->info(), options.policy);
    load_records(items, target, store, evidence);
    find_lacking(items, *opened, artifacts);
    return items;
  };
  auto items = read_items();
  const bool decided = is_decided(items, store);
  if (decided && has_all_binaries(items)) {
    TuneReport report = report_done(items);
    report.seconds = seconds();
    return report;
  }
  if (!decided && !store.is_writable())
    throw Error(ErrorCode::io,
                store.status().empty() ? "cannot tune into " + store.path() + ": it is read-only" : store.status());

  const auto lock = lock_device(opened->info(), evidence, options, store);
  repair_keys(items, store);
  items = read_items();  // another process may have done part of the work while this one waited
  TuneOptions remaining = options;
  if (options.budget_s > 0) remaining.budget_s = std::max(1e-3, options.budget_s - seconds());
  ProcessRunner runner(device, target, options.policy, loadable);
  TuneReport report = TuningSession(std::move(items), target, store, runner, remaining, evidence).run();
  report.seconds = seconds();
  return report;
}

std::vector<TunePlanRow> plan(const Registry& registry, const std::vector<TuneRequest>& requests,
                              const std::string& device, cache::TuningStore& store, const TuneOptions& options) {
  const auto opened = open_device(device, 1);
  check_options(options, opened->target());
  auto items = make_items(registry, requests, opened->info(), options.policy);
  const Evidence evidence = evidence_of(*opened);
  load_records(items, opened->target(), store, evidence);
  const bool predicted = evidence == Evidence::predicted;
  std::vector<TunePlanRow> rows;
  for (Item& item : items) {
    TunePlanRow row{item.label, item.op->name, static_cast<int64_t>(item.buckets.size())};
    for (const BucketState& state : item.buckets) {
      const auto count = item.op->config_space(item.workload, state.bucket.hi, opened->target()).enumerate().size();
      row.candidates = std::max(row.candidates, static_cast<int64_t>(count));
      row.recorded += state.record && state.is_resolved();
      if (!state.record && !predicted) row.estimated_s += kCoverageSeconds;
      if (!state.is_resolved() && !predicted) row.estimated_s += kTuneSeconds;
      if (item.num_ranks > 0 && !state.is_raced) row.estimated_s += kRanksSeconds;
    }
    if (predicted) row.estimated_s = TuningSession::estimate_modelling(item, opened->target());
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace seqtile::autotune

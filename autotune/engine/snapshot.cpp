// autotune/engine/snapshot.cpp -- see snapshot.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/snapshot.h"

#include <fmt/format.h>

#include "autotune/key_difference.h"
#include "cache/nearest_key.h"
#include "jit/base/log.h"
#include "seqtile/stores.h"

namespace seqtile::autotune {

std::string Snapshot::identity(const cache::TuningKey& key) {
  // The texts contain no control characters, so that no text contains the separator.
  std::string text;
  text.reserve(key.env_json.size() + key.workload_json.size() + 128);
  for (auto part : {&key.device_kind, &key.operation, &key.source_hash, &key.workload_json, &key.env_json}) {
    text += *part;
    text += '\n';
  }
  return text;
}

void Snapshot::add(const cache::KeyedRecord& keyed, const std::string& source, bool pinned) {
  std::vector<StoredRecord>& known = records_[identity(keyed.key)];
  known.push_back({keyed.record, source});
  if (pinned) known.back().record.origin = cache::Origin::pinned;
  if (sources_.empty() || sources_.back().path != source) sources_.push_back({source, {}});
  std::vector<cache::TuningKey>& keys = sources_.back().keys;  // a layer's records are in the order of their keys
  if (keys.empty() || !cache::is_same_key(keys.back(), keyed.key)) keys.push_back(keyed.key);
}

std::string Snapshot::nearest_key(const cache::TuningKey& key) const {
  if (sources_.empty()) return {};
  const auto differences = key_difference(sources_.front().keys, key);
  return fmt::format("the nearest key in {} differs: {}", sources_.front().path, fmt::join(differences, "; "));
}

std::vector<StoredRecord> Snapshot::find(const cache::TuningKey& key) const {
  const auto found = records_.find(identity(key));
  return found == records_.end() ? std::vector<StoredRecord>{} : found->second;
}

StoreLayers::StoreLayers(const EngineOptions& options) {
  const bool writes = options.policy == MissPolicy::tune || options.policy == MissPolicy::background;
  if (!options.pinned.empty()) add_layer(options.pinned, cache::OpenMode::read_only, true, true);
  add_layer(options.cache.empty() ? cache::default_tuning_path() : options.cache,
            writes ? cache::OpenMode::read_write : cache::OpenMode::read_only, false, !options.cache.empty());
  user_ = layers_.back().store.get();
  for (const std::string& path : options.system_caches) add_layer(path, cache::OpenMode::read_only, false, true);
  const bool is_named = !options.pinned.empty() || !options.cache.empty() || !options.system_caches.empty();
  expects_records_ = is_named && !writes;
  if (options.policy == MissPolicy::background && !takes_records())
    log_line(LogLevel::warning,
             fmt::format("policy background: {} cannot be written, nothing will be tuned; make it writable, or name "
                         "another file",
                         user_->path().empty() ? "the default cache, which has no path," : user_->path()));
}

bool StoreLayers::takes_records() const { return user_->is_writable() || user_->counters().busy > 0; }

void StoreLayers::add_layer(const std::string& path, cache::OpenMode mode, bool is_pinned, bool is_named) {
  layers_.push_back({cache::TuningStore::open(path, mode), is_pinned});
  // The store itself reports a file that cannot be used; it is silent about an absent or empty one.
  const cache::TuningStore& store = *layers_.back().store;
  const cache::Counters counters = store.counters();
  const std::string status = store.status();
  if (mode == cache::OpenMode::read_only && !status.empty() && counters.bad_files + counters.busy == 0)
    log_line(is_named ? LogLevel::warning : LogLevel::info, status);
}

Snapshot StoreLayers::read() {
  Snapshot snapshot;
  for (const Layer& layer : layers_) {
    for (const cache::KeyedRecord& keyed : layer.store->all_records()) {
      snapshot.add(keyed, layer.store->path(), layer.is_pinned);
    }
  }
  return snapshot;
}

void StoreLayers::log_without_records(const std::string& operation, const std::string& nearest) const {
  log_line(expects_records_ ? LogLevel::warning : LogLevel::info,
           fmt::format("{}: no record serves; {}", operation, nearest));
}

cache::Counters StoreLayers::counters() const {
  cache::Counters sum;
  for (const Layer& layer : layers_) {
    const cache::Counters one = layer.store->counters();
    sum.bad_rows += one.bad_rows, sum.bad_files += one.bad_files, sum.busy += one.busy;
    sum.write_failures += one.write_failures, sum.foreign_rows += one.foreign_rows;
  }
  return sum;
}

std::string StoreLayers::paths() const {
  std::string text;
  for (const Layer& layer : layers_) text += (text.empty() ? "" : ", ") + layer.store->path();
  return text;
}

}  // namespace seqtile::autotune

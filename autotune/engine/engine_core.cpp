// autotune/engine/engine_core.cpp -- see engine_core.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/engine_core.h"

namespace seqtile::autotune {

void CallCounters::add_to(EngineCounters& sum) const {
  for (const Stripe& stripe : stripes_) {
    sum.hits += stripe.hits.load(std::memory_order_relaxed);
    sum.launches += stripe.launches.load(std::memory_order_relaxed);
    sum.misses_no_record += stripe.no_record.load(std::memory_order_relaxed);
    sum.misses_above_top += stripe.above_top.load(std::memory_order_relaxed);
  }
}

EngineCore::EngineCore(const EngineOptions& engine_options, std::shared_ptr<const Registry> ops,
                       EngineParts engine_parts)
    : options(engine_options),
      registry(std::move(ops)),
      parts(std::move(engine_parts)),
      layers(options),
      artifacts(cache::ArtifactDb::open(options.artifacts.empty() ? cache::default_artifacts_path() : options.artifacts,
                                        cache::default_key_path())),
      loader(*parts.device, *artifacts, parts.compile) {
  read_stores();
}

EngineCounters EngineCore::counters() const {
  EngineCounters sum;
  calls.add_to(sum);
  sum.compiles = compiles.load(std::memory_order_relaxed);
  sum.compiles_at_load = compiles_at_load.load(std::memory_order_relaxed);
  sum.tunings = tunings.load(std::memory_order_relaxed);
  const cache::Counters stores = layers.counters();
  const cache::ArtifactCounters binaries = artifacts->counters();
  sum.bad_rows = bad_records.load(std::memory_order_relaxed) + stores.bad_rows + binaries.rejected;
  sum.bad_files = stores.bad_files + binaries.bad_files;
  sum.busy = stores.busy;
  return sum;
}

std::shared_ptr<const Snapshot> EngineCore::snapshot() const {
  std::lock_guard lock(mutex_);
  return snapshot_;
}

void EngineCore::read_stores() {
  auto fresh = std::make_shared<const Snapshot>(layers.read());
  std::lock_guard lock(mutex_);
  snapshot_ = std::move(fresh);
}

}  // namespace seqtile::autotune

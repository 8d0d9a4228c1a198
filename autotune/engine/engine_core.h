// autotune/engine/engine_core.h -- the state that all handles of an engine share: device, stores, kernels, counters.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "autotune/engine/engine_parts.h"
#include "autotune/engine/launch_plan.h"
#include "autotune/engine/snapshot.h"
#include "seqtile/stores.h"

namespace seqtile::autotune {

/// Counters that calls add to, spread over cache lines so that threads do not share one.
class CallCounters {
 public:
  struct alignas(64) Stripe {
    std::atomic<int64_t> hits{0}, launches{0}, no_record{0}, above_top{0};
  };
  Stripe& mine() { return stripes_[thread_number() % kStripes]; }
  void add_to(EngineCounters& sum) const;

 private:
  static constexpr unsigned kStripes = 32;
  std::array<Stripe, kStripes> stripes_;
};

inline void count(std::atomic<int64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

struct EngineCore {
  EngineCore(const EngineOptions& engine_options, std::shared_ptr<const Registry> ops, EngineParts engine_parts);
  EngineCounters counters() const;
  std::shared_ptr<const Snapshot> snapshot() const;
  /// Reads the stores and swaps the snapshot.
  void read_stores();

  const EngineOptions options;
  const std::shared_ptr<const Registry> registry;  ///< without ownership if it was passed to open() by reference
  const EngineParts parts;
  StoreLayers layers;
  std::unique_ptr<cache::ArtifactDb> artifacts;
  KernelLoader loader;

  CallCounters calls;
  std::atomic<int64_t> compiles{0}, compiles_at_load{0}, tunings{0}, bad_records{0};

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace seqtile::autotune

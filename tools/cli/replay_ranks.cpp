// tools/cli/replay_ranks.cpp -- see replay_ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/replay_ranks.h"

#include <chrono>
#include <mutex>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// Rank 0 has the clock and the display; the others run as many layers.
void run_layers(LayerRunner& runner, Fabric& fabric, std::span<const PlannedCall> calls, double seconds) {
  std::mt19937_64 random(1);  // every rank runs the same calls
  std::optional<Progress> progress;
  if (fabric.rank() == 0) progress.emplace("replay");
  const auto start = std::chrono::steady_clock::now();
  double gone = 0;
  while (!fabric.all_gather(gone < seconds ? "on" : "").front().empty()) {
    runner.run(calls[random() % calls.size()]);
    gone = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (progress)
      progress->update({fmt::format("{} decoder layers run and checked", runner.report().layers),
                        static_cast<int64_t>(1e3 * gone), static_cast<int64_t>(1e3 * seconds), 0, gone,
                        seconds - gone});
  }
}

/// Collective: the misses of all ranks.
int64_t sum_over_ranks(Fabric& fabric, int64_t mine) {
  int64_t sum = 0;
  for (const std::string& text : fabric.all_gather(std::to_string(mine))) sum += std::stoll(text);
  return sum;
}

void add(LookupReport& sum, const LookupReport& rank) {
  sum.lookups += rank.lookups, sum.misses += rank.misses, sum.buckets += rank.buckets;
  sum.miss_lines.insert(sum.miss_lines.end(), rank.miss_lines.begin(), rank.miss_lines.end());
}

void add(EngineCounters& sum, const EngineCounters& rank) {
  sum.tunings += rank.tunings, sum.compiles += rank.compiles, sum.compiles_at_load += rank.compiles_at_load;
}

}  // namespace

RankReplay replay_on_ranks(const Session& session, const Options& options, const World& world,
                           const RankModel::Settings& settings, std::span<const PlannedCall> calls, double seconds) {
  RankReplay all;
  std::mutex mutex;
  std::vector<LayerRunner*> runners(static_cast<size_t>(world.size));
  on_every_rank(world, one_thread_count(options), [&](Fabric& fabric) {
    RankModel model(session, options, fabric, settings);
    LookupReport lookups;
    {
      const std::lock_guard lock(mutex);  // one after the other, so that none is timed beside another
      lookups = look_up_all(model.operations(), calls);
      add(all.lookups, lookups);
      if (fabric.rank() == 0) all.lookups.lookup_ns = lookups.lookup_ns;
    }
    const bool is_served = sum_over_ranks(fabric, lookups.misses) == 0 || settings.policy != MissPolicy::strict;
    LayerRunner runner(session.registry, model.operations(), model.channel(), runners);
    if (is_served && seconds > 0) run_layers(runner, fabric, calls, seconds);
    const std::lock_guard lock(mutex);
    all.layers.add_rank(runner.report());
    add(all.counters, model.engine().counters());
  });
  return all;
}

}  // namespace seqtile::cli

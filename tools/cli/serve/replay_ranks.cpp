// tools/cli/serve/replay_ranks.cpp -- see replay_ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/serve/replay_ranks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/cli/model_requests.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// Runs layers on all ranks. Rank 0 has the clock and the display; the other ranks run as many layers.
void run_layers(LayerRunner& runner, Fabric& fabric, std::span<const CountedCall> calls, double seconds) {
  const CallSampler sampler(calls);
  std::mt19937_64 random(1);  // all ranks run the same calls
  std::optional<Progress> progress;
  if (fabric.rank() == 0) progress.emplace("replay");
  const auto start = std::chrono::steady_clock::now();
  double gone = 0;
  while (!fabric.all_gather(gone < seconds ? "on" : "").front().empty()) {
    runner.run(sampler.draw(random));
    gone = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (progress)
      progress->update({format_counted(runner.report().layers, "decoder layer") + " run and checked",
                        static_cast<int64_t>(1e3 * gone), static_cast<int64_t>(1e3 * seconds), 0, gone,
                        seconds - gone});
  }
}

/// The lookups of all ranks. Collective. The ranks look up one after the other, so that no rank is timed beside
/// another. The times are rank 0's.
LookupReport look_up_on_ranks(Fabric& fabric, std::span<const ServedOperation> operations,
                              std::span<const CountedCall> calls) {
  LookupReport mine;
  for (int rank = 0; rank < fabric.world_size(); ++rank) {
    if (rank == fabric.rank()) mine = look_up_all(operations, calls);
    fabric.all_gather("");
  }
  const Json own = {{"lookups", mine.lookups},  {"misses", mine.misses},     {"buckets", mine.buckets},
                    {"lines", mine.miss_lines}, {"p50", mine.lookup_ns.p50}, {"p99", mine.lookup_ns.p99}};
  LookupReport all;
  const std::vector<std::string> texts = fabric.all_gather(own.dump());
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const Json theirs = Json::parse(texts[rank]);
    all.lookups += theirs["lookups"].get<int64_t>();
    all.misses += theirs["misses"].get<int64_t>();
    all.buckets += theirs["buckets"].get<int64_t>();
    for (const Json& line : theirs["lines"])  // ranks have different shares and may have different misses
      all.miss_lines.push_back(fmt::format("rank {}: {}", rank, line.get<std::string>()));
    if (rank == 0) all.lookup_ns = {theirs["p50"], theirs["p99"]};
  }
  return all;
}

/// Adds up the layers of all ranks. Collective. The times stay this rank's.
LayerReport sum_over_ranks(Fabric& fabric, LayerReport mine) {
  const Json own = {{"executed", mine.executed},
                    {"verified", mine.verified},
                    {"worst", mine.max_rel_err},
                    {"failures", mine.failures}};
  mine.executed = mine.verified = 0;
  mine.failures.clear();
  for (const std::string& text : fabric.all_gather(own.dump())) {
    const Json theirs = Json::parse(text);
    mine.executed += theirs["executed"].get<int64_t>();
    mine.verified += theirs["verified"].get<int64_t>();
    const Json& worst = theirs["worst"];  // JSON has no infinity, so that an infinite error comes as null
    mine.max_rel_err = std::max(mine.max_rel_err, worst.is_null() ? HUGE_VAL : worst.get<double>());
    for (const Json& line : theirs["failures"]) mine.failures.push_back(line);
  }
  return mine;
}

}  // namespace

RankReplay replay_on_ranks(const Session& session, const Options& options, const World& world,
                           const RankModel::Settings& settings, std::span<const CountedCall> calls, double seconds) {
  RankReplay result;
  on_every_rank(world, one_thread_count(options), [&](Fabric& fabric) {
    // Ranks that compile missing binaries may be far apart in time.
    fabric.set_timeout(std::max<std::chrono::nanoseconds>(settings.timeout, std::chrono::seconds(30)));
    RankModel model(session, options, fabric, settings);
    fabric.set_timeout(std::max<std::chrono::nanoseconds>(settings.timeout, std::chrono::seconds(1)));
    RankReplay all{.lookups = look_up_on_ranks(fabric, model.operations(), calls)};
    const bool is_served = all.lookups.misses == 0 || settings.policy != MissPolicy::strict;
    LayerRunner runner(session.registry, model_of(options), model.operations(), model.channel());
    if (is_served && seconds > 0) run_layers(runner, fabric, calls, seconds);
    all.layers = sum_over_ranks(fabric, runner.report());
    all.counters = sum_over_ranks(fabric, model.engine().counters());
    if (speaks_for_process(world, fabric)) result = std::move(all);
  });
  return result;
}

}  // namespace seqtile::cli

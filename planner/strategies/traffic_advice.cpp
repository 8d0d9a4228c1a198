// planner/strategies/traffic_advice.cpp -- see traffic_advice.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/strategies/traffic_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace seqtile::planner {
namespace {

constexpr int kPasses = 4;  // of accumulation and local SGD

std::vector<PricedWay> nine_ways() {
  const auto with = [](auto GradientWay::*member, auto value) {
    GradientWay way;
    way.*member = value;
    return way;
  };
  GradientWay averaged = with(&GradientWay::passes, kPasses);
  averaged.accumulates = false;
  return {{1, {}, {}},
          {2, with(&GradientWay::overlaps, true), {}},
          {3, with(&GradientWay::compression, Compression::cast), {}},
          {3, with(&GradientWay::compression, Compression::blocks), {}},
          {4, with(&GradientWay::compression, Compression::top_k), {}},
          {4, with(&GradientWay::compression, Compression::low_rank), {}},
          {5, with(&GradientWay::passes, kPasses), {}},
          {6, averaged, {}},
          {7, with(&GradientWay::by_level, true), {}},
          {8, with(&GradientWay::is_sharded, true), {}},
          {9, with(&GradientWay::has_views, true), {}}};
}

/// All combinations that a library can choose, simpler ones first.
std::vector<GradientWay> combinations() {
  std::vector<GradientWay> ways;
  using enum Compression;
  for (const Compression compression : {none, cast, blocks, top_k, low_rank})
    for (int bits = 0; bits < 16; ++bits) {
      const GradientWay way{(bits & 8) != 0, (bits & 4) != 0, compression, (bits & 2) != 0, (bits & 1) != 0};
      if (compression != none && (way.is_sharded || way.has_views)) continue;
      if (compression == top_k && way.by_level) continue;
      ways.push_back(way);
    }
  return ways;
}

std::string duration(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

/// Says how much longer the best way would take without each of its parts, the greatest loss first.
std::string why(const TrafficAdvice& advice, const std::vector<PricedWay>& all) {
  const PricedWay& best = advice.best;
  std::vector<std::pair<double, std::string>> losses;
  for (const auto& [member, name] :
       {std::pair{&GradientWay::overlaps, "overlap"}, std::pair{&GradientWay::by_level, "levels"},
        std::pair{&GradientWay::has_views, "views"}, std::pair{&GradientWay::is_sharded, "sharding"}}) {
    GradientWay without = best.way;
    without.*member = false;
    if (without == best.way) continue;
    const double more = std::ranges::find(all, without, &PricedWay::way)->cost.seconds - best.cost.seconds;
    if (more > kSameTime * best.cost.seconds)
      losses.emplace_back(more, fmt::format("{} without {}", duration(more), name));
  }
  std::ranges::sort(losses, std::greater());
  std::string text = fmt::format("{}: {}, {} of it the backward pass", describe(best.way), duration(best.cost.seconds),
                                 duration(advice.backward_s));
  for (size_t i = 0; i < losses.size(); ++i) text += (i == 0 ? "; it would be longer by " : ", ") + losses[i].second;
  if (best.way.is_sharded) text += "; parts of the optimiser's state take less memory";
  const double saved = best.cost.seconds - advice.best_lossy.cost.seconds;
  return text + (saved > 0 ? fmt::format("; compression would save another {}, if training bears it", duration(saved))
                           : std::string("; compression takes longer than it saves"));
}

}  // namespace

TrafficAdvice advise(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration) {
  TrafficAdvice advice;
  for (const Gradient& gradient : gradients) {
    advice.gradient_bytes += gradient.bytes();
    advice.backward_s += gradient.backward_s;
  }
  advice.ways = nine_ways();
  for (PricedWay& way : advice.ways) way.cost = traffic_cost(gradients, mesh, calibration, way.way);
  std::vector<PricedWay> all;
  for (const GradientWay& way : combinations())
    all.push_back({0, way, traffic_cost(gradients, mesh, calibration, way)});
  advice.best.cost.seconds = advice.best_lossy.cost.seconds = std::numeric_limits<double>::infinity();
  for (const PricedWay& way : all) {
    PricedWay& best = way.way.is_exact() ? advice.best : advice.best_lossy;
    if (is_better(way.cost, best.cost)) best = way;
  }
  advice.why = why(advice, all);
  return advice;
}

}  // namespace seqtile::planner

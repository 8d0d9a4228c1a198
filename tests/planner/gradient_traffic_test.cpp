// tests/planner/gradient_traffic_test.cpp -- sums of gradients against formulas, and timelines worked by hand.
// SPDX-License-Identifier: Apache-2.0
#include "planner/strategies/gradient_traffic.h"

#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "planner/strategies/traffic_advice.h"
#include "tests/planner/graph_maker.h"

namespace seqtile::testing {

using namespace planner;
using planner::Graph;  // not a graph of launches

namespace {

/// Two slow links between groups of four devices on fast ones.
const Mesh kMesh{2, {2, 4}, {2e-5, 5e-6}, {8e-9, 1e-9}};

/// Memory at 1e12 bytes a second, and kernels that start at once.
Calibration machine(double slowdown = 1.5) {
  Calibration calibration;
  calibration.device = {1e12, 1e12, 0};
  calibration.state_bytes = 8;
  calibration.overlap_slowdown = slowdown;
  return calibration;
}

/// 4 MiB in f32, behind 1 ms of backward pass.
const std::vector<Gradient> kOne{{1024, 1024, 4, 1e-3}};
constexpr double kBytes = 4 << 20, kElements = 1 << 20;

TrafficCost cost_of(const GradientWay& way, const std::vector<Gradient>& gradients = kOne) {
  return traffic_cost(gradients, kMesh, machine(), way, 1e12);
}

/// The time of both lanes, by small steps.
double stepped(const std::vector<TimelineBucket>& buckets, double backward_s, double slowdown, double step) {
  double now = 0, done = 0, sent = 0;
  size_t bucket = 0;
  while (done < backward_s || bucket < buckets.size()) {
    const bool computes = done < backward_s, sends = bucket < buckets.size() && buckets[bucket].ready_s <= done + 1e-12;
    const double progress = computes && sends ? step / slowdown : step;
    if (computes) done = std::min(backward_s, done + progress);
    if (sends && (sent += progress) >= buckets[bucket].seconds) ++bucket, sent = 0;
    now += step;
  }
  return now;
}

}  // namespace

TEST_CASE("plan traffic: timelines worked by hand", "[plan]") {
  CHECK(overlapped_seconds({{2, 2}, {4, 3}}, 4, 1.5) == Approx(8));  // 2, 2 slowed to 3, 3
  CHECK(overlapped_seconds({}, 4, 1.5) == Approx(4));
  CHECK(overlapped_seconds({{1, 1}}, 4, 1) == Approx(4));                          // hidden
  CHECK(overlapped_seconds({{1, 1}}, 4, 1.5) == Approx(4.5));                      // hidden, but slows
  CHECK(overlapped_seconds({{1, 2}}, 4, 2) == Approx(4 + 2));                      // nothing gained
  CHECK(overlapped_seconds({{1, 10}}, 4, 1) == Approx(1 + 10));                    // the links are the longer lane
  CHECK(overlapped_seconds({{1, 5}, {2, 1}}, 4, 1.5) == Approx(1 + 4.5 + 2 + 1));  // bucket 2 waits for bucket 1
  CHECK(overlapped_seconds({{0, 1}, {3, 0.5}, {4, 1}}, 4, 1) == Approx(5));
}

TEST_CASE("plan traffic: timelines agree with small steps of time", "[plan]") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> part(0, 1);
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::vector<TimelineBucket> buckets(1 + repeat % 6);
    double ready = 0;
    for (TimelineBucket& bucket : buckets) bucket = {ready += part(random), part(random)};
    const double backward_s = ready + part(random), slowdown = 1 + part(random);
    INFO(repeat);
    CHECK(overlapped_seconds(buckets, backward_s, slowdown) ==
          Approx(stepped(buckets, backward_s, slowdown, 1e-4)).margin(4e-3));
  }
}

TEST_CASE("plan traffic: one ring, levels and parts send what their formulas say", "[plan]") {
  const TrafficCost ring = cost_of({.has_views = true});
  CHECK(ring.bytes == Approx(2 * 7.0 / 8 * kBytes));
  CHECK(ring.communication_s == Approx(14 * 2e-5 + 2 * 7.0 / 8 * kBytes * 8e-9));
  CHECK(ring.seconds == Approx(1e-3 + ring.communication_s));
  CHECK(ring.memory == Approx(kBytes + 8 * kElements));

  const TrafficCost levels = cost_of({.by_level = true, .has_views = true});
  CHECK(levels.bytes == Approx(ring.bytes));
  const double within = 3 * 5e-6 + 3.0 / 4 * kBytes * 1e-9, between = 2 * (1 * 2e-5 + 1.0 / 2 * (kBytes / 4) * 8e-9);
  CHECK(levels.communication_s == Approx(within + between + within));

  const TrafficCost parts = cost_of({.is_sharded = true, .has_views = true});
  CHECK(parts.bytes == Approx(ring.bytes));
  CHECK(parts.communication_s == Approx(ring.communication_s));
  CHECK(parts.memory == Approx(kBytes + kElements));  // an eighth of the state

  const TrafficCost copied = cost_of({});
  CHECK(copied.communication_s == Approx(ring.communication_s + 4 * kBytes / 1e12));
  CHECK(copied.memory == Approx(ring.memory + kBytes));
}

TEST_CASE("plan traffic: compressed gradients pay for their bytes and for making them", "[plan]") {
  const double ring_s = 14 * 2e-5, byte_s = 2 * 7.0 / 8 * 8e-9;
  const TrafficCost cast = cost_of({.compression = Compression::cast});
  CHECK(cast.bytes == Approx(7.0 / 8 * kBytes));
  CHECK(cast.communication_s == Approx(ring_s + kBytes / 2 * byte_s + 3 * kBytes / 1e12));

  const TrafficCost blocks = cost_of({.compression = Compression::blocks});
  const double int8 = kElements + kElements / 256 * 4;
  CHECK(blocks.bytes == Approx(2 * 7.0 / 8 * int8));
  CHECK(blocks.communication_s == Approx(ring_s + int8 * byte_s + 4 * (kBytes + int8) / 1e12));
  CHECK(blocks.memory == Approx(2 * kBytes + 2 * int8 + 8 * kElements));

  const TrafficCost top = cost_of({.compression = Compression::top_k});
  const double pairs = 10486 * 8;  // a pair has a value and an index; 1 % of 1048576 is 10485.76
  CHECK(top.bytes == Approx(7 * pairs));
  CHECK(top.communication_s == Approx(7 * 2e-5 + 7 * pairs * 8e-9 + (5 * kBytes + 9 * pairs) / 1e12));

  const TrafficCost low = cost_of({.compression = Compression::low_rank});
  const double factors = 4 * (1024 + 1024) * 4;
  CHECK(low.bytes == Approx(2 * 7.0 / 8 * factors));
  CHECK(low.communication_s == Approx(2 * ring_s + factors * byte_s + (8 * kBytes + 4 * factors) / 1e12));
  const TrafficCost vector = cost_of({.compression = Compression::low_rank}, {{1024, 1, 4, 0}});
  CHECK(vector.bytes == Approx(2 * 7.0 / 8 * 4096));  // factors would be larger

  Calibration slow_start = machine();
  slow_start.device.launch_s = 1;
  for (const auto& [compression, kernels] : {std::pair{Compression::none, 2},
                                             {Compression::cast, 2},
                                             {Compression::blocks, 3},
                                             {Compression::top_k, 3},
                                             {Compression::low_rank, 5}})
    CHECK(traffic_cost(kOne, kMesh, slow_start, {.compression = compression}, 1e12).communication_s ==
          Approx(kernels).margin(0.1));
}

TEST_CASE("plan traffic: what the framework exchanges less often is a part of the traffic", "[plan]") {
  const TrafficCost plain = cost_of({}), accumulated = cost_of({.passes = 4}),
                    averaged = cost_of({.passes = 4, .accumulates = false});
  CHECK(accumulated.bytes == Approx(plain.bytes / 4));
  CHECK(averaged.bytes == Approx(plain.bytes / 4));
  CHECK(averaged.seconds == Approx(1e-3 + plain.communication_s / 4));
  CHECK(accumulated.seconds == Approx(averaged.seconds + 3 * kBytes / 1e12));
  CHECK(accumulated.memory == Approx(plain.memory + kBytes));
}

TEST_CASE("plan traffic: buckets are closed when they are full, and sent behind their last gradient", "[plan]") {
  // 1 MB each, 1 ms apart; 1 ms a MB on a ring of two with no latency.
  const std::vector<Gradient> gradients(4, {250e3, 1, 4, 1e-3});
  const Mesh mesh{1, {2}, {0}, {1e-9}};
  const GradientWay way{.overlaps = true, .has_views = true};
  const TrafficCost pairs = traffic_cost(gradients, mesh, machine(1), way, 1.5e6);
  CHECK(pairs.buckets == 2);
  CHECK(pairs.seconds == Approx(2e-3 + 2e-3 + 2e-3));
  const TrafficCost singles = traffic_cost(gradients, mesh, machine(1), way, 1);
  CHECK(singles.buckets == 4);
  CHECK(singles.seconds == Approx(1e-3 + 4e-3));
  const TrafficCost uneven = traffic_cost(gradients, mesh, machine(1), way, 3e6);
  CHECK(uneven.buckets == 2);
  CHECK(uneven.seconds == Approx(3e-3 + 3e-3 + 1e-3));
  CHECK(traffic_cost(gradients, mesh, machine(1), {}, 1).communication_s == Approx(4e-3 + 4 * 4e6 / 1e12));
  // The parameters are gathered behind the step.
  const GradientWay parts{.is_sharded = true, .overlaps = true, .has_views = true};
  CHECK(traffic_cost(gradients, mesh, machine(1), parts, 1).seconds == Approx(4e-3 + 0.5e-3 + 2e-3));
}

TEST_CASE("plan traffic: sizes of buckets follow latency and bandwidth", "[plan]") {
  const std::vector<Gradient> gradients(64, {250e3, 1, 4, 1e-3});
  const GradientWay way{.overlaps = true, .has_views = true};
  const auto buckets = [&](double alpha, double beta) {
    const Mesh mesh{1, {4}, {alpha}, {beta}};
    const TrafficCost chosen = traffic_cost(gradients, mesh, machine(1.1), way);
    for (double size = 4 * alpha / beta; size < 64e6; size *= 2)
      CHECK(chosen.seconds <= traffic_cost(gradients, mesh, machine(1.1), way, std::max(size, 1.0)).seconds * 1.0001);
    return chosen.buckets;
  };
  CHECK(buckets(1, 1e-10) == 1);
  CHECK(buckets(1e-9, 1e-9) == 64);
  const int between = buckets(1e-3, 2e-9);
  CHECK(between > 1);
  CHECK(between < 64);
}

TEST_CASE("plan traffic: advice has the nine ways, and the best is none's worse", "[plan]") {
  const std::vector<Gradient> gradients(32, {1024, 1024, 4, 1e-3});
  const Mesh mesh{2, {2, 4}, {2e-5, 5e-6}, {8e-11, 1e-11}};
  const TrafficAdvice advice = advise(gradients, mesh, machine());
  std::vector<int> numbers;
  for (const PricedWay& way : advice.ways) {
    numbers.push_back(way.number);
    if (way.way.is_exact()) CHECK(advice.best.cost.seconds <= way.cost.seconds);
  }
  CHECK(numbers == std::vector<int>{1, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9});
  CHECK(advice.gradient_bytes == 32 * kBytes);
  CHECK(advice.backward_s == Approx(32e-3));
  CHECK(advice.best.way == GradientWay{.by_level = true, .overlaps = true, .has_views = true});
  CHECK_THAT(advice.why, Catch::Contains("all-reduce, by levels, overlapped, buckets as views: ") &&
                             Catch::Contains("without overlap") && Catch::Contains("without levels"));
}

TEST_CASE("plan traffic: of equally fast ways the one with less memory is best", "[plan]") {
  const std::vector<Gradient> gradients{{1024, 1024, 4, 1e-3}};  // one bucket, behind all of the backward pass
  const TrafficAdvice advice = advise(gradients, Mesh{1, {8}, {1e-6}, {1e-9}}, machine());
  CHECK(advice.best.way == GradientWay{.is_sharded = true, .has_views = true});
  CHECK_THAT(advice.why, Catch::Contains("less memory"));
}

TEST_CASE("plan traffic: compression pays on slow links, and not where it takes longer than it saves", "[plan]") {
  const auto advice = [](double beta) { return advise(kOne, Mesh{1, {8}, {1e-6}, {beta}}, machine()); };
  const TrafficAdvice slow = advice(1e-8), fast = advice(1e-13);
  CHECK(slow.best_lossy.cost.seconds < slow.best.cost.seconds);
  CHECK_THAT(slow.why, Catch::Contains("compression would save another"));
  CHECK(fast.best_lossy.cost.seconds > fast.best.cost.seconds);
  CHECK_THAT(fast.why, Catch::Contains("compression takes longer than it saves"));
}

TEST_CASE("plan traffic: no overlap where it slows by more than it hides", "[plan]") {
  const std::vector<Gradient> gradients(8, {1024, 1024, 4, 1e-2});
  CHECK(advise(gradients, kMesh, machine(1.2)).best.way.overlaps);
  CHECK_FALSE(advise(gradients, kMesh, machine(2.5)).best.way.overlaps);
}

TEST_CASE("plan traffic: gradients come from a graph in the backward pass's order", "[plan]") {
  GraphMaker maker(kMesh, "f32", 4);
  const int first = maker.linear("first", maker.placeholder("x", {16, 32}), 64);
  const Graph graph = maker.output(maker.linear("second", maker.norm("norm", first), 8));
  Calibration calibration = machine();
  calibration.device = {1e9, 1e30, 0};  // only the work of products counts
  const std::vector<Gradient> gradients = gradients_of(graph, calibration);
  REQUIRE(gradients.size() == 3);
  CHECK(gradients[0].bytes() == 8 * 64 * 4);
  CHECK(gradients[1].bytes() == 64 * 4);
  CHECK(gradients[2].rows == 64);
  CHECK(gradients[2].columns == 32);
  CHECK(gradients[0].backward_s == Approx(2 * 2.0 * 16 * 64 * 8 / 1e9));  // gradients of the input and of the weight
  CHECK(gradients[1].backward_s < gradients[0].backward_s / 10);
  CHECK(gradients[2].backward_s == Approx(2.0 * 16 * 64 * 32 / 1e9));  // data have no gradient

  GraphMaker without(kMesh, "f32", 4);
  CHECK_THROWS_WITH(gradients_of(without.output(without.placeholder("x", {4, 4})), calibration),
                    Catch::Contains("no parameters"));
}

TEST_CASE("plan traffic: what is wrong is said", "[plan]") {
  const auto refused = [](const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration,
                          const GradientWay& way, const char* text) {
    CHECK_THROWS_WITH(traffic_cost(gradients, mesh, calibration, way), Catch::Contains(text));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused({}, kMesh, machine(), {}, "no gradients");
  refused({{0, 1, 4, 0}}, kMesh, machine(), {}, "a gradient's rows 0 must be at least 1");
  refused({{1, nan, 4, 0}}, kMesh, machine(), {}, "a gradient's columns nan");
  refused({{1, 1, 0, 0}}, kMesh, machine(), {}, "bytes of a gradient's element 0");
  refused({{1, 1, 4, -1}}, kMesh, machine(), {}, "seconds of a backward pass -1");
  refused(kOne, {1, {1}, {0}, {0}}, machine(), {}, "one device sends no gradients");
  refused(kOne, {1, {2}, {-1}, {0}}, machine(), {}, "alpha -1 must be at least 0");
  refused(kOne, {1, {2}, {0}, {nan}}, machine(), {}, "beta nan");
  refused(kOne, {1, {4}, {1e300}, {1e308}}, machine(), {}, "are not finite");
  refused(kOne, kMesh, machine(0.5), {}, "overlap_slowdown 0.5 must be at least 1");
  refused(kOne, kMesh, machine(), {.passes = 0}, "passes 0");
  refused(kOne, kMesh, machine(), {.is_sharded = true, .compression = Compression::cast}, "use an all-reduce");
  refused(kOne, kMesh, machine(), {.compression = Compression::cast, .has_views = true}, "no views");
  refused(kOne, kMesh, machine(), {.by_level = true, .compression = Compression::top_k}, "all devices at once");
  CHECK_THROWS_WITH(traffic_cost(kOne, kMesh, machine(), {}, 0), Catch::Contains("bytes of a bucket 0"));
  CHECK(parse_calibration(R"({"overlap_slowdown": 1.3})", "m.json").overlap_slowdown == 1.3);
  CHECK_THROWS_WITH(parse_calibration(R"({"overlap_slowdown": 0.9})", "m.json"),
                    Catch::Contains("m.json.overlap_slowdown: 0.9 must be at least 1"));
}

}  // namespace seqtile::testing

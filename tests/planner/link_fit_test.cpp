// tests/planner/link_fit_test.cpp -- alpha and beta from times of all-gathers.
// SPDX-License-Identifier: Apache-2.0
#include "planner/prices/link_fit.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

namespace seqtile::testing {

using namespace planner;

namespace {

std::vector<GatherTime> times_of(int ranks, double alpha, double beta, double noise) {
  std::vector<GatherTime> times;
  for (double bytes = 4096; bytes <= 16 << 20; bytes *= 4) {
    const double sign = times.size() % 2 ? 1 : -1;
    times.push_back({bytes * ranks, (1 + sign * noise) * (ranks - 1) * (alpha + bytes * beta)});
  }
  return times;
}

double residual_of(int ranks, double alpha, double beta, const std::vector<GatherTime>& times) {
  double squares = 0;
  for (const GatherTime& time : times) {
    const double model = (ranks - 1) * (alpha + time.bytes / ranks * beta);
    squares += std::pow(model - time.seconds, 2) / (model * time.seconds);
  }
  return std::sqrt(squares / static_cast<double>(times.size()));
}

}  // namespace

TEST_CASE("plan link fit: times that follow the model give its numbers back", "[plan]") {
  for (const int ranks : {2, 3, 8}) {
    const LinkFit fit = fit_links(ranks, times_of(ranks, 5e-6, 2e-10, 0));
    CHECK(fit.alpha == Approx(5e-6));
    CHECK(fit.beta == Approx(2e-10));
    CHECK(fit.residual < 1e-7);
  }
}

TEST_CASE("plan link fit: no numbers near the fit are nearer to times with noise", "[plan]") {
  const auto times = times_of(4, 3e-6, 1e-10, 0.2);
  const LinkFit fit = fit_links(4, times);
  CHECK(fit.residual == Approx(residual_of(4, fit.alpha, fit.beta, times)));
  CHECK(fit.residual > 0.1);
  CHECK(fit.residual < 0.21);
  for (const double a : {0.9, 0.99, 1.0, 1.01, 1.1})
    for (const double b : {0.9, 0.99, 1.0, 1.01, 1.1})
      CHECK(residual_of(4, a * fit.alpha, b * fit.beta, times) >= fit.residual - 1e-9);
}

TEST_CASE("plan link fit: neither number is below nothing", "[plan]") {
  // Twice as many bytes take longer than twice as long: a start below 0 would fit best.
  const std::vector<GatherTime> bent = {{1000, 1e-6}, {2000, 3e-6}}, falling = {{1000, 3e-6}, {2000, 1e-6}};
  const LinkFit no_start = fit_links(2, bent), no_bytes = fit_links(2, falling);
  CHECK(no_start.alpha == 0);
  CHECK(no_start.beta > 0);
  CHECK(no_bytes.alpha > 0);
  CHECK(no_bytes.beta == 0);
  for (const double by : {0.99, 1.01}) {
    CHECK(residual_of(2, 0, by * no_start.beta, bent) > no_start.residual);
    CHECK(residual_of(2, by * no_bytes.alpha, 0, falling) > no_bytes.residual);
  }
}

TEST_CASE("plan link fit: twice as long and half as long count alike", "[plan]") {
  // One time is a quarter of the model's and one is four times as much: the fit goes halfway between them.
  const LinkFit fit = fit_links(2, std::vector<GatherTime>{{1e9, 0.25}, {1.000001e9, 4}});
  CHECK(fit.alpha + 0.5e9 * fit.beta == Approx(1).epsilon(0.01));
}

TEST_CASE("plan link fit: what cannot be fitted is refused", "[plan]") {
  const double infinite = std::numeric_limits<double>::infinity();
  const auto times = times_of(2, 1e-6, 1e-10, 0);
  CHECK_THROWS_WITH(fit_links(1, times), Catch::Contains("an axis of 1 rank sends nothing"));
  CHECK_THROWS_WITH(fit_links(2, {}), Catch::Contains("two sizes or more"));
  CHECK_THROWS_WITH(fit_links(2, std::vector<GatherTime>{{8, 1}, {8, 2}}), Catch::Contains("two sizes or more"));
  for (const GatherTime& bad : {GatherTime{8, 0}, GatherTime{0, 1}, GatherTime{8, infinite}, GatherTime{8, -1}})
    CHECK_THROWS_WITH(fit_links(2, std::vector<GatherTime>{{16, 1}, bad}), Catch::Contains("must be above 0"));
}

}  // namespace seqtile::testing

// tests/autotune/stats_test.cpp -- medians and bounds.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/stats.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

using namespace seqtile::autotune;

TEST_CASE("stats: quantiles interpolate", "[autotune][stats]") {
  CHECK(median(std::vector<double>{}) == 0);
  CHECK(median(std::vector<double>{3}) == 3);
  CHECK(median(std::vector<double>{4, 1, 3, 2}) == Approx(2.5));
  CHECK(quantile({0, 10}, 0.2) == Approx(2));
  CHECK(quantile({5, 1, 9}, 1) == 9);
}

TEST_CASE("stats: a bound needs enough values", "[autotune][stats]") {
  CHECK(std::isinf(median_upper_bound({1, 1, 1, 1, 1, 1}, 0.01)));
  CHECK(median_upper_bound({1, 2, 3, 4, 5, 6, 7}, 0.01) == 7);
  CHECK(median_upper_bound({1, 2, 3, 4, 5}, 0.05) == 5);
  std::vector<double> eleven(11);
  for (int i = 0; i < 11; ++i) eleven[i] = i;
  CHECK(median_upper_bound(eleven, 0.01) == 9);  // the second largest, at the level 12 / 2048
}

TEST_CASE("stats: the bound fails no more often than it says", "[autotune][stats]") {
  std::mt19937 random(7);
  std::lognormal_distribution<double> skewed(0, 0.5);  // the median is 1
  int below = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<double> values(10);
    for (double& v : values) v = skewed(random);
    below += median_upper_bound(values, 0.05) < 1;
  }
  CHECK(below < 0.05 * 20000 * 1.15);
  CHECK(below > 0);
}

TEST_CASE("stats: pairing cancels a drift that both share", "[autotune][stats]") {
  const std::vector<double> a{10, 20, 40, 80}, b{5, 10, 20, 40, 80};
  CHECK(paired_ratios(a, b) == std::vector<double>{2, 2, 2, 2});
}

TEST_CASE("stats: A against A shows the noise", "[autotune][stats]") {
  CHECK(self_noise(std::vector<double>{5, 5, 5, 5}) == 0);
  CHECK(self_noise(std::vector<double>{5, 6, 5, 6}) == Approx(1 - 5.0 / 6));
  CHECK(self_noise(std::vector<double>{5}) == 0);
}

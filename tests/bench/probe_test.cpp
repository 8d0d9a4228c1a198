// tests/bench/probe_test.cpp -- probes give plausible limits, and operands rotate beyond the caches.
// SPDX-License-Identifier: Apache-2.0
#include "bench/probe.h"

#include <catch2/catch.hpp>

#include "bench/machine.h"
#include "bench/operands.h"

namespace seqtile::bench {

TEST_CASE("probe: limits are plausible and never fall", "[bench]") {
  const double peak = probe_peak_gflops(DType::f32, 1);
  CHECK(peak > 0.5);
  CHECK(peak < 1000);  // 4 units of 512 bits at 6 GHz reach 768
  CHECK(probe_peak_gflops(DType::f32, 1) >= peak);
  CHECK(probe_peak_gflops(DType::bf16, 1) >= peak);
  const double read = probe_bandwidth_gbs(1, 0, 1);
  CHECK(read > 0.1);
  CHECK(read < 2000);
  CHECK(best_bandwidth_gbs(1, 0, 1) >= read);
  CHECK(probe_bandwidth_gbs(1, 1, 1) > 0.1);
  CHECK(best_bandwidth_gbs(0, 1, 1) == 0);  // this mix was not probed
}

TEST_CASE("operands: copies exceed what calls rotate through, which memory bounds", "[bench]") {
  CHECK(num_copies(1 << 20) * (int64_t{1} << 20) > rotation_bytes());
  CHECK(rotation_bytes() <= 4 * last_level_cache_bytes());
  CHECK(available_bytes() > 0);
  CHECK(num_copies(int64_t{1} << 40) == 2);
  CHECK(num_copies(0) > 2);
}

}  // namespace seqtile::bench

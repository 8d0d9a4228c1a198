// tests/autotune/plan/calibration_test.cpp -- files of links and devices, and what is made of them.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/plan/calibration.h"

#include <catch2/catch.hpp>

namespace seqtile::testing {

using namespace plan;

TEST_CASE("plan calibration: what is given is taken, the rest are defaults", "[plan]") {
  const Calibration calibration = parse_calibration(
      R"({"alpha": [1e-6, 2e-6], "beta": [1e-9, 0], "peak_flops": 1e12, "state_bytes": 12})", "machine.json");
  Mesh mesh{2, {2, 4}, {7, 7}, {7, 7}};
  apply(calibration, mesh);
  CHECK(mesh.alpha[1] == 2e-6);
  CHECK(mesh.beta[0] == 1e-9);
  CHECK(calibration.device.peak_flops == 1e12);
  CHECK(calibration.device.bandwidth == DeviceFacts{}.bandwidth);
  CHECK(calibration.state_bytes == 12);
  apply(Calibration(), mesh);
  CHECK(mesh.alpha[0] > 0);
  CHECK(mesh.alpha[0] == mesh.alpha[1]);
  CHECK(mesh.beta[0] < 1e-9);
}

TEST_CASE("plan calibration: each thing that is wrong is named with its place", "[plan]") {
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"{", "m.json: no JSON"},
           {"[]", "m.json: an object is wanted"},
           {R"({"latency": 1})", "unknown field \"latency\""},
           {R"({"alpha": 1})", "m.json.alpha: an array is wanted"},
           {R"({"alpha": []})", "m.json.alpha: 1..3 numbers"},
           {R"({"alpha": [1, 1, 1, 1]})", "m.json.alpha: 1..3 numbers"},
           {R"({"beta": [-1e-9]})", "m.json.beta[0]: -1e-09 must be at least 0"},
           {R"({"beta": ["fast"]})", "m.json.beta[0]: a number is wanted"},
           {R"({"peak_flops": 0})", "m.json.peak_flops: 0 must be more than 0"},
           {R"({"bandwidth": 1e999})", "m.json"}}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_calibration(text, "m.json"), Catch::Contains(why));
  }
  Mesh mesh{2, {2, 2}, {}, {}};
  CHECK_THROWS_WITH(apply(parse_calibration(R"({"alpha": [1e-6]})", "m.json"), mesh),
                    Catch::Contains("\"alpha\" of 1 mesh axes, the graph's mesh has 2"));
  CHECK_THROWS_WITH(read_calibration("/nonexistent/m.json"), Catch::Contains("cannot be opened"));
}

TEST_CASE("plan calibration: a roofline is a launch and the longer of computing and moving", "[plan]") {
  const KernelTimes times = roofline({1e12, 1e9, 1e-6});
  CHECK(times({"linear", "f32", {}, 5e9, 1e3}).seconds == Approx(1e-6 + 5e-3));
  CHECK(times({"linear", "f32", {}, 5e3, 1e6}).seconds == Approx(1e-6 + 1e-3));
  CHECK_FALSE(times({"linear", "f32", {}, 1, 1}).is_measured);
}

}  // namespace seqtile::testing

// tests/planner/calibration_test.cpp -- files of links and devices, and the meshes and prices from them.
// SPDX-License-Identifier: Apache-2.0
#include "planner/strategies/calibration.h"

#include <catch2/catch.hpp>

namespace seqtile::testing {

using namespace planner;

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

namespace {

/// A measured calibration of two axes with the given fields.
std::string measured(const std::string& ranks, const std::string& residual) {
  return R"({"alpha": [1, 1], "beta": [0, 0], "machine": {"model": "a"}, "fabric": "threads", "threads": 1,)"
         R"( "dtype": "f32", "ranks": )" +
         ranks + R"(, "residual": )" + residual + "}";
}

std::string with(std::string text, const std::string& old, const std::string& other) {
  return text.replace(text.find('"' + old + '"') + 1, old.size(), other);
}

}  // namespace

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
           {R"({"peak_flops": 0})", "m.json.peak_flops: 0 must be at least 1000: floating-point operations"},
           {R"({"bandwidth": 1e999})", "m.json: no JSON: line 1, column 15: 1e999 is too large"},
           {R"({"bandwidth": 1e300})", "m.json.bandwidth: 1e+300 must be at most 1e+18: bytes per second"},
           {R"({"bandwidth": NaN})", "m.json: no JSON: line 1, column 15: NaN is Python's"},
           {R"({"alpha": [1, 10.5]})", "m.json.alpha[1]: 10.5 must be at most 10: seconds of a message"},
           {R"({"beta": [5]})", "m.json.beta[0]: 5 must be at most 0.001: seconds of a byte"},
           {R"({"peak_flops": 1e21})", "m.json.peak_flops: 1e+21 must be at most 1e+20"},
           {R"({"launch_s": -1})", "m.json.launch_s: -1 must be at least 0: seconds of a kernel"},
           {R"({"launch_s": 11})", "m.json.launch_s: 11 must be at most 10"},
           {R"({"state_bytes": 1e9})", "m.json.state_bytes: 1000000000 must be at most 1024: bytes of a parameter"},
           {R"({"overlap_slowdown": 1e9})", "m.json.overlap_slowdown: 1000000000 must be at most 100"},
           {measured("[2, 2]", "[0, -1]"), "m.json.residual[1]: -1 must be at least 0"},
           {with(measured("[2, 2]", "[0, 0]"), "threads", "wires"),
            "m.json.fabric: \"wires\" is none of threads, processes"},
           {with(measured("[2, 2]", "[0, 0]"), "f32", "f64"), "m.json.dtype: \"f64\" is none of f32, bf16, f16"},
           {R"({"machine": "this one"})", "m.json.machine: an object of texts"},
           {R"({"machine": {}})", "m.json.machine: an object of texts"},
           {R"({"machine": {"cores": 2}})", "m.json.machine.cores: a string is wanted"},
           {R"({"machine": {"model": "a"}})", "m.json: \"fabric\" is missing"},
           {R"({"fabric": "threads"})", "\"fabric\" is there without \"machine\""},
           {R"({"machine": {"model": "a"}, "fabric": "threads", "ranks": [1]})", "m.json.ranks[0]: 1 is not in 2.."},
           {measured("[2]", "[0.1, 0.1]"), "m.json.ranks: 1 mesh axis, \"alpha\" has 2; give one number for each axis"},
           {measured("[2, 4]", "[]"), "m.json.residual: 0 mesh axes, \"alpha\" has 2"}}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_calibration(text, "m.json"), Catch::Contains(why));
  }
  Mesh mesh{2, {2, 2}, {}, {}};
  CHECK_THROWS_WITH(apply(parse_calibration(R"({"alpha": [1e-6]})", "m.json"), mesh),
                    Catch::Contains("\"alpha\" of 1 mesh axis, the graph's mesh has 2"));
  CHECK_THROWS_WITH(read_calibration("/nonexistent/m.json"),
                    "--calibration /nonexistent/m.json: there is no such file; give a file that `seqtile plan "
                    "calibrate -o FILE` writes (docs/plan_format.md)");
}

TEST_CASE("plan calibration: what was measured is written, and read as it was", "[plan]") {
  Calibration calibration;
  calibration.alpha = {5.25e-6, 1.0 / 3}, calibration.beta = {1e-10, 0};
  calibration.device = {1e11, 2e10, 3e-7};
  calibration.measured = {{{"model", "a \"b\""}, {"cores", "2"}}, "processes", {2, 4}, 3, "bf16", {0.125, 0.5}};
  const std::string text = calibration_json(calibration);
  CHECK(text.find("state_bytes") == std::string::npos);  // not measured
  const Calibration read = parse_calibration(text, "machine.json");
  CHECK(read.alpha == calibration.alpha);
  CHECK(read.beta == calibration.beta);
  CHECK(read.device.peak_flops == 1e11);
  CHECK(read.device.bandwidth == 2e10);
  CHECK(read.device.launch_s == 3e-7);
  REQUIRE(read.measured);
  CHECK(read.measured->machine == calibration.measured->machine);
  CHECK(read.measured->fabric == "processes");
  CHECK(read.measured->ranks == std::vector{2, 4});
  CHECK(read.measured->threads == 3);
  CHECK(read.measured->dtype == "bf16");
  CHECK(read.measured->residual == std::vector{0.125, 0.5});
  Mesh wide{2, {16, 8}, {}, {}};  // alpha is per message and beta per byte, so they hold for other numbers of ranks too
  apply(read, wide);
  CHECK(wide.alpha[0] == 5.25e-6);
  Mesh mesh{1, {2}, {}, {}};
  CHECK_THROWS_WITH(apply(read, mesh), Catch::Contains("\"alpha\" of 2 mesh axes"));
}

TEST_CASE("plan calibration: one of another machine is refused, with both and what to do", "[plan]") {
  const autotune::Fields here{{"device_kind", "cpu"}, {"model", "A"}, {"cores", "2"}, {"l3_kib", "32768"}};
  autotune::Fields there = here;
  there.set("cores", "64");
  Calibration calibration;
  check_machine(calibration, here, "hand.json");
  calibration.measured = {here, "threads", {2}, 1, "f32", {0.1}};
  check_machine(calibration, here, "m.json");
  CHECK_THROWS_WITH(check_machine(calibration, there, "m.json"),
                    "m.json: measured on cpu, cores 2, model A; the plan is for cpu, cores 64, model A; run `seqtile "
                    "plan calibrate` there; plan graph and plan model also take the machine of the file with --device");
  const autotune::Fields gpu{{"device_kind", "cuda"}, {"sm", "90"}, {"multiprocessors", "132"}};
  CHECK_THROWS_WITH(check_machine(calibration, gpu, "m.json"),
                    Catch::Contains("measured on cpu, model A; the plan is for cuda, sm 90;"));
}

TEST_CASE("plan calibration: a roofline is a launch and the longer of computing and moving", "[plan]") {
  const KernelTimes times = roofline({1e12, 1e9, 1e-6});
  CHECK(times({"linear", "f32", {}, 5e9, 1e3}).seconds == Approx(1e-6 + 5e-3));
  CHECK(times({"linear", "f32", {}, 5e3, 1e6}).seconds == Approx(1e-6 + 1e-3));
  CHECK_FALSE(times({"linear", "f32", {}, 1, 1}).is_measured);
}

}  // namespace seqtile::testing

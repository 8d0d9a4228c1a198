// tests/jit/device_profile_test.cpp -- GPUs that are not here: their facts, their keys, and their refusals.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/device.h"

#include <catch2/catch.hpp>
#include <map>

#include "jit/device/gpu_facts.h"
#include "seqtile/error.h"

using namespace seqtile;

namespace {

std::map<std::string, std::string> facts_of(const std::string& name) {
  const auto device = open_device(name, 1);
  const auto& facts = device->info().facts;
  return {facts.begin(), facts.end()};
}

}  // namespace

TEST_CASE("device profile: opens by name and by the target that stands for it", "[jit][profile]") {
  for (const auto& [name, target, gpu] :
       {std::tuple{"h200", "sm_90a", "NVIDIA H200"}, std::tuple{"h100_sxm", "sm_90a", "NVIDIA H100 80GB HBM3"},
        std::tuple{"a100", "sm_80", "NVIDIA A100-SXM4-80GB"}, std::tuple{"sm_90a", "sm_90a", "NVIDIA H200"},
        std::tuple{"sm_80", "sm_80", "NVIDIA A100-SXM4-80GB"}}) {
    const auto device = open_device(name, 1);
    CHECK(device->target().name == target);
    CHECK(device->target().is_gpu());
    CHECK(device->info().kind == "cuda");  // equals the kind of the GPU itself
    CHECK(device->info().name == gpu);
    REQUIRE(profile_of(*device) != nullptr);
    CHECK_FALSE(profile_of(*device)->sources.empty());
  }
  CHECK(profile_of(*open_device("cpu", 1)) == nullptr);
  CHECK(find_profile("h300") == nullptr);
}

TEST_CASE("device profile: the key's facts tell GPUs apart and hold what the driver reports", "[jit][profile]") {
  CHECK(facts_of("h200") == std::map<std::string, std::string>{{"clock_class_mhz", "2000"},
                                                               {"memory_class_gib", "144"},
                                                               {"mig", "none"},
                                                               {"multiprocessors", "132"},
                                                               {"sm", "90"},
                                                               {"target", "sm_90a"}});
  CHECK(facts_of("h200") != facts_of("h100_sxm"));
  CHECK(facts_of("h100_sxm").at("memory_class_gib") == "80");
  CHECK(facts_of("a100").at("sm") == "80");
  // A driver reports less memory than the data sheet, because it keeps some for itself; the class is the same.
  GpuFacts driver = find_profile("h200")->facts;
  driver.memory_bytes = 150110011392;
  driver.name = "NVIDIA H200 141GB";
  CHECK(key_facts(driver) == key_facts(find_profile("h200")->facts));
  driver.mig = "1g.18gb";
  CHECK(key_facts(driver) != key_facts(find_profile("h200")->facts));
}

TEST_CASE("device profile: peaks that a driver does not report follow from the generation", "[jit][profile]") {
  for (const DeviceProfile& profile : device_profiles()) {
    GpuFacts bare = profile.facts;
    bare.tensor_f16_tflops = bare.tensor_tf32_tflops = bare.f32_tflops = 0;
    estimate_peaks(bare);  // data sheets give peaks at a clock below the highest
    CHECK(bare.tensor_f16_tflops == Approx(profile.facts.tensor_f16_tflops).epsilon(0.1));
    CHECK(bare.tensor_tf32_tflops == Approx(profile.facts.tensor_tf32_tflops).epsilon(0.1));
    CHECK(bare.f32_tflops == Approx(profile.facts.f32_tflops).epsilon(0.1));
  }
}

TEST_CASE("device profile: GPUs before Ampere are refused", "[jit][profile]") {
  GpuFacts old = find_profile("a100")->facts;
  old.compute_capability = 75;
  old.name = "Tesla T4";
  try {
    gpu_target(old);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
    CHECK(std::string(error.what()).find("compute capability 7.5") != std::string::npos);
  }
}

TEST_CASE("device profile: loads a binary of its target, never launches", "[jit][profile]") {
  const auto device = open_device("h200", 1);
  const auto kernel = device->load({.symbol = "k", .target = "sm_90a", .stage = "ptx"});
  CHECK_THROWS_AS(device->load({.symbol = "k", .target = "sm_80", .stage = "ptx"}), Error);
  try {
    device->launch(*kernel, {1, 1, 1}, {});
    FAIL("launched");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
    const std::string text = error.what();
    CHECK(text.find("h200 is the profile of a GPU") != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
  }
}

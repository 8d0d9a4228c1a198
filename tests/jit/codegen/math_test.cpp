// tests/jit/codegen/math_test.cpp -- accuracy of the emitted functions in ulp, on all targets that run here.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/math.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "seqtile/device.h"
#include "tests/support/fakes/emulated_device.h"
#include "tests/support/ptx/llvm_kernel.h"

namespace seqtile {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* name;
  llvm::Value* (*emit)(llvm::IRBuilderBase&, llvm::Value*);
  double (*reference)(double);
  float lo, hi;  ///< the range of kernels, in which 2 ulp hold
};

const Function kExp2{"exp2", codegen::emit_exp2, std::exp2, -125.49999f, 127.99999f};
const Function kLog2{"log2", codegen::emit_log2, std::log2, 0x1p-149f, 3.4028234e38f};
const Function kTanh{"tanh", codegen::emit_tanh, std::tanh, -30, 30};
const Function kErf{"erf", codegen::emit_erf, std::erf, -10, 10};
const Function kSin{"sin", codegen::emit_sin, std::sin, -0x1p20f, 0x1p20f};
const Function kCos{"cos", codegen::emit_cos, std::cos, -0x1p20f, 0x1p20f};

testing::EmulatedDevice* aarch64_machine() {
  static const auto device = testing::make_emulated_device();
  return device.get();
}

/// The targets that this machine executes, and AArch64 if it can be emulated.
std::vector<Target> executable_targets() {
  std::vector<Target> targets;
  for (const std::string& name : cpu_target_names()) {
    const Target target = cpu_target(name);
    if (is_executable(target) || (name == "neon" && aarch64_machine())) targets.push_back(target);
  }
  return targets;
}

std::vector<float> evaluate(const Function& function, std::vector<float> x, const Target& target, int lanes) {
  const size_t count = x.size();
  while (x.size() % lanes != 0) x.push_back(0);
  std::vector<float> y(x.size());
  const auto run_on = [&](Device& device) {
    const auto kernel = device.load(testing::compile_map(function.emit, lanes, target));
    const uint64_t slots[] = {std::bit_cast<uint64_t>(x.data()), std::bit_cast<uint64_t>(y.data()), x.size()};
    device.launch(*kernel, {1, 1, 1}, slots);
  };
  if (is_executable(target)) {
    run_on(*make_cpu_device(1));
  } else {
    testing::EmulatedDevice& device = *aarch64_machine();
    device.register_memory(std::as_writable_bytes(std::span(x)));
    device.register_memory(std::as_writable_bytes(std::span(y)));
    run_on(device);
    device.forget_memory();
  }
  y.resize(count);
  return y;
}

/// Error in units of the last place of the f32 nearest to `expected`.
double ulp_error(float actual, double expected) {
  const int exponent = std::max(std::ilogb(expected), -126);
  return std::abs(actual - expected) / std::ldexp(1.0, exponent - 23);
}

/// Floats from lo to hi in steps of `step` representations, with the neighbourhood of zero and both ends.
std::vector<float> sample(float lo, float hi, uint32_t step) {
  std::vector<float> values{lo, hi};
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += step) {
    const float x = std::bit_cast<float>(bits);
    if (x >= lo && x <= hi) values.push_back(x);
    if (-x >= lo && -x <= hi) values.push_back(-x);
  }
  return values;
}

double worst_ulp(const Function& function, const Target& target, int lanes, uint32_t step) {
  const std::vector<float> x = sample(function.lo, function.hi, step);
  const std::vector<float> y = evaluate(function, x, target, lanes);
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = x[i] == 0 && y[i] == function.reference(0) ? 0 : ulp_error(y[i], function.reference(x[i]));
    if (!(error <= worst)) worst = error, at = x[i];
  }
  UNSCOPED_INFO(function.name << " on " << target.name << ": " << worst << " ulp at " << at);
  return worst;
}

void check_values(const Function& function, const std::vector<std::pair<float, float>>& expected) {
  std::vector<float> x;
  for (const auto& pair : expected) x.push_back(pair.first);
  for (const Target& target : executable_targets())
    for (const int lanes : {1, 4, 16}) {
      const std::vector<float> y = evaluate(function, x, target, lanes);
      for (size_t i = 0; i < y.size(); ++i) {
        INFO(function.name << "(" << x[i] << ") on " << target.name << ", " << lanes << " lanes: " << y[i]);
        const float want = expected[i].second;
        if (std::isnan(want)) {
          CHECK(std::isnan(y[i]));
        } else {
          CHECK(std::bit_cast<uint32_t>(y[i]) == std::bit_cast<uint32_t>(want));
        }
      }
    }
}

TEST_CASE("math: every function stays within 2 ulp on every target", "[jit][codegen][math]") {
  for (const Target& target : executable_targets())
    for (const Function& function : {kExp2, kLog2, kTanh, kErf, kSin, kCos}) {
      const uint32_t step = is_executable(target) ? 2003 : 50021;
      CHECK(worst_ulp(function, target, std::max(4, target.lanes_f32()), step) <= 2.0);
    }
}

TEST_CASE("math: scalars and vectors of any width give the same bits", "[jit][codegen][math]") {
  for (const Target& target : executable_targets())
    for (const Function& function : {kExp2, kLog2, kTanh, kErf, kSin, kCos}) {
      const std::vector<float> x = sample(function.lo, function.hi, 1000003);
      const std::vector<float> scalar = evaluate(function, x, target, 1);
      for (const int lanes : {2, 8, 16, 64}) {
        INFO(function.name << " on " << target.name << ", " << lanes << " lanes");
        CHECK(evaluate(function, x, target, lanes) == scalar);
      }
    }
}

TEST_CASE("math: exp2 is exact at integers and saturates", "[jit][codegen][math]") {
  check_values(kExp2, {{0.0f, 1.0f},
                       {-0.0f, 1.0f},
                       {1.0f, 2.0f},
                       {127.0f, 0x1p127f},
                       {-125.0f, 0x1p-125f},
                       {128.0f, kInf},
                       {1e30f, kInf},
                       {kInf, kInf},
                       {-kInf, 0.0f},
                       {-200.0f, 0.0f},
                       {-1e30f, 0.0f},
                       {0x1p-149f, 1.0f},
                       {kNan, kNan},
                       {-kNan, kNan}});
}

TEST_CASE("math: log2 is exact at powers of two, denormals included", "[jit][codegen][math]") {
  check_values(kLog2, {{1.0f, 0.0f},
                       {2.0f, 1.0f},
                       {0.25f, -2.0f},
                       {0x1p-126f, -126.0f},
                       {0x1p-149f, -149.0f},
                       {0x1p127f, 127.0f},
                       {0.0f, -kInf},
                       {-0.0f, -kInf},
                       {-1.0f, kNan},
                       {-kInf, kNan},
                       {kInf, kInf},
                       {kNan, kNan}});
}

TEST_CASE("math: odd functions keep the sign of zero and reach their limits", "[jit][codegen][math]") {
  check_values(kTanh, {{0.0f, 0.0f},
                       {-0.0f, -0.0f},
                       {0x1p-149f, 0x1p-149f},
                       {20.0f, 1.0f},
                       {-20.0f, -1.0f},
                       {kInf, 1.0f},
                       {-kInf, -1.0f},
                       {kNan, kNan}});
  check_values(
      kErf, {{0.0f, 0.0f}, {-0.0f, -0.0f}, {5.0f, 1.0f}, {-5.0f, -1.0f}, {kInf, 1.0f}, {-kInf, -1.0f}, {kNan, kNan}});
  check_values(kSin, {{0.0f, 0.0f}, {-0.0f, -0.0f}, {0x1p-149f, 0x1p-149f}, {kInf, kNan}, {-kInf, kNan}, {kNan, kNan}});
  check_values(kCos, {{0.0f, 1.0f}, {-0.0f, 1.0f}, {0x1p-149f, 1.0f}, {kInf, kNan}, {-kInf, kNan}, {kNan, kNan}});
}

}  // namespace
}  // namespace seqtile

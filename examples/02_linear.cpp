// examples/02_linear.cpp -- one of the library's operations at any length: y = silu(x w^T + bias).
// SPDX-License-Identifier: Apache-2.0
//
// The engine is opened on the user's tuning.db; without a record for a bucket the default configuration answers. Run
// `seqtile tune linear --set n=96 --set k=160 --lengths 1..512` before, and the tuned one does.
#include <cmath>
#include <cstdio>
#include <vector>

#include "seqtile/operations.h"

using namespace seqtile;

namespace {

constexpr int64_t kOutputs = 96, kInputs = 160;

std::vector<float> ramp(int64_t count, float scale) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = scale * static_cast<float>(i * 37 % 101 - 50);
  return values;
}

double silu(double x) { return x / (1 + std::exp(-x)); }

}  // namespace

int main() {
  const auto engine = open_engine();
  const auto linear = engine->prepare(
      kernels::Linear{.n = kOutputs, .k = kInputs, .bias = true, .activation = kernels::Activation::silu});

  auto w = ramp(kOutputs * kInputs, 0.002f), bias = ramp(kOutputs, 0.01f);
  for (const int64_t length : {1, 7, 64, 257, 512}) {
    auto x = ramp(length * kInputs, 0.02f);
    std::vector<float> y(length * kOutputs);
    linear({.x = tensor(x.data(), {length, kInputs}),
            .w = tensor(w.data(), {kOutputs, kInputs}),
            .bias = tensor(bias.data(), {kOutputs}),
            .y = tensor(y.data(), {length, kOutputs})});

    double worst = 0;
    for (int64_t i = 0; i < length * kOutputs; ++i) {
      double sum = bias[i % kOutputs];
      for (int64_t k = 0; k < kInputs; ++k) {
        sum += double(x[i / kOutputs * kInputs + k]) * w[i % kOutputs * kInputs + k];
      }
      worst = std::max(worst, std::abs(y[i] - silu(sum)));
    }
    const Explanation plan = linear.handle().explain(length);
    std::printf("length %4lld: bucket %lld..%lld, origin %s, %s, largest error %.1e\n", static_cast<long long>(length),
                static_cast<long long>(plan.bucket.lo), static_cast<long long>(plan.bucket.hi), plan.origin.c_str(),
                plan.config.json().c_str(), worst);
    if (!(worst < 1e-4)) return 1;
  }
  const EngineCounters counters = engine->counters();
  std::printf("%lld launches, %lld kernels compiled by prepare, %lld while serving\n",
              static_cast<long long>(counters.launches), static_cast<long long>(counters.compiles_at_load),
              static_cast<long long>(counters.compiles));
  return 0;
}

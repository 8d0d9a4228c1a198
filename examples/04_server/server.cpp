// examples/04_server/server.cpp -- a server's loop: threads take requests of any length, one engine serves them all.
// SPDX-License-Identifier: Apache-2.0
//
// Each request runs one feed-forward layer: norm, gate and up projection in one launch, down projection with the
// residual added. Usage: server [tuning.db [artifacts.db]]. Without records every call is a miss, which the default
// configurations serve; these make the records (a minute in all), so that calls are hits:
//   seqtile tune rms_norm --set n=128 --lengths 1..512 --cache tuning.db --budget 20s
//   seqtile tune linear --set n=320 --set k=128 --set activation=silu --set gated=1 --lengths 1..512 \
//       --cache tuning.db --budget 20s
//   seqtile tune linear --set n=128 --set k=320 --set residual=1 --lengths 1..512 --cache tuning.db --budget 20s
// artifacts.db is filled as needed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "seqtile/error.h"
#include "seqtile/operations.h"

using namespace seqtile;

namespace {

constexpr int64_t kHidden = 128, kIntermediate = 320, kMaxLength = 512;
constexpr int kServers = 4, kRequestsEach = 200;

std::vector<float> random_values(int64_t count, float scale, unsigned seed) {
  std::vector<float> values(count);
  fill_normal(tensor(values.data(), {count}), 0, scale, seed);
  return values;
}

struct Weights {
  std::vector<float> norm = std::vector<float>(kHidden, 1.0f);
  std::vector<float> gate = random_values(kIntermediate * kHidden, 0.09f, 1);
  std::vector<float> up = random_values(kIntermediate * kHidden, 0.09f, 2);
  std::vector<float> down = random_values(kHidden * kIntermediate, 0.06f, 3);
};

/// The layer's handles; prepared once, called by every thread.
class FeedForward {
 public:
  FeedForward(Engine& engine, Weights& weights)
      : norm_(engine.prepare(kernels::RmsNorm{.n = kHidden})),
        gate_up_(engine.prepare(
            kernels::Linear{.n = kIntermediate, .k = kHidden, .activation = kernels::Activation::silu, .gated = true})),
        down_(engine.prepare(kernels::Linear{.n = kHidden, .k = kIntermediate, .residual = true})),
        weights_(weights) {}

  /// x [length, kHidden] becomes x + layer(x). `buffers` belongs to the calling thread.
  void operator()(float* x, int64_t length, std::vector<float>& buffers) const {
    buffers.resize(kMaxLength * (kHidden + kIntermediate));
    float *normed = buffers.data(), *activated = normed + length * kHidden;
    const Tensor hidden = tensor(x, {length, kHidden});
    const Tensor norm_out = tensor(normed, {length, kHidden});
    const Tensor act_out = tensor(activated, {length, kIntermediate});
    norm_({.x = hidden, .weight = tensor(weights_.norm.data(), {kHidden}), .y = norm_out});
    gate_up_({.x = norm_out,
              .w = tensor(weights_.gate.data(), {kIntermediate, kHidden}),
              .w2 = tensor(weights_.up.data(), {kIntermediate, kHidden}),
              .y = act_out});
    down_({.x = act_out, .w = tensor(weights_.down.data(), {kHidden, kIntermediate}), .residual = hidden, .y = hidden});
  }

 private:
  TypedHandle<kernels::RmsNorm> norm_;
  TypedHandle<kernels::Linear> gate_up_, down_;
  Weights& weights_;
};

/// The last row of the layer's output, by plain loops.
std::vector<double> expected_row(const Weights& weights, const float* x) {
  double squares = 0;
  for (int64_t i = 0; i < kHidden; ++i) squares += double(x[i]) * x[i];
  const double scale = 1 / std::sqrt(squares / kHidden + 1e-5);
  std::vector<double> activated(kIntermediate), row(x, x + kHidden);
  for (int64_t j = 0; j < kIntermediate; ++j) {
    double gate = 0, up = 0;
    for (int64_t i = 0; i < kHidden; ++i) {
      gate += x[i] * scale * weights.gate[j * kHidden + i];
      up += x[i] * scale * weights.up[j * kHidden + i];
    }
    activated[j] = gate / (1 + std::exp(-gate)) * up;
  }
  for (int64_t i = 0; i < kHidden; ++i) {
    for (int64_t j = 0; j < kIntermediate; ++j) row[i] += activated[j] * weights.down[i * kIntermediate + j];
  }
  return row;
}

struct Served {
  std::vector<double> milliseconds;
  double worst_error = 0;
};

Served serve_requests(const FeedForward& layer, const Weights& weights, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> buffers;
  Served served;
  for (int i = 0; i < kRequestsEach; ++i) {
    const int64_t length = 1 + static_cast<int64_t>(random() % kMaxLength);
    std::vector<float> x = random_values(length * kHidden, 1, static_cast<unsigned>(random()));
    const auto expected = expected_row(weights, &x[(length - 1) * kHidden]);
    const auto start = std::chrono::steady_clock::now();
    layer(x.data(), length, buffers);
    served.milliseconds.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    for (int64_t c = 0; c < kHidden; ++c) {
      served.worst_error = std::max(served.worst_error, std::abs(x[(length - 1) * kHidden + c] - expected[c]));
    }
  }
  return served;
}

int run(int argc, char** argv) {
  EngineOptions options;
  if (argc > 1) options.cache = argv[1];
  if (argc > 2) options.artifacts = argv[2];
  options.max_length = kMaxLength;
  const auto engine = open_engine(options);
  Weights weights;
  const FeedForward layer(*engine, weights);

  std::vector<Served> results(kServers);
  std::vector<std::thread> threads;
  for (int t = 0; t < kServers; ++t) {
    threads.emplace_back([&, t] { results[t] = serve_requests(layer, weights, static_cast<unsigned>(t) + 1); });
  }
  for (auto& thread : threads) thread.join();

  std::vector<double> times;
  double worst = 0;
  for (const Served& served : results) {
    times.insert(times.end(), served.milliseconds.begin(), served.milliseconds.end());
    worst = std::max(worst, served.worst_error);
  }
  std::sort(times.begin(), times.end());
  const EngineCounters counters = engine->counters();
  std::printf("%zu requests, p50 %.3f ms, p99 %.3f ms, largest error %.1e\n", times.size(), times[times.size() / 2],
              times[times.size() * 99 / 100], worst);
  std::printf("%lld launches, %lld hits, %lld misses, %lld compiled while opening, %lld while serving\n",
              static_cast<long long>(counters.launches), static_cast<long long>(counters.hits),
              static_cast<long long>(counters.misses_no_record + counters.misses_above_top),
              static_cast<long long>(counters.compiles_at_load), static_cast<long long>(counters.compiles));
  return worst < 1e-3 && counters.compiles == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "server: %s\n", error.what());
    return 1;
  }
}

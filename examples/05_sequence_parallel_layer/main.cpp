// examples/05_sequence_parallel_layer/main.cpp -- a decoder layer over P ranks, compared with the whole one.
// SPDX-License-Identifier: Apache-2.0
//
// Usage: example_05_sequence_parallel_layer [RANKS]. For each length: the largest difference of y, dx and every
// weight's gradient, relative to the tensor's largest value; launches of a rank, forward and backward; and by how much
// the whole layer's gradients differ from what small steps along them do to the loss sum(y dy).
#include <cstdio>
#include <cstring>
#include <future>

#include "layer.h"
#include "seqtile/operations.h"
#include "sharded_layer.h"
#include "whole_layer.h"

using namespace example;

namespace {

constexpr double kTolerance = 1e-4, kSlopeTolerance = 1e-2;

/// What a layer is given, and what comes out; `d` and `dw` are gradients.
struct Run {
  Run(const Share& share, int64_t length) : a(share, length), d(share, length), dw(share) {}
  Activations a, d;
  Weights dw;
  std::array<Matrix*, 9> results() {
    return {&a.y, &d.x, &dw.norms, &dw.q, &dw.k, &dw.v, &dw.o, &dw.gate_up, &dw.down};
  }
};

/// Of one length: differences of the results, launches forward, launches backward.
using Findings = std::array<double, 11>;

// --- a rank's share

/// Rows of `to` from `to_row` on = those of `from` from (row, column) on.
void copy_rows(Matrix& from, int64_t row, int64_t column, Matrix& to, int64_t to_row, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from.at(row + i, column), to.columns, to.at(to_row + i, 0));
}

Weights cut_weights(Weights& whole, const Share& s) {
  Weights w(s);
  const int64_t kv = s.first(kKvHeads) * kHeadDim, q = kv * (kHeads / kKvHeads), wide = s.first(kIntermediate);
  w.norms = whole.norms;
  copy_rows(whole.q, q, 0, w.q, 0, w.q.rows);
  copy_rows(whole.k, kv, 0, w.k, 0, w.k.rows);
  copy_rows(whole.v, kv, 0, w.v, 0, w.v.rows);
  copy_rows(whole.o, 0, q, w.o, 0, w.o.rows);
  copy_rows(whole.gate_up, wide, 0, w.gate_up, 0, w.down.columns);
  copy_rows(whole.gate_up, kIntermediate + wide, 0, w.gate_up, w.down.columns, w.down.columns);
  copy_rows(whole.down, 0, wide, w.down, 0, w.down.rows);
  return w;
}

Run cut_run(Run& whole, const Share& s) {
  const int64_t length = whole.a.x.rows, first = s.first(length);
  Run run(s, length);
  copy_rows(whole.a.x, first, 0, run.a.x, 0, run.a.x.rows);
  copy_rows(whole.a.y, first, 0, run.a.y, 0, run.a.y.rows);
  copy_rows(whole.d.x, first, 0, run.d.x, 0, run.d.x.rows);
  copy_rows(whole.d.y, first, 0, run.d.y, 0, run.d.y.rows);
  run.dw = cut_weights(whole.dw, s);
  return run;
}

// --- comparing

/// Values are of order 1; below, rounding is all there is: of one row alone the gradients of q and k are 0.
double relative_difference(Matrix& got, Matrix& wanted) {
  double difference = 0, largest = 1;
  for (int64_t i = 0; i < wanted.rows * wanted.columns; ++i) {
    const double apart = std::abs(double(*got.at(0, i)) - *wanted.at(0, i));
    difference = std::isnan(apart) ? INFINITY : std::max(difference, apart);
    largest = std::max(largest, std::abs(double(*wanted.at(0, i))));
  }
  return difference / largest;
}

double dot(Matrix& a, Matrix& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.rows * a.columns; ++i) sum += double(*a.at(0, i)) * *b.at(0, i);
  return sum;
}

/// Is the whole layer's gradient of `value` right? A step t along a gradient g changes the loss by t g.g.
double slope_error(const WholeLayer& layer, Weights& weights, Run& run, Matrix& value, Matrix& gradient) {
  const Matrix before = value;
  const double wanted = dot(gradient, gradient), step = 1e-3 * std::sqrt(dot(value, value) / std::max(wanted, 1.0));
  double rise = 0;
  for (const double t : {-step, step}) {
    for (size_t i = 0; i < before.values.size(); ++i)
      value.values[i] = static_cast<float>(before.values[i] + t * gradient.values[i]);
    Activations a = run.a;
    layer.forward(weights, a);
    rise += dot(a.y, run.d.y) * (t < 0 ? -1 : 1);
  }
  value = before;
  const double error = std::abs(rise / (2 * step) - wanted) / std::max(wanted, 1.0);
  return std::isnan(error) ? INFINITY : error;
}

// --- running

void fill(Matrix& matrix, float mean, float deviation, unsigned seed) {
  fill_normal(tensor(matrix.values.data(), {std::ssize(matrix.values)}), mean, deviation, seed);
}

EngineOptions engine_options() { return {.threads = 1, .max_length = kMaxLength}; }

Run run_whole(const WholeLayer& layer, Weights& weights, int64_t length) {
  Run run(Share{}, length);
  fill(run.a.x, 0, 1, static_cast<unsigned>(length));
  fill(run.d.y, 0, 1, static_cast<unsigned>(length) + kMaxLength);
  layer.forward(weights, run.a);
  layer.backward(weights, run.a, run.d, run.dw);
  return run;
}

Findings run_share(ShardedLayer& layer, const Engine& engine, Weights& weights, Run wanted, const Share& s,
                   int64_t length) {
  Run run(s, length);
  run.a.x = wanted.a.x;
  run.d.y = wanted.d.y;
  const int64_t start = engine.counters().launches;
  layer.forward(weights, run.a, length);
  const int64_t turn = engine.counters().launches;
  layer.backward(weights, run.a, run.d, run.dw, length);
  Findings found;
  for (size_t i = 0; i < run.results().size(); ++i)
    found[i] = relative_difference(*run.results()[i], *wanted.results()[i]);
  found[9] = static_cast<double>(turn - start);
  found[10] = static_cast<double>(engine.counters().launches - turn);
  return found;
}

/// The worst of all ranks for each run. Ranks are threads, as they wait for each other.
std::vector<Findings> run_ranks(int ranks, Weights& weights, std::vector<Run>& whole) {
  const auto work = [&](std::unique_ptr<Fabric> fabric) {
    const Share s{fabric->rank(), ranks};
    Weights own = cut_weights(weights, s);
    const auto engine = open_engine(engine_options(), *fabric);
    ShardedLayer layer(*engine, *fabric);
    std::vector<Findings> found;
    for (Run& run : whole) found.push_back(run_share(layer, *engine, own, cut_run(run, s), s, run.a.x.rows));
    return found;
  };
  std::vector<std::future<std::vector<Findings>>> threads;
  for (auto& fabric : make_thread_fabric(ranks))
    threads.push_back(std::async(std::launch::async, work, std::move(fabric)));
  std::vector<Findings> worst(whole.size());
  for (auto& thread : threads) {
    const std::vector<Findings> found = thread.get();
    for (size_t i = 0; i < found.size(); ++i)
      for (size_t j = 0; j < found[i].size(); ++j) worst[i][j] = std::max(worst[i][j], found[i][j]);
  }
  return worst;
}

bool report(int64_t length, const Findings& found, double slope) {
  std::printf("%6d ", static_cast<int>(length));
  for (size_t i = 0; i < 9; ++i) std::printf("%8.1e", found[i]);
  std::printf("%9.0f%9.0f %8.1e\n", found[9], found[10], slope);
  return *std::max_element(found.begin(), found.begin() + 9) <= kTolerance && slope <= kSlopeTolerance;
}

bool run(int ranks) {
  const auto engine = open_engine(engine_options());
  const WholeLayer layer(*engine);
  Weights weights{Share{}};
  for (unsigned i = 0; i < weights.all().size(); ++i) fill(*weights.all()[i], i == 0 ? 1 : 0, 0.1f, i);
  std::vector<Run> whole;
  for (const int64_t length : {int64_t{1}, int64_t{7}, int64_t{64}, kMaxLength})
    whole.push_back(run_whole(layer, weights, length));
  const std::vector<Findings> found = run_ranks(ranks, weights, whole);

  std::printf("%d rank(s): differences from the whole layer; launches of a rank; error of the slopes\n", ranks);
  std::printf(
      "length        y      dx   norms       q       k       v       o gate_up    down  forward backward   slope\n");
  bool is_good = true;
  for (size_t i = 0; i < whole.size(); ++i) {
    double slope = slope_error(layer, weights, whole[i], whole[i].a.x, whole[i].d.x);
    for (size_t j = 0; j < weights.all().size(); ++j)
      slope = std::max(slope, slope_error(layer, weights, whole[i], *weights.all()[j], *whole[i].dw.all()[j]));
    is_good &= report(whole[i].a.x.rows, found[i], slope);
  }
  return is_good;
}

}  // namespace

int main(int argc, char** argv) {
  const char* ranks = argc > 1 ? argv[1] : "2";
  if (argc > 2 || std::strlen(ranks) != 1 || *ranks < '1' || *ranks > '0' + kKvHeads) {
    std::fprintf(stderr, "example_05_sequence_parallel_layer: takes RANKS, 1 to %d: each has a KV head at least\n",
                 static_cast<int>(kKvHeads));
    return 2;
  }
  try {
    return run(*ranks - '0') ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "example_05_sequence_parallel_layer: %s\n", error.what());
    return 1;
  }
}

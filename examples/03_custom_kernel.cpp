// examples/03_custom_kernel.cpp -- an operation of one's own: defined, tuned per bucket, served without a miss.
// SPDX-License-Identifier: Apache-2.0
//
// "shifted_relu": y [length, n] = max(x - shift, 0). The struct says what the library needs to know: fields, tensors,
// the kernel of one program, and a plain reference that every candidate is verified against. Candidates run in worker
// processes, which are this program again: run_worker() comes first in main().
#include <algorithm>
#include <cstdio>
#include <vector>

#include "seqtile/engine.h"
#include "seqtile/kernel.h"
#include "seqtile/stores.h"
#include "seqtile/tuner.h"

using namespace seqtile;
using namespace seqtile::kernels;
using autotune::Workload;

namespace {

struct ShiftedRelu {
  static constexpr std::string_view kName = "shifted_relu";
  int64_t n = 0;
  DType dtype = DType::f32;

  template <class T>
  struct Tensors {
    T x, shift, y;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v) { v.integer("n", n, 1, kMaxFeatures); }
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, n});
    v.weight("shift", t.shift, {n});
    v.output("y", t.y, {kLength, n});
  }
  Workload workload() const { return workload_of(*this); }

  int64_t tile_columns() const { return n; }  // f32 values that a program holds for each row
  double flops_a_row() const { return 2 * static_cast<double>(n); }

  /// One program takes `rows` whole rows.
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const {
    Var row = b.program_id(0) * rows;
    Var x = to_f32(b, b.load(v.x, {row, 0}, {rows, n}));
    Var shift = down(b, to_f32(b, b.load(v.shift, {0}, {n})), rows, n);
    b.store(v.y, {row, 0}, to_storage(b, b.max(x - shift, 0.0), dtype));
  }

  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const {
    const std::vector<double> x = read_row(t.x, row), shift = read_row(t.shift, 0);
    for (int64_t i = 0; i < n; ++i) out.y.push_back(std::max(x[i] - shift[i], 0.0));
  }
};

void tune(const autotune::Registry& registry, const Workload& workload, const std::string& cache) {
  const auto store = cache::TuningStore::open(cache, cache::OpenMode::read_write);
  const auto artifacts = cache::ArtifactDb::open(cache::default_artifacts_path(), cache::default_key_path());
  autotune::TuneOptions options;
  options.budget_s = 20;
  options.acknowledged = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
  const auto report = autotune::tune(registry, {{"my relu", workload, 1, 64}}, "cpu", *store, *artifacts, options);
  std::printf("%lld buckets, %lld ranges, %lld tunings, %lld merges, %lld trials in %.1f s\n",
              static_cast<long long>(report.buckets), static_cast<long long>(report.ranges),
              static_cast<long long>(report.tunings), static_cast<long long>(report.merges),
              static_cast<long long>(report.trials), report.seconds);
}

}  // namespace

int main(int argc, char** argv) {
  autotune::Registry registry;
  registry.add(row_kernel<ShiftedRelu>("max(x - shift, 0)"));
  int exit_code = 0;
  if (autotune::run_worker(argc, argv, registry, exit_code)) return exit_code;

  constexpr int64_t kN = 256;
  constexpr int kThreads = 2;
  const ShiftedRelu op{.n = kN};
  EngineOptions options;
  options.cache = argc > 1 ? argv[1] : "03_custom_kernel.db";
  options.threads = kThreads;
  options.policy = MissPolicy::strict;
  options.max_length = 64;
  Workload workload = op.workload();
  workload.threads = kThreads;
  tune(registry, workload, options.cache);

  const auto engine = Engine::open(options, registry);
  const auto relu = engine->prepare(op);
  std::vector<float> x(64 * kN), shift(kN, 1.5f), y(64 * kN);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.25f * static_cast<float>(i % 17);
  int64_t wrong = 0;
  for (int64_t length = 1; length <= 64; ++length) {
    relu({.x = tensor(x.data(), {length, kN}),
          .shift = tensor(shift.data(), {kN}),
          .y = tensor(y.data(), {length, kN})});
    for (int64_t i = 0; i < length * kN; ++i) wrong += y[i] != std::max(x[i] - 1.5f, 0.0f);
  }
  for (const auto& [range, config] : relu.handle().ranges()) {
    std::printf("lengths %lld..%lld: %s\n", static_cast<long long>(range.lo), static_cast<long long>(range.hi),
                config.json().c_str());
  }
  const EngineCounters counters = engine->counters();
  std::printf("%lld launches, %lld wrong values, %lld tunings and %lld compiles while serving\n",
              static_cast<long long>(counters.launches), static_cast<long long>(wrong),
              static_cast<long long>(counters.tunings), static_cast<long long>(counters.compiles));
  return wrong || counters.tunings || counters.compiles ? 1 : 0;
}

// examples/03_custom_kernel.cpp -- an operation of one's own: defined, tuned per bucket, served without a miss.
// SPDX-License-Identifier: Apache-2.0
//
// "shifted_relu": y [length, n] = max(x - shift, 0). The definition says what the library needs to know: arguments,
// configurations, kernel, grid, cost and a plain reference that every candidate is verified against. Candidates run in
// worker processes, which are this program again: run_worker() comes first in main().
#include <algorithm>
#include <cstdio>
#include <vector>

#include "autotune/engine.h"
#include "autotune/runner.h"
#include "autotune/tuner.h"
#include "cache/artifact_db.h"
#include "cache/tuning_store.h"
#include "jit/base/error.h"
#include "jit/ir/builder.h"

using namespace seqtile;
using autotune::Config;
using autotune::Workload;

namespace {

autotune::Schema schema(const Workload& workload) {
  const int64_t n = workload.fields.get_int("n");
  autotune::Schema schema;
  schema.args = {{"x", autotune::ArgRole::input, workload.dtype, {"length", n}},
                 {"shift", autotune::ArgRole::weight, workload.dtype, {n}},
                 {"y", autotune::ArgRole::output, workload.dtype, {"length", n}}};
  return schema;
}

/// One program takes `rows` whole rows.
void build(KernelBuilder& b, const Workload& workload, const Config& config, const Target&) {
  const int64_t n = workload.fields.get_int("n"), rows = config.get_int("rows");
  Var x = b.view("x", workload.dtype, {kDynamic, n});
  Var shift = b.view("shift", workload.dtype, {n});
  Var y = b.view("y", workload.dtype, {kDynamic, n});
  Var row = b.program_id(0) * rows;
  Var shifts = b.broadcast(b.expand(b.load(shift, {0}, {n}), 0), {rows, n});
  b.store(y, {row, 0}, b.max(b.load(x, {row, 0}, {rows, n}) - shifts, 0.0));
}

void reference(const autotune::Problem& problem, std::span<const int64_t> rows,
               std::vector<std::vector<double>>& outputs) {
  const auto* x = static_cast<const float*>(problem.tensors[0].data);
  const auto* shift = static_cast<const float*>(problem.tensors[1].data);
  const int64_t n = problem.tensors[1].sizes[0], stride = problem.tensors[0].strides[0];
  outputs.assign(1, {});
  for (const int64_t row : rows) {
    for (int64_t i = 0; i < n; ++i) outputs[0].push_back(std::max(double(x[row * stride + i]) - shift[i], 0.0));
  }
}

Workload normalize(const Workload& given) {
  if (given.dtype != DType::f32) throw Error(ErrorCode::unsupported, "shifted_relu: dtype f32 only");
  if (given.fields.get_int("n") < 1) throw Error(ErrorCode::invalid_argument, "shifted_relu: n must be at least 1");
  return given;
}

autotune::OpDef shifted_relu() {
  autotune::OpDef op;
  op.name = "shifted_relu";
  op.summary = "max(x - shift, 0)";
  op.normalize = normalize;
  op.schema = schema;
  op.config_space = [](const Workload&, int64_t, const Target&) {
    autotune::ConfigSpace space;
    space.parameter("rows", {int64_t{1}, int64_t{4}, int64_t{16}, int64_t{64}});
    return space;
  };
  op.default_config = [](const Workload&, int64_t, const Target&) { return Config{{"rows", int64_t{4}}}; };
  op.build = build;
  op.grid = [](const Workload&, const Config& config) {
    const autotune::SizeExpr blocks{1, {{.symbol = 0, .divisor = config.get_int("rows")}}};
    return std::array<autotune::SizeExpr, 3>{blocks, autotune::SizeExpr{}, autotune::SizeExpr{}};
  };
  op.cost = [](const Workload& workload, std::span<const int64_t> symbols) {
    const double elements = static_cast<double>(symbols[0] * workload.fields.get_int("n"));
    return autotune::Cost{2 * elements, 4 * elements, 4 * elements};
  };
  op.predict_us = [](const Workload&, const Config& config, int64_t length, const Target&) {
    const int64_t rows = config.get_int("rows");
    return 0.1 * static_cast<double>((length + rows - 1) / rows) + 0.05 * static_cast<double>(length);
  };
  op.reference = reference;
  op.tolerance = [](const Workload&, std::span<const int64_t>) { return autotune::OpDef::Tolerance{1e-6, 1e-6}; };
  return op;
}

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
  registry.add(shifted_relu());
  int exit_code = 0;
  if (autotune::run_worker(argc, argv, registry, exit_code)) return exit_code;

  constexpr int64_t kN = 256;
  constexpr int kThreads = 2;
  const Workload workload{"shifted_relu", DType::f32, kThreads, {{"n", kN}}};
  EngineOptions options;
  options.cache = argc > 1 ? argv[1] : "03_custom_kernel.db";
  options.threads = kThreads;
  options.policy = MissPolicy::strict;
  options.max_length = 64;
  tune(registry, workload, options.cache);

  const auto engine = Engine::open(options, registry);
  const Handle relu = engine->prepare(workload);
  std::vector<float> x(64 * kN), shift(kN, 1.5f), y(64 * kN);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.25f * static_cast<float>(i % 17);
  int64_t wrong = 0;
  for (int64_t length = 1; length <= 64; ++length) {
    const Tensor tensors[] = {tensor(x.data(), {length, kN}), tensor(shift.data(), {kN}),
                              tensor(y.data(), {length, kN})};
    relu(tensors, length);
    for (int64_t i = 0; i < length * kN; ++i) wrong += y[i] != std::max(x[i] - 1.5f, 0.0f);
  }
  for (const auto& [range, config] : relu.ranges()) {
    std::printf("lengths %lld..%lld: %s\n", static_cast<long long>(range.lo), static_cast<long long>(range.hi),
                config.json().c_str());
  }
  const EngineCounters counters = engine->counters();
  std::printf("%lld launches, %lld wrong values, %lld tunings and %lld compiles while serving\n",
              static_cast<long long>(counters.launches), static_cast<long long>(wrong),
              static_cast<long long>(counters.tunings), static_cast<long long>(counters.compiles));
  return wrong || counters.tunings || counters.compiles ? 1 : 0;
}

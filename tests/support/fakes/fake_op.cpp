// tests/support/fakes/fake_op.cpp -- see fake_op.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fakes/fake_op.h"

#include <cstring>
#include <thread>

#include "autotune/engine/launch.h"
#include "autotune/kernel_name.h"
#include "autotune/keys.h"
#include "seqtile/builder.h"
#include "seqtile/error.h"

namespace seqtile::test {

using autotune::Config;
using autotune::SizeExpr;
using autotune::Workload;

namespace {

void build_scale_rows(KernelBuilder& b, const Workload& workload, const Config& config, const Target&) {
  const int64_t n = workload.fields.get_int("n"), block = config.get_int("block");
  Var x = b.view("x", DType::f32, {kDynamic, n}), y = b.view("y", DType::f32, {kDynamic, n});
  b.view("tickets", DType::f32, {kDynamic});
  Var factor = b.scalar("factor");
  Var row = b.program_id(0) * block;
  Var rows = b.cast(b.cast(b.iota(block), DType::i64) + row, DType::f32);
  Var scaled = b.load(x, {row, 0}, {block, n}) * b.full({block, n}, b.cast(factor, DType::f32));
  b.store(y, {row, 0}, scaled + b.broadcast(b.expand(rows, 1), {block, n}));
}

}  // namespace

autotune::OpDef scale_rows_op() {
  autotune::OpDef op;
  op.name = "scale_rows";
  op.summary = "y = factor * x + row";
  op.normalize = [](const Workload& workload) {
    Workload result = workload;
    for (const auto& [name, value] : workload.fields.values()) {
      if (name != "n") throw Error(ErrorCode::invalid_argument, "scale_rows: unknown field " + name);
    }
    result.fields.get_int("n");
    return result;
  };
  op.schema = [](const Workload& workload) {
    const int64_t n = workload.fields.get_int("n");
    autotune::Schema schema;
    schema.args = {{"x", autotune::ArgRole::input, DType::f32, {"length", n}},
                   {"y", autotune::ArgRole::output, DType::f32, {"length", n}}};
    schema.scalars = {"factor"};
    return schema;
  };
  op.config_space = [](const Workload&, int64_t, const Target&) {
    autotune::ConfigSpace space;
    space.parameter("block", {int64_t{4}, int64_t{8}, int64_t{16}, int64_t{32}, int64_t{64}});
    return space;
  };
  op.default_config = [](const Workload&, int64_t length, const Target&) {
    return Config{{"block", int64_t{length <= 16 ? 4 : 16}}};
  };
  op.build = build_scale_rows;
  op.grid = [](const Workload&, const Config& config) {
    return std::array<SizeExpr, 3>{SizeExpr{1, {{0, config.get_int("block"), 0}}}, SizeExpr{}, SizeExpr{}};
  };
  op.workspaces = [](const Workload&, const Config& config) {
    return std::vector<autotune::Workspace>{{"tickets", DType::f32, SizeExpr{1, {{0, config.get_int("block"), 0}}}}};
  };
  op.cost = [](const Workload&, std::span<const int64_t> symbols) {
    return autotune::Cost{2.0 * static_cast<double>(symbols[0]), 4.0 * static_cast<double>(symbols[0]), 4.0};
  };
  op.predict_us = [](const Workload&, const Config&, int64_t length, const Target&) { return 0.01 * double(length); };
  op.reference = [](const autotune::Problem& problem, std::span<const int64_t> rows, auto& outputs) {
    const Tensor& x = problem.tensors[0];
    outputs.assign(1, {});
    for (const int64_t row : rows) {
      for (int64_t c = 0; c < x.sizes[1]; ++c) {
        const double value = static_cast<const float*>(x.data)[row * x.strides[0] + c];
        outputs[0].push_back(static_cast<double>(problem.symbols[1]) * value + static_cast<double>(row));
      }
    }
  };
  op.tolerance = [](const Workload&, std::span<const int64_t>) { return autotune::OpDef::Tolerance{1e-6, 1e-6}; };
  return op;
}

Workload scale_rows(int64_t n) { return {"scale_rows", DType::f32, 1, {{"n", n}}}; }

ScaleCall::ScaleCall(int64_t rows, int64_t columns)
    : length(rows), n(columns), x(rows * columns), y(rows * columns, -1) {
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1000) * 0.25f;
}

std::vector<Tensor> ScaleCall::tensors() {
  return {make_tensor(x.data(), DType::f32, {length, n}), make_tensor(y.data(), DType::f32, {length, n})};
}

bool ScaleCall::is_right(int64_t factor) const {
  for (int64_t i = 0; i < length * n; ++i) {
    if (y[i] != static_cast<float>(factor) * x[i] + static_cast<float>(i / n)) return false;
  }
  return true;
}

FakeWorld::FakeWorld() : cache(folder.file("tuning.db")), artifacts(folder.file("artifacts.db")) {
  setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1);
  registry.add(scale_rows_op());
}

EngineOptions FakeWorld::options(MissPolicy policy) const {
  EngineOptions options;
  options.cache = cache;
  options.artifacts = artifacts;
  options.policy = policy;
  return options;
}

std::unique_ptr<Engine> FakeWorld::open(MissPolicy policy, int64_t max_length) {
  EngineOptions chosen = options(policy);
  chosen.max_length = max_length;
  return autotune::open_engine(chosen, registry, parts());
}

cache::TuningKey FakeWorld::key() {
  const autotune::OpDef& op = registry.find(workload.operation);
  Workload threaded = workload;
  threaded.threads = threads;
  return autotune::make_key(op, op.normalize(threaded), info, autotune::TuneOptions{}.policy);
}

void FakeWorld::record(int64_t length, int64_t block, cache::Origin origin, const std::string& file) {
  const autotune::Bucket bucket = autotune::bucket(length);
  cache::Record record;
  record.bucket_version = autotune::kBucketVersion;
  record.lo = bucket.lo;
  record.hi = bucket.hi;
  record.origin = origin;
  record.config_json = Config{{"block", block}}.json();
  record.space_hash = std::string(64, '0');
  record.median_us = 2.5;
  record.default_us = 5;
  record.samples = 9;
  record.measured_length = bucket.hi;
  record.created_us = 1'700'000'000'000'000;
  const auto store = cache::TuningStore::open(file.empty() ? cache : file, cache::OpenMode::read_write);
  REQUIRE(store->publish(key(), record, {}));
}

autotune::EngineParts FakeWorld::parts() {
  autotune::EngineParts parts;
  auto fake = std::make_unique<FakeDevice>();
  fake->info_ = info;
  device = fake.get();
  parts.device = std::move(fake);
  parts.threads = threads;
  parts.compile = [this](const autotune::OpDef& op, const Workload& w, const Config& config, const Target& target) {
    ++compilations;
    if (compiler_fails) throw Error(ErrorCode::compile_failed, "the fake compiler was told to fail");
    const std::string json = config.json();
    KernelBinary binary{autotune::kernel_name(op, w, config, target),
                        target.name,
                        "blob",
                        std::vector<std::byte>(json.size()),
                        0,
                        0,
                        14};
    std::memcpy(binary.code.data(), json.data(), json.size());
    return binary;
  };
  parts.tune = [this](const autotune::Registry&, const std::vector<autotune::TuneRequest>& requests, const std::string&,
                      cache::TuningStore& store, ArtifactStore&, const autotune::TuneOptions& options) {
    ++tune_calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(tune_delay_ms.load()));
    const auto is_interrupted = [&] { return options.interrupt && *options.interrupt; };
    while (tuner_waits && !is_interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    autotune::TuneReport report;
    if (tuner_fails) throw Error(ErrorCode::io, "the fake tuner was told to fail");
    if (is_interrupted()) return report;
    for (const autotune::TuneRequest& request : requests) {
      for (const autotune::Bucket& bucket : autotune::buckets(request.lo, request.hi)) {
        cache::Record record{.bucket_version = autotune::kBucketVersion,
                             .lo = bucket.lo,
                             .hi = bucket.hi,
                             .origin = cache::Origin::tuned,
                             .config_json = Config{{"block", int64_t{32}}}.json(),
                             .space_hash = std::string(64, '0'),
                             .median_us = 1,
                             .measured_length = bucket.hi};
        store.publish(key(), record, {});
        ++report.tunings;
        std::lock_guard lock(mutex);
        tuned.push_back(bucket);
      }
      if (options.merge) throw Error(ErrorCode::internal, "tuning on demand never merges");
    }
    return report;
  };
  return parts;
}

}  // namespace seqtile::test

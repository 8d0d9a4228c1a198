// tests/autotune/engine/engine_fused_test.cpp -- one process tunes fused operations, ranks are served from the records.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <exception>
#include <thread>

#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "seqtile/ops/ranks.h"
#include "seqtile/seqpar.h"
#include "seqtile/stores.h"
#include "seqtile/tuner.h"
#include "tests/support/temp_folder.h"

using namespace seqtile;
using kernels::seqpar::ContextAttentionForward;
using kernels::seqpar::FusedAllgatherAndLinear;
using kernels::seqpar::FusedHandle;
using kernels::seqpar::SequenceParallelLeadingMatmulBackward;

namespace {

constexpr int kRanks = 2;
constexpr int64_t kN = 24, kK = 16, kLongest = 8;

FusedAllgatherAndLinear gather_op() { return {{.n = kN, .k = kK, .dtype = DType::bf16}}; }
ContextAttentionForward attention_op() { return {.heads = 1, .kv_heads = 1, .head_dim = kK, .dtype = DType::bf16}; }

Tensor matrix(const DeviceBuffer& buffer, int64_t rows, int64_t columns) {
  return make_tensor(buffer.data(), DType::bf16, {rows, columns});
}

FusedAllgatherAndLinear::Args args_of(const FusedAllgatherAndLinear&, const DeviceBuffer& x, const DeviceBuffer& w,
                                      const DeviceBuffer& y, int64_t own, int64_t length) {
  return {.x = matrix(x, own, kK), .w = matrix(w, kN, kK), .y = matrix(y, length, kN)};
}
ContextAttentionForward::Args args_of(const ContextAttentionForward&, const DeviceBuffer& x, const DeviceBuffer&,
                                      const DeviceBuffer& y, int64_t own, int64_t) {
  return {.q = matrix(x, own, kK), .k = matrix(x, own, kK), .v = matrix(x, own, kK), .out = matrix(y, own, kK)};
}

/// Calls the lengths of 5..8, which must be served from records.
template <class Op>
void run_rank(const EngineOptions& options, const autotune::Registry& registry, const Op& op, Fabric& fabric) {
  const auto engine = Engine::open(options, registry, fabric);
  Channel channel(fabric, kLongest);
  const auto handle = engine->prepare(op, channel);
  DeviceMemory& memory = fabric.device().memory();
  const DeviceBuffer x(memory, 2 * kLongest * kK), w(memory, 2 * kN * kK), y(memory, 2 * kLongest * kN);
  for (const DeviceBuffer* buffer : {&x, &w, &y}) memory.fill(buffer->data(), 0, buffer->bytes());
  for (int64_t length = 5; length <= kLongest; ++length) {
    const int64_t own = (fabric.rank() + 1) * length / kRanks - fabric.rank() * length / kRanks;
    handle(args_of(op, x, w, y, own, length), length);
  }
  channel.check();
  const EngineCounters counters = engine->counters();
  if (counters.compiles + counters.compiles_at_load + counters.tunings != 0 || counters.hits != 4)
    throw Error(ErrorCode::wrong_result, "a call was not served from the record");
  fabric.all_gather("");
}

template <class Op>
void run_ranks(const EngineOptions& options, const autotune::Registry& registry, const Op& op,
               const std::string& target) {
  const auto fabrics = make_sim_fabric(target, kRanks);
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        run_rank(options, registry, op, *fabrics[rank]);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

template <class Op>
void check_served(const autotune::Registry& registry, Op op, const std::string& target) {
  const test::TempFolder folder;
  setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1);
  const EngineOptions options{.threads = 1,
                              .cache = folder.file("tuning.db"),
                              .artifacts = folder.file("artifacts.db"),
                              .policy = MissPolicy::strict,
                              .max_length = kLongest};
  const std::string device = "sim:" + target;
  {
    const auto store = cache::TuningStore::open(options.cache, cache::OpenMode::read_write);
    const auto artifacts = cache::ArtifactDb::open(options.artifacts, cache::default_key_path());
    const autotune::Workload workload = op.workload({kRanks, device});
    const auto report =
        autotune::tune(registry, {{workload.operation, workload, 5, 8}}, device, *store, *artifacts, {});
    REQUIRE(report.complete);
    CHECK(report.tunings == 1);
  }
  CHECK_NOTHROW(run_ranks(options, registry, op, target));
}

}  // namespace

TEST_CASE("engine: a fused operation tuned on one simulated GPU is served to ranks from its record",
          "[autotune][engine][sim][seqpar]") {
  // The helper is the worker; it has the library's operations.
  setenv("SEQTILE_WORKER", SEQTILE_EXIT_HELPER, 1);
  const autotune::Registry registry = kernels::make_registry();
  for (const std::string target : {"sm_80", "sm_90a"}) {
    check_served(registry, gather_op(), target);
    check_served(registry, attention_op(), target);
  }
  unsetenv("SEQTILE_WORKER");
}

// Outputs of one call that overlap would be a race on the simulated GPU.
TEST_CASE("engine: a fused operation with three outputs is tuned on a simulated GPU",
          "[autotune][engine][sim][seqpar]") {
  setenv("SEQTILE_WORKER", SEQTILE_EXIT_HELPER, 1);
  const test::TempFolder folder;
  setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1);
  const SequenceParallelLeadingMatmulBackward op{
      .n = 24, .n2 = 16, .k = 48, .accumulate = true, .f32_gradient = true, .dtype = DType::bf16};
  const autotune::Workload workload = op.workload({kRanks, "sim:sm_80"});
  const auto store = cache::TuningStore::open(folder.file("tuning.db"), cache::OpenMode::read_write);
  const auto artifacts = cache::ArtifactDb::open(folder.file("artifacts.db"), cache::default_key_path());
  const auto report = autotune::tune(kernels::make_registry(), {{workload.operation, workload, 65, 72}}, "sim:sm_80",
                                     *store, *artifacts, {});
  CHECK(report.complete);
  CHECK(report.tunings == 1);
  unsetenv("SEQTILE_WORKER");
}

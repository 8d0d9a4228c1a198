// tests/kernels/seqpar/matmul_backward_test.cpp -- both gradients of a layer in one launch of each rank, bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "jit/abi/channel_block.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/ranks/backward_run.h"

using namespace seqtile;
using namespace seqtile::testing;
using namespace seqtile::testing::backward;

namespace {

constexpr bool kBoth[] = {true, false};  // trailing, leading

void check(const Case& c, const RankOptions& options) {
  Problem problem(c, options.device);
  INFO(options.device << ", " << c.workload().json());
  const RankOutcome outcome = problem.on(options);
  require_success(outcome);
  for (const uint64_t epoch : outcome.epochs)
    CHECK(epoch == ((options.channel.first_epoch + c.lengths.size()) & channel::kEpochMask));
  for (Launch& launch : problem.launches) CHECK(launch.difference() == "");
}

/// The sizes of the weights: one for the trailing operation, three for the leading one.
std::vector<int64_t> weights_of(bool is_trailing, int64_t n) {
  return is_trailing ? std::vector{n} : std::vector{n, n + 7, (n + 1) / 2};
}

}  // namespace

TEST_CASE("matmul backward: exact on threads, any number of ranks and rows", "[seqpar][sweep]") {
  for (const bool is_trailing : kBoth)
    for (const int world_size : {1, 2, 3, 4, 8})
      for (const auto& [n, k] : {std::pair<int64_t, int64_t>{72, 64}, {33, 57}, {1, 3}})
        check({is_trailing, world_size, weights_of(is_trailing, n), k, {0, 1, 5, 64, 200, 257, 3, 100}}, {});
}

TEST_CASE("matmul backward: exact in processes and on nodes that pause at random, gradients added in place",
          "[seqpar]") {
  for (const std::string device : {"processes", "nodes"})
    for (const bool is_trailing : kBoth)
      for (const int world_size : {1, 2, 3, 4, 8}) {
        std::mt19937 random(static_cast<uint32_t>(world_size));
        Case c{is_trailing, world_size, weights_of(is_trailing, 33), 45, {0, 1, 2, 100}, DType::bf16, true};
        for (int epoch = 0; epoch < 12; ++epoch) c.lengths.push_back(static_cast<int64_t>(random() % 97));
        c.f32_gradient = world_size % 2 == 0;
        RankOptions options;
        options.device = device;
        options.seed = 5, options.slow_rank = 1;
        check(c, options);
      }
}

TEST_CASE("matmul backward: exact on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const std::string device : {"sim:sm_80", "sim:sm_90a"})
    for (const bool is_trailing : kBoth)
      for (const int world_size : {1, 2, 3}) {
        RankOptions options;
        options.device = device;
        check({is_trailing, world_size, weights_of(is_trailing, 40), 48, {0, 1, 5, 70}, DType::bf16, true, true},
              options);
        check({is_trailing, world_size, weights_of(is_trailing, 19), 35, {2, 67}, DType::f32}, options);
      }
}

TEST_CASE("matmul backward: exact on ranks that share a simulated GPU, every check on", "[seqpar][sim]") {
  for (const char* device : testing::kSharedGpus)
    for (const bool is_trailing : kBoth)
      for (const int world_size : {2, 4}) {
        RankOptions options;
        options.device = device;
        check({is_trailing, world_size, weights_of(is_trailing, 40), 48, {0, 1, 5, 70}, DType::bf16, true, true},
              options);
      }
}

namespace {

/// Checks the configurations of a call.
void check_configs(Case c, const std::string& device) {
  for (const autotune::Config& config : testing::configs_on(device, c.workload())) {
    INFO(config.json());
    c.config = config;
    RankOptions options;
    options.device = device;
    check(c, options);
  }
}

}  // namespace

TEST_CASE("matmul backward: the default and other configurations on simulated GPUs", "[seqpar][sim]") {
  for (const char* device : testing::kSimulatedGpus)
    for (const bool is_trailing : kBoth)
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        check_configs({is_trailing, 2, weights_of(is_trailing, 33), 57, {0, 1, 5, 131}, dtype, true}, device);
}

TEST_CASE("matmul backward: every combination on simulated GPUs", "[seqpar][sim][slow]") {
  for (const char* device : testing::kSimulatedRanks)
    for (const bool is_trailing : kBoth)
      for (const int world_size : {1, 2, 3})
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
          for (const auto& [n, k] : {std::pair<int64_t, int64_t>{72, 64}, {33, 57}, {1, 3}})
            check_configs(
                {is_trailing, world_size, weights_of(is_trailing, n), k, {0, 1, 5, 64, 200, 257, 3, 100}, dtype},
                device);
}

TEST_CASE("matmul backward: another length on one rank is a record on all and NaN, gradients too", "[seqpar]") {
  for (const bool is_trailing : kBoth)
    for (const int world_size : {2, 3}) {
      Problem problem({is_trailing, world_size, weights_of(is_trailing, 24), 16, {40, 33, 64}, DType::f32, true},
                      "threads");
      problem.calls[1][1] = problem.calls[1][0];
      const RankOutcome outcome = problem.on({});
      for (const auto& record : outcome.records) {
        REQUIRE(record);
        CHECK((record->kind == channel::mismatch || record->kind == channel::aborted));
      }
      CHECK(problem.launches.back().is_nan());
    }
}

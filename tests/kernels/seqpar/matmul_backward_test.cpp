// tests/kernels/seqpar/matmul_backward_test.cpp -- both gradients of a layer in one launch of each rank, bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "jit/error.h"
#include "tests/support/backward_run.h"
#include "tests/support/kernel_cases.h"

using namespace seqtile;
using namespace seqtile::testing;
using namespace seqtile::testing::backward;

namespace {

constexpr bool kBoth[] = {true, false};  // trailing, leading

void check(const Case& c, const RankOptions& given) {
  Problem problem(c, given.device);
  const RankOptions options = problem.options(given);
  const RankOutcome outcome = run_ranks(*problem.function, options, problem.calls);
  INFO(options.device << ", " << c.workload().json());
  for (const std::string& error : outcome.errors) CHECK(error == "");
  for (const auto& record : outcome.records) CHECK((record ? record->text() : "") == "");
  for (const uint64_t epoch : outcome.epochs)
    CHECK(epoch == ((options.channel.first_epoch + c.lengths.size()) & channel::kEpochMask));
  for (Launch& launch : problem.launches) CHECK(launch.difference() == "");
  CHECK(problem.flags().refusal(c.lengths) == "");
}

/// One weight; several of different sizes, where the operation takes them.
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

TEST_CASE("matmul backward: the epoch goes on around 2^31, 2^32 and 2^48", "[seqpar]") {
  for (const bool is_trailing : kBoth)
    for (const int bits : {31, 32, 48}) {
      RankOptions options;
      options.channel.first_epoch = (uint64_t{1} << bits) - 3;
      check({is_trailing, 2, weights_of(is_trailing, 24), 16, {30, 0, 7, 31, 64, 1}}, options);
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

/// With the configurations that a call would have.
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

TEST_CASE("matmul backward: nothing is reported under random schedules", "[seqpar][sim][sweep]") {
  for (const bool is_trailing : kBoth)
    for (const int world_size : {2, 3})
      for (uint32_t seed = 1; seed <= 4; ++seed) {
        std::mt19937 random(seed);
        Case c{is_trailing, world_size, weights_of(is_trailing, 40), 32, {}, DType::bf16};
        for (int epoch = 0; epoch < 5; ++epoch)
          c.lengths.push_back(static_cast<int64_t>(random() % (epoch % 2 ? 80 : 4)));
        RankOptions options;
        options.device = "sim:sm_80", options.seed = seed;
        check(c, options);
      }
}

TEST_CASE("matmul backward: the same bits for any chunk size, however ranks pause", "[seqpar]") {
  for (const bool is_trailing : kBoth) {
    std::vector<std::vector<std::byte>> bits;
    for (const int64_t chunk_rows : {24, 48, 120})
      for (const int slow_rank : {0, 2}) {
        Case c{is_trailing, 3, weights_of(is_trailing, 33), 45, {150, 151, 7, 150}};
        c.chunk_rows = chunk_rows, c.has_any_values = true;
        Problem problem(c, "threads");
        RankOptions options;
        options.seed = static_cast<uint32_t>(chunk_rows), options.slow_rank = slow_rank;
        run_ranks(*problem.function, problem.options(options), problem.calls);
        std::vector<std::byte> outputs;
        for (Launch& launch : problem.launches) launch.append_outputs(outputs);
        bits.push_back(std::move(outputs));
      }
    for (const auto& other : bits) CHECK(other == bits[0]);
  }
}

TEST_CASE("matmul backward: another length on one rank is a record on all and NaN, gradients too", "[seqpar]") {
  for (const bool is_trailing : kBoth)
    for (const int world_size : {2, 3}) {
      Problem problem({is_trailing, world_size, weights_of(is_trailing, 24), 16, {40, 33, 64}, DType::f32, true},
                      "threads");
      problem.calls[1][1] = problem.calls[1][0];
      const RankOutcome outcome = run_ranks(*problem.function, problem.options({}), problem.calls);
      for (const auto& record : outcome.records) {
        REQUIRE(record);
        CHECK((record->kind == channel::mismatch || record->kind == channel::aborted));
      }
      CHECK(problem.launches.back().is_nan());
    }
}

namespace {

/// What the machine says of a kernel in which every `from` is `to`.
std::string report_of_fault(bool is_trailing, const std::string& from, const std::string& to) {
  Problem problem({is_trailing, 2, weights_of(is_trailing, 40), 32, {64, 1, 40, 64}, DType::bf16}, "sim:sm_80");
  RankOptions options;
  options.device = "sim:sm_80";
  options.edit_ptx = [&](std::string text) {
    size_t count = 0;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()), ++count)
      text.replace(at, from.size(), to);
    if (count == 0) throw Error(ErrorCode::internal, "the text has no " + from);
    return text;
  };
  try {
    run_ranks(*problem.function, problem.options(options), problem.calls);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("matmul backward: a weaker order of a flag or counter is reported as the race it is", "[seqpar][sim]") {
  const std::pair<std::string, std::string> faults[] = {
      {"st.release.sys.global.b64", "st.relaxed.sys.global.b64"},
      {"ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64"},
      {"atom.acq_rel.gpu.global.add.u32", "atom.relaxed.gpu.global.add.u32"}};
  for (const bool is_trailing : kBoth)
    for (const auto& [from, to] : faults) {
      INFO(from << " -> " << to);
      CHECK_THAT(report_of_fault(is_trailing, from, to), Catch::Contains("race") || Catch::Contains("scope"));
    }
}

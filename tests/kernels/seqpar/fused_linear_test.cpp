// tests/kernels/seqpar/fused_linear_test.cpp -- products that communicate inside their launch, bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <unistd.h>

#include "jit/abi/channel_block.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/ranks/fused_linear_run.h"

using namespace seqtile;
using namespace seqtile::testing;
using namespace seqtile::testing::fused_linear;

namespace {

void check(const Case& c, RankOptions options) {
  Problem problem(c);
  options.world_size = c.world_size;
  options.channel = problem.channel(options.channel);
  test::FlagRecorder flags(protocol_of(c.kind), problem.exchange(), c.lengths);
  options.with_channel = [&](Channel& channel) { flags.watch(channel); };
  const auto function = problem.kernel();
  const RankOutcome outcome = run_ranks(*function, options, problem.calls);
  for (const std::string& error : outcome.errors) CHECK(error == "");
  INFO(options.device << ", kind " << c.kind << ", " << c.world_size << " ranks, n " << c.n << ", k " << c.k);
  for (const auto& record : outcome.records) CHECK((record ? record->text() : "") == "");
  for (const uint64_t epoch : outcome.epochs)
    CHECK(epoch == ((options.channel.first_epoch + c.lengths.size()) & channel::kEpochMask));
  CHECK(problem.difference() == "");
  CHECK(flags.refusal() == "");
}

}  // namespace

TEST_CASE("fused linear: exact on the CPU, any number of ranks and rows", "[seqpar][sweep]") {
  for (const std::string device : {"threads", "processes"})
    for (const Case::Kind kind : kKinds)
      for (const int world_size : {1, 2, 3, 4, 8})
        for (const auto& [n, k] : {std::pair<int64_t, int64_t>{72, 64}, {33, 57}, {1, 3}}) {
          RankOptions options;
          options.device = device;
          check({kind, world_size, n, k, {0, 1, 5, 64, 200, 257, 3, 100}}, options);
        }
}

TEST_CASE("fused linear: exact where ranks pause at random", "[seqpar]") {
  for (const std::string device : {"threads", "processes", "nodes"})
    for (const Case::Kind kind : kKinds)
      for (const int world_size : {2, 3, 4}) {
        std::mt19937 random(static_cast<uint32_t>(world_size));
        Case c{kind, world_size, 40, 48, {}};
        const int num_epochs = device == "nodes" ? 15 : 60;
        for (int epoch = 0; epoch < num_epochs; ++epoch) c.lengths.push_back(static_cast<int64_t>(random() % 97));
        RankOptions options;
        options.device = device;
        options.seed = 5, options.slow_rank = 1;
        check(c, options);
      }
}

namespace {

/// The case with small tiles for GPUs, so that a call has several programs.
Case simulated(Case c) {
  c.tile = {"mma", 32, 32, 16, 8, 32, 4, 3};
  c.reduces = {32, 4};
  return c;
}

}  // namespace

TEST_CASE("fused linear: exact on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const std::string device : {"sim:sm_80", "sim:sm_90a"})
    for (const Case::Kind kind : kKinds)
      for (const int world_size : {1, 2, 3}) {
        RankOptions options;
        options.device = device;
        for (const DType dtype : {DType::bf16, DType::f32})
          check(simulated({kind, world_size, 72, 48, {0, 1, 5, 70}, dtype}), options);
      }
}

TEST_CASE("fused linear: exact on ranks that share a simulated GPU, every check on", "[seqpar][sim]") {
  for (const char* device : testing::kSharedGpus)
    for (const Case::Kind kind : kKinds)
      for (const int world_size : {1, 2, 3, 4}) {
        RankOptions options;
        options.device = device;
        check(simulated({kind, world_size, 72, 48, {0, 1, 5, 70}, world_size % 2 ? DType::f32 : DType::bf16}), options);
      }
}

TEST_CASE("fused linear: a gather is exact in every order of its tiles", "[seqpar][sim]") {
  for (const std::string device : {"threads", "processes", "nodes", "sim:sm_80", "sim:sm_90a"})
    for (const int world_size : {1, 2, 3})
      for (const bool is_serial : {false, true}) {
        const bool is_gpu = device.starts_with("sim");
        Case c{Case::gather, world_size, 72, 48, {0, 1, 5, 70, 3}, is_gpu ? DType::bf16 : DType::f32};
        if (is_gpu) c = simulated(c);
        c.gathers.is_interleaved = true, c.gathers.transfer.is_serial = is_serial;
        RankOptions options;
        options.device = device;
        options.seed = is_gpu ? 0 : 3;
        if (device == "nodes" && world_size == 1) continue;
        check(c, options);
        c.gathers.transfer.way = seqpar::Transfer::pull;
        if (!is_gpu) check(c, options);
      }
}

TEST_CASE("fused linear: exact where tiles have rows of several ranks", "[seqpar]") {
  for (const std::string device : {"threads", "processes", "nodes"})
    for (const Case::Kind kind : {Case::gather, Case::reduce, Case::two_shot})
      for (const int world_size : {1, 2, 3, 8})
        for (const auto& [n, k] : {std::pair<int64_t, int64_t>{72, 64}, {33, 57}, {1, 3}}) {
          if (device != "threads" && (world_size == 1 || world_size == 8 || n == 33)) continue;
          Case c{kind, world_size, n, k, {0, 1, 5, 64, 200, 3, 100}};
          c.gathers.transfer.way = seqpar::Transfer::join;
          c.gathers.transfer.push_programs = world_size % 2 ? 1 : 3;
          c.reduces.order = seqpar::ReduceOrder::join;
          RankOptions options;
          options.device = device;
          options.seed = static_cast<uint32_t>(world_size);
          check(c, options);
        }
}

namespace {

/// Checks the configurations of a call of the operation; an all-reduce has both of its forms.
void check_configs(Case c, const std::string& operation, const std::string& device) {
  const autotune::Workload w =
      testing::normalized({operation, {{"n", c.n}, {"k", c.k}, {"world_size", int64_t{c.world_size}}}}, c.dtype, 1);
  for (const autotune::Config& config : testing::configs_on(device, w)) {
    INFO(config.json());
    const auto is = [&](const char* name, const char* value) { return config.get_string(name, "") == value; };
    if (operation == "linear_and_allreduce") c.kind = is("reduction", "one_shot") ? Case::one_shot : Case::two_shot;
    c.config = config, c.tile = linear_op::Tile::from(config);
    if (c.kind == Case::gather) c.gathers = seqpar::GatherSchedule::from(config);
    else c.reduces = seqpar::ReduceSchedule::from(config);
    RankOptions options;
    options.device = device;
    check(c, options);
  }
}

constexpr std::pair<const char*, Case::Kind> kOperations[] = {{"fused_allgather_and_linear", Case::gather},
                                                              {"fused_linear_and_reducescatter", Case::reduce},
                                                              {"linear_and_allreduce", Case::two_shot}};

}  // namespace

TEST_CASE("fused linear: the default and other configurations on simulated GPUs", "[seqpar][sim]") {
  for (const char* device : testing::kSimulatedGpus)
    for (const auto& [operation, kind] : kOperations)
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        check_configs({kind, 2, 72, 48, {0, 1, 5, 131}, dtype}, operation, device);
}

TEST_CASE("fused linear: every combination on simulated GPUs", "[seqpar][sim][slow]") {
  for (const char* device : testing::kSimulatedRanks)
    for (const auto& [operation, kind] : kOperations)
      for (const int world_size : {1, 2, 3})
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
          for (const auto& [n, k] : {std::pair<int64_t, int64_t>{72, 64}, {33, 57}, {1, 3}})
            check_configs({kind, world_size, n, k, {0, 1, 5, 64, 200, 257, 3, 100}, dtype}, operation, device);
}

TEST_CASE("fused linear: large tiles meet the sums of peers in memory", "[seqpar][sim]") {
  for (const char* device : testing::kSimulatedGpus)
    for (const Case::Kind kind : {Case::reduce, Case::two_shot})
      for (const int world_size : {1, 3}) {
        Case c{kind, world_size, 72, 48, {1, 131}, DType::bf16, {"mma", 64, 128, 16, 8, 32, 4, 2}};
        c.reduces = {64, 4};
        RankOptions options;
        options.device = device;
        check(c, options);
      }
}

namespace {

/// Cases of all forms, some with joined rows or tiles.
std::vector<Case> cases_of_every_form(int world_size, const std::vector<int64_t>& lengths) {
  std::vector<Case> cases;
  for (const Case::Kind kind : kKinds) {
    cases.push_back({kind, world_size, 24, 16, lengths});
    if (kind == Case::one_shot) continue;
    cases.push_back(cases.back());
    cases.back().gathers.transfer.way = seqpar::Transfer::join;
    cases.back().reduces.order = seqpar::ReduceOrder::join;
  }
  return cases;
}

}  // namespace

TEST_CASE("fused linear: a rank that is killed ends the others with a record and NaN", "[seqpar]") {
  for (const Case& c : cases_of_every_form(4, {40, 33, 64, 50})) {
    Problem problem(c);
    RankOptions options;
    options.device = "processes", options.world_size = 4;
    options.channel = problem.channel(options.channel);
    options.before_launch = [](int rank, int epoch) {
      if (rank == 2 && epoch == 2) _exit(9);
    };
    const RankOutcome outcome = run_ranks(*problem.kernel(), options, problem.calls);
    for (size_t rank = 0; rank < 4; ++rank) {
      if (rank == 2) continue;
      INFO("rank " << rank << ": " << outcome.errors[rank]);
      CHECK_THAT(outcome.errors[rank], Catch::Contains("a rank has died"));
      REQUIRE(outcome.records[rank]);
      CHECK(outcome.records[rank]->kind != channel::timed_out);
    }
    CHECK(problem.first_wrong_epoch() >= 1);
    CHECK(problem.is_right_or_nan(2));
    CHECK(problem.is_nan_from(2, 2));
  }
}

TEST_CASE("fused linear: another length on one rank is a record on all and NaN, never wrong data", "[seqpar]") {
  for (const std::string device : {"threads", "processes", "nodes"})
    for (const int world_size : {2, 3})
      for (const Case& c : cases_of_every_form(world_size, {40, 33, 64})) {
        Problem problem(c);
        problem.calls[1][1] = problem.calls[1][0];
        RankOptions options;
        options.device = device, options.world_size = world_size;
        options.channel = problem.channel(options.channel);
        const RankOutcome outcome = run_ranks(*problem.kernel(), options, problem.calls);
        INFO(device << ", kind " << c.kind << ", " << world_size << " ranks");
        for (const auto& record : outcome.records) {
          REQUIRE(record);
          CHECK((record->kind == channel::mismatch || record->kind == channel::aborted));
          CHECK(record->epoch >= (record->kind == channel::mismatch ? 2 : 1));
        }
        CHECK(problem.is_right_or_nan(1));
        CHECK(problem.is_nan_from(1, 1));
      }
}

// tests/kernels/seqpar/shared_gpu_test.cpp -- ranks that share a GPU and call wrongly, too late, or wrong kernels.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <latch>

#include "jit/device/gpu_launch.h"
#include "seqtile/compiler.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/ranks/fused_linear_run.h"

using namespace seqtile;
using namespace seqtile::testing;
using namespace seqtile::testing::fused_linear;
using namespace std::chrono_literals;

namespace {

Case small_case(Case::Kind kind, int world_size, std::vector<int64_t> lengths) {
  Case c{kind, world_size, 40, 32, std::move(lengths), DType::bf16, {"mma", 32, 32, 16, 8, 32, 4, 3}};
  c.reduces = {32, 4};
  return c;
}

RankOutcome run(Problem& problem, RankOptions options) {
  options.world_size = static_cast<int>(problem.calls.size());
  options.channel = problem.channel(options.channel);
  return run_ranks(*problem.kernel(), options, problem.calls);
}

}  // namespace

TEST_CASE("shared gpu: another length on one rank is a record on all and NaN, never wrong data", "[seqpar][sim]") {
  for (const char* device : kSharedGpus)
    for (const int world_size : {2, 3})
      for (const Case::Kind kind : {Case::gather, Case::two_shot}) {
        Problem problem(small_case(kind, world_size, {40, 33, 64}));
        problem.calls[1][1] = problem.calls[1][0];
        const RankOutcome outcome = run(problem, {.device = device});
        for (const auto& record : outcome.records) {
          REQUIRE(record);
          CHECK((record->kind == channel::mismatch || record->kind == channel::aborted));
          CHECK(record->epoch >= 2);
        }
        CHECK(problem.is_nan_from(1, 1));
      }
}

TEST_CASE("shared gpu: a rank that is too late ends its peers with a record and NaN", "[seqpar][sim]") {
  Problem problem(small_case(Case::reduce, 2, {40, 33, 64}));
  RankOptions options{.device = "virtual:sm_80", .timeout = 500ms};
  std::latch has_given_up(1);
  options.before_launch = [&](int rank, int epoch) {
    if (rank == 0 && epoch == 1) has_given_up.count_down();
    if (rank == 1 && epoch == 0) has_given_up.wait();
  };
  const RankOutcome outcome = run(problem, options);
  REQUIRE(outcome.records[0]);
  CHECK(outcome.records[0]->kind == channel::timed_out);
  REQUIRE(outcome.records[1]);
  CHECK(outcome.records[1]->kind == channel::aborted);
  for (const size_t other : {0, 1}) CHECK(problem.is_nan_from(0, other));
}

TEST_CASE("shared gpu: nothing is reported under random schedules", "[seqpar][sim][sweep]") {
  for (const Case::Kind kind : kKinds)
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      Problem problem(small_case(kind, 3, {70, 2, 33, 0, 64}));
      const RankOutcome outcome = run(problem, {.device = "virtual:sm_80", .seed = seed});
      for (const auto& record : outcome.records) CHECK((record ? record->text() : "") == "");
      CHECK(problem.difference() == "");
    }
}

TEST_CASE("shared gpu: a flag of weaker order is reported as the race it is", "[seqpar][sim]") {
  const std::pair<std::string, std::string> faults[] = {{"st.release.sys.global.b64", "st.relaxed.sys.global.b64"},
                                                        {"ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64"}};
  for (const auto& fault : faults) {
    Problem problem(small_case(Case::gather, 2, {64, 1, 40}));
    RankOptions options{.device = "virtual:sm_80"};
    options.edit_ptx = [&](std::string text) {
      for (size_t at = 0; (at = text.find(fault.first, at)) != std::string::npos; at += fault.second.size())
        text.replace(at, fault.first.size(), fault.second);
      return text;
    };
    INFO(fault.first << " -> " << fault.second);
    CHECK_THROWS_WITH(run(problem, options), Catch::Contains("race"));
  }
}

TEST_CASE("shared gpu: ranks have rows of one table of parameters", "[seqpar]") {
  const auto function = Problem(small_case(Case::gather, 4, {64})).kernel();
  const KernelBinary alone = compile(*function, gpu_target("sm_80"));
  function->attributes["ranks_in_launch"] = int64_t{4};
  const KernelBinary shared = compile(*function, gpu_target("sm_80"));
  const std::string text(reinterpret_cast<const char*>(shared.code.data()), shared.code.size());
  CHECK_THAT(text, Catch::Contains(fmt::format("_param_0[{}]", 4 * 8 * (shared.num_slots + 3))));
  CHECK_THAT(text, !Catch::Contains("_param_1"));
  CHECK_THAT(text, !Catch::Contains(".local"));
  CHECK(shared.gpu.ranks_in_launch == 4);
  CHECK(shared.num_slots == alone.num_slots);
  CHECK(parse_gpu_launch(to_text(shared.gpu)) == shared.gpu);
}

TEST_CASE("shared gpu: kernels whose blocks do not run in order are refused", "[seqpar][fault]") {
  KernelBuilder b("plain");
  b.schedule({{"ranks_in_launch", int64_t{2}}});
  b.store_scalar(b.view("x", DType::i64, {1}), {0}, 1);
  CHECK_THROWS_WITH(compile(*b.finish(), gpu_target("sm_80")),
                    "kernel plain: only programs that run in order, without TMA, can be those of several ranks in one "
                    "launch");
}

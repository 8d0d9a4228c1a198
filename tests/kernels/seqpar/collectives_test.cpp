// tests/kernels/seqpar/collectives_test.cpp -- collectives on every fabric of this machine.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/collective_run.h"

using namespace seqtile;
using namespace seqtile::testing;

TEST_CASE("collectives: exact on the CPU, any number of ranks and rows", "[seqpar][sweep]") {
  for (const char* device : {"threads", "processes"})
    for (const int world_size : {1, 2, 3, 4, 8})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        RankOptions options;
        options.device = device;
        check_collectives(world_size, dtype, options);
      }
}

TEST_CASE("collectives: exact where ranks pause at random", "[seqpar]") {
  for (const char* device : {"threads", "processes"}) {
    RankOptions options;
    options.device = device;
    options.seed = 3, options.slow_rank = 1;
    check_collectives(3, DType::f16, options);
  }
}

TEST_CASE("collectives: exact on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const char* device : {"sim:sm_80", "sim:sm_90a"})
    for (const int world_size : {1, 2, 3}) {
      RankOptions options;
      options.device = device;
      check_collectives(world_size, DType::bf16, options);
    }
}

TEST_CASE("collectives: a one-shot call beyond its staging is refused on every rank", "[seqpar]") {
  // 16384 columns of f32 leave room for 8 rows.
  CollectiveRun run("all_reduce", {{"n", int64_t{16384}}}, 2, DType::f32, "one_shot");
  const RankOutcome outcome = run.on({});
  for (const auto& record : outcome.records) {
    REQUIRE(record);
    CHECK((record->kind == channel::too_long || record->kind == channel::aborted));
  }
  CHECK_THAT(difference("all_reduce", run, 2), Catch::Contains("is nan"));  // of the call, or the one before
  CHECK(std::isnan(at(run.y(4, 0), 128, 16383)));
}

// tests/kernels/seqpar/collectives_test.cpp -- collectives on every fabric of this machine.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <cstring>

#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/ranks/collective_run.h"

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
  for (const char* device : {"threads", "processes", "nodes"}) {
    RankOptions options;
    options.device = device;
    options.seed = 3, options.slow_rank = 1;
    check_collectives(3, DType::f16, options);
  }
}

TEST_CASE("collectives: exact on two nodes", "[seqpar]") {
  for (const int world_size : {1, 2, 4}) {
    RankOptions options;
    options.device = "nodes";
    check_collectives(world_size, DType::f32, options);
  }
}

TEST_CASE("collectives: exact on two nodes, any number of ranks and rows, epochs beyond 48 bits", "[seqpar][slow]") {
  for (const int world_size : {2, 3, 4, 8})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int bits : {31, 48}) {
        RankOptions options;
        options.device = "nodes";
        options.channel.first_epoch = (uint64_t{1} << bits) - 3;
        check_collectives(world_size, dtype, options);
      }
}

TEST_CASE("collectives: exact on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const char* device : kSimulatedGpus)
    for (const int world_size : {1, 2, 3}) {
      RankOptions options;
      options.device = device;
      check_collectives(world_size, DType::bf16, options);
    }
}

TEST_CASE("collectives: exact on ranks that share a simulated GPU, every check on", "[seqpar][sim]") {
  for (const char* device : kSharedGpus)
    for (const int world_size : {1, 2, 3, 4}) {
      RankOptions options;
      options.device = device;
      check_collectives(world_size, DType::bf16, options);
    }
}

namespace {

/// Checks the configurations of a call.
void check_configs(const CollectiveCase& c, int world_size, DType dtype, const char* device) {
  RankOptions options;
  options.device = device;
  for (const autotune::Config& config : configs_on(device, run_of(c, world_size, dtype).workload()))
    check_collective(c, world_size, dtype, options, "", &config);
}

constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

}  // namespace

TEST_CASE("collectives: the default and other configurations on simulated GPUs", "[seqpar][sim]") {
  size_t next = 0;
  for (const char* device : kSimulatedGpus)
    for (const CollectiveCase& c : collective_cases(2)) check_configs(c, 2, kDTypes[next++ % 3], device);
}

TEST_CASE("collectives: every combination on simulated GPUs", "[seqpar][sim][slow]") {
  for (const char* device : kSimulatedRanks)
    for (const int world_size : {1, 2, 3})
      for (const DType dtype : kDTypes) {
        RankOptions options;
        options.device = device;
        check_collectives(world_size, dtype, options);
        for (const CollectiveCase& c : collective_cases(world_size)) check_configs(c, world_size, dtype, device);
      }
}

TEST_CASE("collectives: broadcast and all-gather in place", "[seqpar][sim]") {
  for (const char* device : {"threads", "sim:sm_80", "sim:sm_90a"})
    for (const CollectiveCase& c : collective_cases(3)) {
      const bool is_gather = c.operation == "all_gather" && device == std::string("threads");
      if (!is_gather && c.operation != "broadcast") continue;
      CollectiveRun run = run_of(c, 3, DType::f32);
      run.work_in_place();
      RankOptions options;
      options.device = device;
      INFO(device << ", " << c.operation);
      require_success(run.on(options));
      CHECK(difference(run) == "");
    }
}

TEST_CASE("collectives: a root that works in place writes nothing", "[seqpar]") {
  CollectiveRun run("broadcast", {{"n", int64_t{512}}, {"root", int64_t{1}}}, 2, DType::f32, "", {300});
  const Tensor& x = run.calls()[1][0].tensors[0];
  const auto bytes = static_cast<size_t>(x.num_elements() * dtype_bytes(x.dtype));
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED);
  std::memcpy(pages, x.data, bytes);
  run.place(1, 0, pages);
  REQUIRE(mprotect(pages, bytes, PROT_READ) == 0);  // a write would be a fault
  require_success(run.on({}));
  CHECK(difference(run) == "");
  munmap(pages, bytes);
}

TEST_CASE("collectives: a one-shot call beyond its staging is refused on every rank", "[seqpar]") {
  // 16384 columns of f32 leave room for 8 rows.
  CollectiveRun run("all_reduce", {{"n", int64_t{16384}}}, 2, DType::f32, "one_shot");
  const RankOutcome outcome = run.on({});
  for (const auto& record : outcome.records) {
    REQUIRE(record);
    CHECK((record->kind == channel::too_long || record->kind == channel::aborted));
  }
  CHECK_THAT(difference(run), Catch::Contains("is nan"));  // in this call or in the one before
  CHECK(std::isnan(at(run.y(4, 0), 128, 16383)));
}

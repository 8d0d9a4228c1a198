// tests/jit/codegen/nvptx/tma_plan_test.cpp -- the loops that take Hopper's form, and their tensor maps.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/hopper/tma_plan.h"

#include <catch2/catch.hpp>

#include "jit/device/gpu_launch.h"
#include "seqtile/builder.h"
#include "seqtile/device.h"

namespace seqtile::nvptx {
namespace {

struct Shape {
  DType dtype = DType::bf16;
  int64_t k = 256, block_m = 128, block_n = 128, block_k = 64;
  DType stored = DType::f32;
  int loops = 1;
};

std::unique_ptr<ir::Function> matmul(const Shape& s) {
  KernelBuilder b("matmul");
  b.align_rows(16);
  Var x = b.view("x", s.dtype, {kDynamic, s.k}), w = b.view("w", s.dtype, {512, s.k});
  Var y = b.view("y", s.stored, {kDynamic, 512});
  Var acc = b.full({s.block_m, s.block_n}, 0.0);
  for (int i = 0; i < s.loops; ++i)
    acc = b.for_loop(0, s.k, s.block_k, {acc}, [&](Var kk, std::vector<Var> sums) {
      Var left = b.load(x, {b.program_id(0) * s.block_m, kk}, {s.block_m, s.block_k});
      Var right = b.load(w, {b.program_id(1) * s.block_n, kk}, {s.block_n, s.block_k});
      return std::vector{b.dot(left, b.trans(right), sums[0])};
    })[0];
  b.store(y, {0, 0}, b.cast(acc, s.stored));
  return b.finish();
}

TmaPlan plan(const Shape& shape, int num_warps = 8, const char* target = "sm_90a", int cluster = 1) {
  const auto function = matmul(shape);
  TmaPlan found = plan_tma(*function, gpu_target(target), codegen::users_of(*function), num_warps, cluster);
  found.found = {};  // it points into the function
  return found;
}

}  // namespace

TEST_CASE("tma plan: a product's operands arrive together, in panels of 128 bytes", "[jit][nvptx]") {
  const TmaPlan found = plan({});
  CHECK(found.refusal.empty());
  REQUIRE(found.streams.size() == 2);
  CHECK(found.num_groups == 1);
  REQUIRE(found.maps.size() == 2);
  CHECK(found.maps[0] == TensorMapSpec{0, DType::bf16, {128, 64}, 128});
  CHECK(found.maps[1] == TensorMapSpec{5, DType::bf16, {128, 64}, 128});
}

TEST_CASE("tma plan: narrow blocks of k take narrower swizzles", "[jit][nvptx]") {
  CHECK(plan({.block_k = 32}).maps.at(0).swizzle_bytes == 64);
  CHECK(plan({.block_k = 16}).maps.at(0).swizzle_bytes == 32);
  CHECK(panel_bytes_of(192) == 64);
  CHECK(panel_bytes_of(24) == 0);
}

TEST_CASE("tma plan: the blocks of a cluster share what does not depend on their rows", "[jit][nvptx]") {
  const TmaPlan found = plan({}, 8, "sm_90a", 2);
  CHECK(found.cluster == 2);
  REQUIRE(found.streams.size() == 2);
  CHECK_FALSE(found.streams[0].is_shared);
  CHECK(found.streams[1].is_shared);
  CHECK(found.maps.at(0).box == std::vector<uint32_t>{128, 64});
  CHECK(found.maps.at(1).box == std::vector<uint32_t>{64, 64});
}

TEST_CASE("tma plan: equal programs are taken in turn, and their results leave by TMA", "[jit][nvptx]") {
  const TmaPlan found = plan({.stored = DType::bf16});
  CHECK(found.is_persistent);
  REQUIRE(found.store);
  CHECK(found.stored.panel_bytes == 128);
  CHECK(found.maps.size() == 3);
  CHECK_FALSE(plan({}).store);  // the stored type is f32
  // A second loop uses the memory that the operands of a next program would take.
  CHECK(plan({.loops = 2}).refusal.empty());
  CHECK_FALSE(plan({.loops = 2}).is_persistent);
}

TEST_CASE("tma plan: every refusal says what does not fit", "[jit][nvptx]") {
  using Catch::Contains;
  CHECK_THAT(plan({}, 8, "sm_80").refusal, Contains("sm_80 has no wgmma"));
  CHECK_THAT(plan({}, 2).refusal, Contains("2 warps are not 1 or 2 warp groups"));
  CHECK_THAT(plan({.dtype = DType::f32}).refusal, Contains("no f32 operands"));
  CHECK_THAT(plan({.block_m = 64}).refusal, Contains("64 rows are not 64 for each of 2 warp groups"));
  CHECK_THAT(plan({.block_n = 512}, 4).refusal, Contains("512 columns"));
  CHECK_THAT(plan({.block_k = 8}).refusal, Contains("k = 8"));
  CHECK_THAT(plan({.k = 36}).refusal, Contains("aligned to 16 bytes"));
}

TEST_CASE("gpu launch: its text gives it back, and damaged text gives nothing", "[jit][nvptx]") {
  const std::vector<TensorMapSpec> maps = {{5, DType::f16, {1, 128, 64}, 128}, {0, DType::bf16, {64, 32}, 64}};
  const GpuLaunch launch{384, 200000, {2, 1, 1}, true, true, maps, "wgmma"};
  CHECK(parse_gpu_launch(to_text(launch)) == launch);
  CHECK(to_text(GpuLaunch{}).empty());
  CHECK(parse_gpu_launch("") == GpuLaunch{});
  const std::string text = to_text(launch);
  for (const std::string& damaged : {std::string("{"), std::string("{}"), std::string("[1]"), text.substr(1),
                                     text.substr(0, text.size() - 1), std::string("{\"threads\":\"x\"}")})
    CHECK_FALSE(parse_gpu_launch(damaged));
}

TEST_CASE("gpu launch: a persistent kernel has as many blocks as fit, in whole clusters", "[jit][nvptx]") {
  KernelBinary binary;
  binary.gpu.cluster = {2, 1, 1};
  const auto grid = [&](const Grid& programs) { return gpu_grid(binary, programs, 131, "a GPU"); };
  using Sides = std::array<uint32_t, 3>;
  CHECK(grid({5, 6, 7}).blocks == Sides{6, 6, 7});
  binary.gpu.is_persistent = true;
  CHECK(grid({5, 6, 7}).blocks == Sides{130, 1, 1});
  CHECK(grid({5, 6, 7}).programs == std::array<uint64_t, 3>{6, 6, 7});
  CHECK(grid({5, 6, 1}).blocks == Sides{36, 1, 1});
  CHECK(grid({5, 0, 1}).is_empty());
  CHECK_THROWS_WITH(grid({INT32_MAX - 1, 2, 1}), Catch::Contains("programs, a GPU takes at most 2147483647 in turn"));
  binary.gpu.is_cooperative = true;
  CHECK_THROWS_WITH(grid({5, 6, 7}), Catch::Contains("252 blocks wait for each other, a GPU runs 131 at once"));
  CHECK_THROWS_WITH(grid({1, 65536, 1}), Catch::Contains("a grid of 1 x 65536 x 1 programs"));
}

TEST_CASE("gpu launch: a tensor map's facts are innermost first and its strides bytes", "[jit][nvptx]") {
  // The slots have another argument, then base, three sizes and three strides of a [100, 4, 64] view.
  const uint64_t slots[] = {7, 0x1000, 100, 4, 64, 256, 64, 1};
  const TensorMapFacts facts = facts_of({1, DType::bf16, {128, 1, 64}, 128}, slots);
  CHECK(facts.rank == 3);
  CHECK(facts.base == 0x1000);
  CHECK(facts.sizes == std::array<uint64_t, 5>{64, 4, 100});
  CHECK(facts.stride_bytes == std::array<uint64_t, 4>{128, 512});
  CHECK(facts.box == std::array<uint32_t, 5>{64, 1, 128});
}

}  // namespace seqtile::nvptx

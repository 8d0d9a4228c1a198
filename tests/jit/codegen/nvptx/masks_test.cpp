// tests/jit/codegen/nvptx/masks_test.cpp -- masks are skipped where they hold everywhere, and only there.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <functional>
#include <limits>

#include "seqtile/builder.h"
#include "tests/support/ptx/simulated_kernel.h"

namespace seqtile {
namespace {

using testing::Param;
using Mask = std::function<Var(KernelBuilder&, Var columns, Var rows)>;

constexpr int64_t kRows = 32, kColumns = 64;

/// y = mask(column + s, row + t) ? x : -1, for one tile [32, 64].
std::unique_ptr<ir::Function> kernel_of(const Mask& mask) {
  KernelBuilder b("masked");
  b.schedule({{"num_warps", int64_t{2}}});
  Var x = b.view("x", DType::f32, {kRows, kColumns}), y = b.view("y", DType::f32, {kRows, kColumns});
  Var s = b.cast(b.scalar("s", DType::i64), DType::i32), t = b.cast(b.scalar("t", DType::i64), DType::i32);
  Var columns = b.broadcast(b.expand(b.iota(kColumns) + s, 0), {kRows, kColumns});
  Var rows = b.broadcast(b.expand(b.iota(kRows) + t, 1), {kRows, kColumns});
  b.store(y, {0, 0}, b.select(mask(b, columns, rows), b.load(x, {0, 0}, {kRows, kColumns}), -1.0));
  return b.finish();
}

const std::vector<Param> kParams = {{DType::f32, {kRows, kColumns}}, {DType::f32, {kRows, kColumns}, -2, 2, true}};

void check(const Mask& mask, bool is_skipped) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max(), kLeast = std::numeric_limits<int32_t>::min();
  const auto function = kernel_of(mask);
  const std::string text = testing::SimulatedKernel(*function).text();
  CHECK((text.find("bra") != std::string::npos) == is_skipped);
  // The values cut the tile at either end, keep it whole or empty, and let positions exceed their type.
  for (const int64_t s : {int64_t{-100}, int64_t{-64}, int64_t{-63}, int64_t{-31}, int64_t{0}, int64_t{31}, int64_t{32},
                          int64_t{100}, kMost - 63, kMost - 62, kMost - 5, kLeast, kLeast + 31})
    for (const int64_t t : {int64_t{0}, kMost - 31, kMost - 30, kLeast}) {
      INFO("s = " << s << ", t = " << t);
      testing::compare_simulated(*function, {1, 1, 1}, kParams, {s, t});
    }
}

}  // namespace

TEST_CASE("masks: comparisons of positions", "[jit][nvptx][sim]") {
  check([](KernelBuilder&, Var columns, Var rows) { return columns <= rows; }, true);
  check([](KernelBuilder&, Var columns, Var rows) { return columns < rows; }, true);
  check([](KernelBuilder&, Var columns, Var rows) { return columns > rows; }, true);
  check([](KernelBuilder&, Var columns, Var rows) { return columns >= rows - 7; }, true);
}

TEST_CASE("masks: a window is two comparisons", "[jit][nvptx][sim]") {
  check([](KernelBuilder& b, Var columns,
           Var rows) { return b.logical_and(columns <= rows, columns > rows - (kRows + kColumns)); },
        true);
}

TEST_CASE("masks: what is not known from positions is looked at", "[jit][nvptx][sim]") {
  check([](KernelBuilder& b, Var columns, Var rows) { return b.compare(Compare::ne, columns, rows); }, false);
  check([](KernelBuilder&, Var columns, Var rows) { return columns * 3 <= rows; }, false);
}

}  // namespace seqtile

// tests/kernels/rope_test.cpp -- rope's angles up to position 2^24 - 1, and its table.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/rows.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "seqtile/engine.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "tests/support/temp_folder.h"

namespace seqtile::testing {
namespace {

using namespace kernels;

constexpr int64_t kHeadDim = 64, kPairs = kHeadDim / 2;

struct Table {
  explicit Table(const std::vector<double>& turns, double factor = 1) { fill_rope_table(turns, factor, tensor); }
  std::vector<int32_t> words = std::vector<int32_t>(kRopeTableRows * kPairs);
  Tensor tensor = make_tensor(words.data(), DType::i32, {kRopeTableRows, kPairs});
};

}  // namespace

TEST_CASE("rope: position 16,777,215 is as right as position 1", "[kernels]") {
  test::TempFolder folder;
  const autotune::Registry registry = make_registry();
  const auto engine = Engine::open({.threads = 1,
                                    .cache = folder.file("tuning.db"),
                                    .artifacts = folder.file("artifacts.db"),
                                    .policy = MissPolicy::fallback},
                                   registry);
  const auto rope = engine->prepare(Rope{.heads = 1, .kv_heads = 1, .head_dim = kHeadDim});
  std::vector<int32_t> positions = {0, 1, 100, 8191, 100000, 131071, 1000000, 9999999, (1 << 24) - 1};
  const auto count = static_cast<int64_t>(positions.size());
  for (const double theta : {10000.0, 500000.0}) {
    Table table(rope_turns(kHeadDim, theta), 1.5);
    std::vector<float> q(static_cast<size_t>(count * kHeadDim), 0), k = q;
    for (int64_t row = 0; row < count; ++row)
      std::fill_n(q.begin() + row * kHeadDim, kPairs, 1.0f);  // each pair is (1, 0), so its output is (cos, sin)
    const Tensor q_heads = make_tensor(q.data(), DType::f32, {count, 1, kHeadDim}),
                 k_heads = make_tensor(k.data(), DType::f32, {count, 1, kHeadDim});
    rope({.q = q_heads,
          .k = k_heads,
          .positions = make_tensor(positions.data(), DType::i32, {count}),
          .table = table.tensor,
          .q_out = q_heads,
          .k_out = k_heads});
    for (int64_t row = 0; row < count; ++row)
      for (int64_t pair = 0; pair < kPairs; ++pair) {
        const long double frequency = std::pow(static_cast<long double>(theta), -2.0L * static_cast<long double>(pair) /
                                                                                    static_cast<long double>(kHeadDim));
        const long double angle = static_cast<long double>(positions[static_cast<size_t>(row)]) * frequency;
        const float* head = q.data() + row * kHeadDim;
        INFO("theta " << theta << " position " << positions[static_cast<size_t>(row)] << " pair " << pair);
        CHECK(std::abs(head[pair] - 1.5 * static_cast<double>(std::cos(angle))) < 1e-6);
        CHECK(std::abs(head[pair + kPairs] - 1.5 * static_cast<double>(std::sin(angle))) < 1e-6);
      }
  }
}

TEST_CASE("rope: a table of another shape, or of floats, is refused", "[kernels]") {
  const std::vector<double> turns = rope_turns(kHeadDim, 10000);
  Table table(turns);
  Tensor wrong = table.tensor;
  wrong.dtype = DType::f32;
  CHECK_THROWS_WITH(fill_rope_table(turns, 1, wrong), "rope table: must be [3, 32] of i32");
  CHECK_THROWS_AS(fill_rope_table(rope_turns(kHeadDim / 2, 10000), 1, table.tensor), Error);
}

TEST_CASE("rope: a table takes half a turn, whole turns and none", "[kernels]") {
  std::vector<double> turns(kPairs, 0);
  turns[1] = 0.5, turns[2] = 3, turns[3] = -0.25, turns[4] = 0.75;
  const Table table(turns);
  CHECK(table.words[0] == 0);
  CHECK(table.words[1] == std::numeric_limits<int32_t>::min());
  CHECK(table.words[2] == 0);
  CHECK(table.words[3] == -(1 << 30));
  CHECK(table.words[4] == -(1 << 30));
}

}  // namespace seqtile::testing

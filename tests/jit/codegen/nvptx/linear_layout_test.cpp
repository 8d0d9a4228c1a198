// tests/jit/codegen/nvptx/linear_layout_test.cpp -- coverage, conversion, vectors and bank conflicts of layouts.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/layout/linear_layout.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

namespace seqtile::nvptx {
namespace {

/// The number of holders of each element of `shape`, without overhang. Registers that repeat another one count once.
std::map<Coordinates, int> holders(const LinearLayout& layout, Coordinates shape) {
  std::map<Coordinates, int> count;
  for (int warp = 0; warp < layout.num_warps(); ++warp)
    for (int lane = 0; lane < kLanes; ++lane)
      for (int reg = 0; reg < layout.num_registers(); ++reg) {
        const Coordinates at = layout.coordinates(reg, lane, warp);
        bool inside = layout.representative(reg) == reg;
        for (int d = 0; d < kMaxRank; ++d) inside &= at[d] < shape[d];
        if (inside) ++count[at];
      }
  return count;
}

size_t elements(Coordinates shape) { return static_cast<size_t>(shape[0]) * shape[1] * shape[2]; }

}  // namespace

TEST_CASE("linear layout: blocked layouts hold every element equally often", "[jit][nvptx]") {
  const std::vector<std::vector<int64_t>> shapes = {{1},        {7},        {64},      {576},      {1, 576}, {16, 576},
                                                    {3, 64},    {128, 32},  {4, 2304}, {33, 100},  {2, 896}, {64, 8},
                                                    {8, 16, 4}, {1, 1, 64}, {5, 3, 7}, {128, 4096}};
  for (const auto& shape : shapes)
    for (const int vector : {1, 2, 4, 8})
      for (const int warps : {1, 4, 8}) {
        const LinearLayout layout = blocked_layout(shape, vector, warps);
        Coordinates whole{1, 1, 1};
        for (size_t d = 0; d < shape.size(); ++d) whole[d] = static_cast<int32_t>(shape[d]);
        INFO(layout.text());
        CHECK(layout.num_warps() == warps);
        const auto count = holders(layout, whole);
        REQUIRE(count.size() == elements(whole));
        std::set<int> times;
        for (const auto& [at, n] : count) times.insert(n);
        CHECK(times.size() == 1);
        const Coordinates covered = layout.shape();
        for (int d = 0; d < kMaxRank; ++d) CHECK(covered[d] >= whole[d]);
      }
}

TEST_CASE("linear layout: neighbouring lanes of a blocked layout read neighbouring vectors", "[jit][nvptx]") {
  const LinearLayout layout = blocked_layout(std::vector<int64_t>{16, 1024}, 8, 4);
  CHECK(layout.widest_vector(1) == 8);
  CHECK(layout.coordinates(0, 1, 0) == Coordinates{0, 8, 0});
  CHECK(layout.coordinates(0, 31, 0) == Coordinates{0, 248, 0});
  CHECK(layout.coordinates(0, 0, 1) == Coordinates{0, 256, 0});
  CHECK(layout.coordinates(8, 0, 0) == Coordinates{1, 0, 0});
}

TEST_CASE("linear layout: few columns leave lanes to the rows, odd columns overhang", "[jit][nvptx]") {
  // 576 columns are 9 * 64: eight lanes of eight elements cover 64 columns, and the other lanes take further rows.
  const LinearLayout shared = blocked_layout(std::vector<int64_t>{16, 576}, 8, 4);
  CHECK(shared.core_shape() == Coordinates{16, 64, 1});
  CHECK(shared.repeats() == Coordinates{1, 9, 1});
  // One row: all 128 threads lie along it.
  const LinearLayout single = blocked_layout(std::vector<int64_t>{1, 576}, 8, 4);
  CHECK(single.core_shape() == Coordinates{1, 1024, 1});
}

TEST_CASE("linear layout: mma accumulators are where the instruction puts them", "[jit][nvptx]") {
  const LinearLayout layout = mma_layout(64, 48, 2, 2);
  CHECK(layout.core_shape() == Coordinates{32, 16, 1});
  CHECK(layout.repeats() == Coordinates{2, 3, 1});
  for (int lane = 0; lane < kLanes; ++lane)
    for (int reg = 0; reg < 4; ++reg)
      CHECK(layout.coordinates(reg, lane, 0) == Coordinates{lane / 4 + reg / 2 * 8, lane % 4 * 2 + reg % 2, 0});
  CHECK(holders(layout, {64, 48, 1}).size() == 64 * 48);
}

TEST_CASE("linear layout: slices replicate, and broadcasts find their operand", "[jit][nvptx]") {
  const LinearLayout layout = mma_layout(64, 32, 4, 1), rows = layout.without(1);
  CHECK(rows.rank() == 1);
  CHECK(rows.shape() == Coordinates{64, 1, 1});
  for (int lane = 0; lane < kLanes; ++lane)
    for (int reg = 0; reg < layout.num_registers(); ++reg) {
      const int row = layout.coordinates(reg, lane, 1)[0];
      bool found = false;
      for (int r = 0; r < rows.num_registers(); ++r) found |= rows.coordinates(r, lane, 1)[0] == row;
      CHECK(found);
    }
  CHECK(rows.with(1) == layout.collapsed(1));
  CHECK(rows.representative(1) == 0);  // the layout lacks the column bit
}

TEST_CASE("linear layout: conversions need registers only, or shared memory", "[jit][nvptx]") {
  const LinearLayout blocked = blocked_layout(std::vector<int64_t>{32, 64}, 4, 2);
  CHECK(conversion(blocked, blocked) == Conversion::none);
  CHECK(conversion(blocked, mma_layout(32, 64, 2, 1)) == Conversion::shared_memory);

  LinearLayout swapped(2);
  const auto bases = blocked.bases(LinearLayout::registers);
  for (size_t i = bases.size(); i-- > 0;) swapped.add(LinearLayout::registers, bases[i]);
  for (const Coordinates& base : blocked.bases(LinearLayout::lanes)) swapped.add(LinearLayout::lanes, base);
  for (const Coordinates& base : blocked.bases(LinearLayout::warps)) swapped.add(LinearLayout::warps, base);
  swapped.repeat(blocked.repeats());
  REQUIRE(conversion(blocked, swapped) == Conversion::permute_registers);
  const auto sources = register_sources(blocked, swapped);
  for (int reg = 0; reg < swapped.num_registers(); ++reg)
    for (const int lane : {0, 5, 31})
      CHECK(blocked.coordinates(sources[static_cast<size_t>(reg)], lane, 1) == swapped.coordinates(reg, lane, 1));
}

TEST_CASE("linear layout: a transposed tile keeps its threads", "[jit][nvptx]") {
  const LinearLayout layout = blocked_layout(std::vector<int64_t>{16, 64}, 4, 2);
  const LinearLayout turned = layout.permuted(std::vector<int64_t>{1, 0});
  for (int reg = 0; reg < layout.num_registers(); ++reg) {
    const Coordinates at = layout.coordinates(reg, 7, 1);
    CHECK(turned.coordinates(reg, 7, 1) == Coordinates{at[1], at[0], 0});
  }
  CHECK(layout.widest_vector(1) == 4);
  CHECK(turned.widest_vector(1) == 1);
  CHECK(turned.widest_vector(0) == 4);
}

TEST_CASE("linear layout: eight swizzled rows are read without bank conflicts", "[jit][nvptx]") {
  // ldmatrix: eight lanes give the addresses of eight rows, with the same 16-byte chunk in each.
  for (const int64_t row_bytes : {32, 64, 96, 128, 192, 256, 384, 1024}) {
    const SharedLayout layout(row_bytes);
    for (int64_t first : {0, 8}) {
      for (int64_t chunk = 0; chunk < row_bytes / 16; ++chunk) {
        std::vector<int64_t> offsets;
        for (int64_t row = first; row < first + 8; ++row) offsets.push_back(layout.offset(row, chunk * 16));
        INFO(row_bytes << " bytes a row, chunk " << chunk);
        CHECK(bank_conflicts(offsets, 16) == 0);
      }
    }
  }
  std::vector<int64_t> plain;
  for (int row = 0; row < 8; ++row) plain.push_back(row * 128);
  CHECK(bank_conflicts(plain, 16) == 7);
}

TEST_CASE("linear layout: four rows and two chunks are read a word a lane without bank conflicts", "[jit][nvptx]") {
  for (const int64_t row_bytes : {64, 128, 192, 256, 384}) {
    const SharedLayout layout(row_bytes, 2);
    for (int64_t column = 0; column < row_bytes / 4; column += 8) {
      std::vector<int64_t> offsets;
      for (int64_t lane = 0; lane < kLanes; ++lane) offsets.push_back(layout.offset(lane % 4, (column + lane / 4) * 4));
      INFO(row_bytes << " bytes a row, column " << column);
      CHECK(bank_conflicts(offsets, 4) == 0);
    }
  }
}

TEST_CASE("linear layout: rows of 128 bytes are swizzled as TMA does it", "[jit][nvptx]") {
  const SharedLayout layout(128);
  for (int row = 0; row < 16; ++row)
    for (int byte = 0; byte < 128; ++byte) {
      const int64_t plain = row * 128 + byte;
      CHECK(layout.offset(row, byte) == (plain ^ ((plain >> 7 & 7) << 4)));
    }
}

TEST_CASE("linear layout: a swizzle moves every byte to a place of its own", "[jit][nvptx]") {
  for (const int64_t row_bytes : {16, 32, 64, 96, 128, 192, 256}) {
    const SharedLayout layout(row_bytes);
    std::set<int64_t> seen;
    for (int row = 0; row < 16; ++row)
      for (int64_t byte = 0; byte < row_bytes; ++byte) seen.insert(layout.offset(row, byte));
    CHECK(static_cast<int64_t>(seen.size()) == 16 * row_bytes);
    CHECK(*seen.rbegin() == 16 * row_bytes - 1);
  }
}

TEST_CASE("linear layout: bank conflicts are counted per group of lanes", "[jit][nvptx]") {
  std::vector<int64_t> offsets(kLanes);
  for (int lane = 0; lane < kLanes; ++lane) offsets[static_cast<size_t>(lane)] = lane * 4;
  CHECK(bank_conflicts(offsets, 4) == 0);
  for (int lane = 0; lane < kLanes; ++lane) offsets[static_cast<size_t>(lane)] = lane * 8;
  CHECK(bank_conflicts(offsets, 4) == 1);
  CHECK(bank_conflicts(offsets, 8) == 0);
  for (int lane = 0; lane < kLanes; ++lane) offsets[static_cast<size_t>(lane)] = 64;
  CHECK(bank_conflicts(offsets, 4) == 0);  // all lanes read one address
  for (int lane = 0; lane < kLanes; ++lane) offsets[static_cast<size_t>(lane)] = lane * 128;
  CHECK(bank_conflicts(offsets, 4) == 31);
}

TEST_CASE("linear layout: what an accumulator holds is what the next product's operand needs", "[jit][nvptx]") {
  for (const int warps : {1, 4, 8})
    for (const int64_t m : {16 * warps, 32 * warps})
      for (const int64_t k : {16, 64, 128}) {
        const LinearLayout sums = mma_layout(m, k, warps, 1), operand = mma_operand_layout(m, k, warps, 1);
        INFO(sums.text() << " to " << operand.text());
        REQUIRE(conversion(sums, operand) == Conversion::permute_registers);
        const std::vector<int> sources = register_sources(sums, operand);
        for (int warp = 0; warp < warps; ++warp)
          for (int lane = 0; lane < kLanes; ++lane)
            for (int reg = 0; reg < operand.num_registers(); ++reg)
              REQUIRE(operand.coordinates(reg, lane, warp) ==
                      sums.coordinates(sources[static_cast<size_t>(reg)], lane, warp));
      }
  // Adjacent warps hold different columns, and each warp needs all of them.
  CHECK(conversion(mma_layout(32, 64, 2, 2), mma_operand_layout(32, 64, 2, 2)) == Conversion::shared_memory);
}

}  // namespace seqtile::nvptx

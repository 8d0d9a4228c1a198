// tests/kernels/seqpar/exchange/row_layout_test.cpp -- the rows that a rank owns, against a plain list of them.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/seqpar.h"

#include "kernels/seqpar/exchange/row_layout.h"

#include <catch2/catch.hpp>
#include <algorithm>
#include <vector>

using namespace seqtile::kernels;
using seqpar::RowLayout;

namespace {

/// Rows of the sequence that a rank owns, one by one by the rules of RowLayout.
std::vector<int64_t> owned_rows(RowLayout layout, int rank, int64_t length, int world_size) {
  const bool is_zigzag = layout == RowLayout::zigzag;
  const int64_t chunks = is_zigzag ? 2 * world_size : world_size;
  std::vector<int64_t> rows;
  const auto append = [&](int64_t chunk) {
    for (int64_t row = chunk * length / chunks; row < (chunk + 1) * length / chunks; ++row) rows.push_back(row);
  };
  append(rank);
  if (is_zigzag) append(chunks - 1 - rank);
  return rows;
}

}  // namespace

TEST_CASE("row layout: every row has one owner, rows of a rank are in order, and none has more than most_rows",
          "[seqpar]") {
  for (const auto& [layout, name] : {std::pair{RowLayout::contiguous, "contiguous"}, {RowLayout::zigzag, "zigzag"}}) {
    CHECK(seqpar::kRowLayoutNames[static_cast<size_t>(layout)] == name);
    for (int world_size = 1; world_size <= 9; ++world_size)
      for (int64_t length = 0; length <= 100; ++length)
        for (int rank = 0; rank < world_size; ++rank) {
          const std::vector<int64_t> rows = owned_rows(layout, rank, length, world_size);
          std::vector<int32_t> positions(rows.size());
          seqpar::fill_positions(layout, rank, length, world_size, positions);
          REQUIRE(std::ranges::equal(rows, positions));
          REQUIRE(std::ranges::is_sorted(rows));
          REQUIRE(seqpar::num_rows(layout, rank, length, world_size) == static_cast<int64_t>(rows.size()));
          for (int64_t more = length; more < length + 2 * world_size; ++more)
            REQUIRE(seqpar::most_rows(layout, more, world_size) >= static_cast<int64_t>(rows.size()));
          for (size_t i = 0; i < rows.size(); ++i) {
            const auto place = seqpar::place_of_row(layout, rows[i], length, world_size);
            REQUIRE((place.rank == rank && place.row == static_cast<int64_t>(i)));
          }
        }
  }
}

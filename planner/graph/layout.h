// planner/graph/layout.h -- a layout: how a tensor lies on a device mesh, in one integer.
// SPDX-License-Identifier: Apache-2.0
//
// Each axis of the mesh is in one of three states: it cuts a dimension of the tensor, its devices have partial sums, or
// its devices have copies. The lowest of several axes that cut one dimension is the outermost.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <string>

namespace seqtile::planner {

constexpr int kMaxAxes = 3;  ///< axes of a mesh
constexpr int kMaxRank = 8;  ///< dimensions of a tensor

/// A set of mesh axes: bit a stands for axis a.
using AxisSet = uint32_t;

class Layout {
 public:
  /// The axes that cut a dimension.
  constexpr AxisSet axes_of(int dim) const { return bits_ >> (dim * kMaxAxes) & kAll; }
  /// The axes whose devices have partial sums.
  constexpr AxisSet partial() const { return bits_ >> (kMaxRank * kMaxAxes) & kAll; }
  /// The axes that cut any dimension.
  constexpr AxisSet cutting() const {
    AxisSet axes = 0;
    for (int dim = 0; dim < kMaxRank; ++dim) axes |= axes_of(dim);
    return axes;
  }
  /// The layout with exactly `axes` cutting `dim`.
  constexpr Layout with(int dim, AxisSet axes) const { return with_bits(dim * kMaxAxes, axes); }
  constexpr Layout with_partial(AxisSet axes) const { return with_bits(kMaxRank * kMaxAxes, axes); }
  constexpr bool operator==(const Layout&) const = default;
  constexpr uint32_t bits() const { return bits_; }

 private:
  static constexpr AxisSet kAll = (1u << kMaxAxes) - 1;
  constexpr Layout with_bits(int at, AxisSet axes) const {
    Layout layout;
    layout.bits_ = (bits_ & ~(kAll << at)) | axes << at;
    return layout;
  }

  uint32_t bits_ = 0;  ///< an axis set for each dimension, then the set of partial sums
};

constexpr int first_axis(AxisSet axes) { return std::countr_zero(axes); }
constexpr int last_axis(AxisSet axes) { return std::bit_width(axes) - 1; }

/// Names of axis sets: "R", "S0", "S01".
/// Errors of parse_axes: invalid_argument on any other text.
std::string axes_name(AxisSet axes);
AxisSet parse_axes(const std::string& name);
/// The layout as "[S0, R]". Partial sums over axis 1 append "+P1".
std::string layout_name(Layout layout, int rank);

/// Price of bringing a dimension from one axis set to another, in the units of the search of compat_reshard.h. Axes
/// leave and come at the inner end, each for a price. Each step but the first costs a penalty.
constexpr int axes_difference(AxisSet from, AxisSet to) {
  constexpr int kGather = 20, kShard = 5, kStep = 6;
  AxisSet common = 0;  // the outermost axes that both have
  for (int axis = 0; axis < kMaxAxes; ++axis) {
    const AxisSet bit = 1u << axis;
    if ((from & bit) != (to & bit)) break;
    common |= from & bit;
  }
  const int gathers = std::popcount(from & ~common), shards = std::popcount(to & ~common);
  const int steps = gathers + shards;
  return steps == 0 ? 0 : gathers * kGather + shards * kShard + (steps - 1) * kStep;
}

using DifferenceTable = std::array<std::array<uint8_t, 1 << kMaxAxes>, 1 << kMaxAxes>;

constexpr DifferenceTable make_difference_table() {
  DifferenceTable table{};
  for (AxisSet from = 0; from < table.size(); ++from)
    for (AxisSet to = 0; to < table.size(); ++to) table[from][to] = static_cast<uint8_t>(axes_difference(from, to));
  return table;
}

inline constexpr DifferenceTable kDifferences = make_difference_table();

// Rows and columns of the table for a mesh of two axes: R, S0, S1, S01.
static_assert(kDifferences[0][1] == 5 && kDifferences[0][2] == 5 && kDifferences[0][3] == 16);
static_assert(kDifferences[1][0] == 20 && kDifferences[1][2] == 31 && kDifferences[1][3] == 5);
static_assert(kDifferences[2][0] == 20 && kDifferences[2][1] == 31 && kDifferences[2][3] == 42);
static_assert(kDifferences[3][0] == 46 && kDifferences[3][1] == 20 && kDifferences[3][2] == 57);
static_assert(kDifferences[0][0] == 0 && kDifferences[1][1] == 0 && kDifferences[2][2] == 0 && kDifferences[3][3] == 0);

}  // namespace seqtile::planner

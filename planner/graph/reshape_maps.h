// planner/graph/reshape_maps.h -- which dimensions of a result are which of the input, where elements only move.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "planner/graph/node_view.h"

namespace seqtile::planner {

/// A text that is a number.
std::optional<int> number_of(const std::string& text);

/// The dimensions of an operator that works along some: "dim=1" wherever it is, else the numbers behind the first
/// argument. Counted from 0.
std::vector<int> dims_of(const Node& node, size_t rank);

/// By result dimension: the input's. Not of a permutation that the arguments do not say, or say wrongly.
std::optional<std::vector<int>> permutation_of(const Node& node, int rank);

/// Dimensions from..end of one shape that hold the elements of to..to_end of another.
struct ViewGroup {
  size_t from, from_end, to, to_end;
};
/// The smallest groups, in order; nothing where the shapes have different numbers of elements.
std::optional<std::vector<ViewGroup>> view_groups(const Shape& from, const Shape& to);

}  // namespace seqtile::planner

// planner/graph/reshape_maps.h -- which input dimension becomes which result dimension where elements only move.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "planner/graph/node_view.h"

namespace seqtile::planner {

/// The number that the whole text spells, if it does.
std::optional<int> number_of(const std::string& text);

/// The dimensions that an operator's arguments name, counted from 0. These are all "dim=1" arguments or, without one,
/// the numbers that follow the first argument.
std::vector<int> dims_of(const Node& node, size_t rank);

/// The input dimension of each result dimension. Empty where the arguments do not give a valid permutation.
std::optional<std::vector<int>> permutation_of(const Node& node, int rank);

/// Dimensions [from, from_end) of one shape that hold the elements of dimensions [to, to_end) of another.
struct ViewGroup {
  size_t from, from_end, to, to_end;
};
/// The smallest groups, in order. Empty where the shapes have different numbers of elements.
std::optional<std::vector<ViewGroup>> view_groups(const Shape& from, const Shape& to);

}  // namespace seqtile::planner

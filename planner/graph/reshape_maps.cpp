// planner/graph/reshape_maps.cpp -- see reshape_maps.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/reshape_maps.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>

namespace seqtile::planner {

std::optional<int> number_of(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<int> dims_of(const Node& node, size_t rank) {
  constexpr std::string_view kDim = "dim=";
  std::vector<int> dims;
  const auto add = [&](const std::optional<int>& dim) {
    const int size = static_cast<int>(rank);
    if (dim && *dim >= -size && *dim < size) dims.push_back(*dim < 0 ? *dim + size : *dim);
    return dim.has_value();
  };
  for (const std::string& argument : node.arguments)
    if (argument.starts_with(kDim)) add(number_of(argument.substr(kDim.size())));
  for (size_t i = 1, named = dims.size(); named == 0 && i < node.arguments.size(); ++i)
    if (!add(number_of(node.arguments[i]))) break;
  return dims;
}

std::optional<std::vector<int>> permutation_of(const Node& node, int rank) {
  std::vector<int> places, order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 1; i < node.arguments.size(); ++i)
    if (const auto place = number_of(node.arguments[i])) places.push_back(*place < 0 ? *place + rank : *place);
  if (node.target.ends_with("permute"))
    return std::ranges::is_permutation(places, order) ? std::optional(places) : std::nullopt;
  if (places.empty()) places = {rank - 2, rank - 1};  // t()
  if (places.size() != 2 || std::ranges::any_of(places, [&](int dim) { return dim < 0 || dim >= rank; }))
    return std::nullopt;
  std::swap(order[static_cast<size_t>(places[0])], order[static_cast<size_t>(places[1])]);
  return order;
}

std::optional<std::vector<ViewGroup>> view_groups(const Shape& from, const Shape& to) {
  std::vector<ViewGroup> groups;
  size_t f = 0, t = 0;
  while (f < from.size() || t < to.size()) {
    ViewGroup group{f, f, t, t};
    int64_t of_f = f < from.size() ? from[f++] : 1, of_t = t < to.size() ? to[t++] : 1;
    while (of_f != of_t) {
      if (of_f < of_t && f < from.size()) of_f *= from[f++];
      else if (of_t < of_f && t < to.size()) of_t *= to[t++];
      else return std::nullopt;
    }
    group.from_end = f, group.to_end = t;
    groups.push_back(group);
  }
  return groups;
}

}  // namespace seqtile::planner

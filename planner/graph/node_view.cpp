// planner/graph/node_view.cpp -- see node_view.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/node_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace seqtile::planner {

bool NodeView::has_inputs(size_t count) const {
  for (size_t i = 0; i < node_.inputs.size(); ++i)
    if (input(i).results.size() != 1) return false;
  return node_.inputs.size() == count && node_.results.size() == 1;
}

const Shape* NodeView::parameter(const char* name) const {
  const auto found = node_.parameters.find(name);
  return found == node_.parameters.end() ? nullptr : &found->second;
}

void UnknownOperators::add(const Node& node) {
  const std::string name = operator_name(node);
  const auto found = std::ranges::find(all, name, &One::name);
  if (found == all.end()) all.push_back({name, node.name, 1});
  else ++found->count;
}

int UnknownOperators::count() const {
  int nodes = 0;
  for (const One& one : all) nodes += one.count;
  return nodes;
}

std::string UnknownOperators::text() const {
  std::string text;
  for (const One& one : all) {
    const std::string others =
        one.count == 1 ? "" : fmt::format(" and {} other{}", one.count - 1, one.count > 2 ? "s" : "");
    text += fmt::format("{}{} (node {}{})", text.empty() ? "" : ", ", one.name, one.node, others);
  }
  return text;
}

int count_operators(const Graph& graph) {
  return static_cast<int>(
      std::ranges::count_if(graph.nodes, [](const Node& node) { return node.op.starts_with("call_"); }));
}

std::string operator_name(const Node& node) {
  if (!node.module.empty()) return node.module;
  const size_t dot = node.target.rfind('.');
  return dot == std::string::npos ? node.target : node.target.substr(dot + 1);
}

bool is_view(const Node& node) {
  constexpr std::string_view kViews[] = {
      "view",         "_unsafe_view", "reshape", "Flatten",    "flatten",        "Unflatten",        "unflatten",
      "unsqueeze",    "squeeze",      "view_as", "reshape_as", "permute",        "transpose",        "t",
      "swapaxes",     "swapdims",     "numpy_T", "mT",         "split",          "split_with_sizes", "chunk",
      "tensor_split", "getitem",      "slice",   "narrow",     "select",         "unbind",           "expand",
      "expand_as",    "broadcast_to", "alias",   "detach",     "lift_fresh_copy"};
  return !node.inputs.empty() && std::ranges::find(kViews, operator_name(node)) != std::end(kViews);
}

}  // namespace seqtile::planner

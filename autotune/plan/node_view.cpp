// autotune/plan/node_view.cpp -- see node_view.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/plan/node_view.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace seqtile::plan {

bool NodeView::has_inputs(size_t count) const {
  for (size_t i = 0; i < node_.inputs.size(); ++i)
    if (input(i).results.size() != 1) return false;
  return node_.inputs.size() == count && node_.results.size() == 1;
}

const Shape* NodeView::parameter(const char* name) const {
  const auto found = node_.parameters.find(name);
  return found == node_.parameters.end() ? nullptr : &found->second;
}

void add_unknown(std::vector<std::string>& unknown, const Node& node) {
  const std::string name = operator_name(node) + " (node ";
  for (const std::string& other : unknown)
    if (other.starts_with(name)) return;
  unknown.push_back(name + node.name + ")");
}

std::string operator_name(const Node& node) {
  if (!node.module.empty()) return node.module;
  const size_t dot = node.target.rfind('.');
  return dot == std::string::npos ? node.target : node.target.substr(dot + 1);
}

bool is_view(const Node& node) {
  constexpr std::string_view kViews[] = {"view",    "reshape",   "Flatten", "flatten", "unsqueeze", "squeeze",
                                         "permute", "transpose", "t",       "split",   "chunk",     "getitem"};
  return !node.inputs.empty() && std::ranges::find(kViews, operator_name(node)) != std::end(kViews);
}

}  // namespace seqtile::plan

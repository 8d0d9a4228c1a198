// planner/graph/shared_parameters.cpp -- see shared_parameters.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/shared_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "seqtile/error.h"

namespace seqtile::planner {
namespace {

bool has_own(const Node& node) { return node.op == "call_module" && !node.parameters.empty() && !node.target.empty(); }

/// Targets that several nodes call. Errors: invalid_argument if their parameters differ.
std::set<std::string> shared_targets(const Graph& graph) {
  std::map<std::string, const Node*> first;
  std::set<std::string> shared;
  for (const Node& node : graph.nodes) {
    if (!has_own(node)) continue;
    const auto [place, is_new] = first.try_emplace(node.target, &node);
    if (is_new) continue;
    if (place->second->parameters != node.parameters)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("nodes {} and {} call module {} with different \"params\"; a module has the same ones in "
                              "each call",
                              place->second->name, node.name, node.target));
    shared.insert(node.target);
  }
  return shared;
}

/// Names with weights before biases, the order of an operator's inputs.
std::vector<std::string> in_order(const std::map<std::string, std::vector<int64_t>>& parameters) {
  std::vector<std::string> names;
  for (const auto& [name, shape] : parameters) names.push_back(name);
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return name.find("bias") == std::string::npos; });
  return names;
}

std::string new_name(const std::string& target, std::set<std::string>& taken) {
  std::string name = target;
  std::ranges::replace(name, '.', '_');
  while (!taken.insert(name).second) name += "_";
  return name;
}

}  // namespace

void share_parameters(Graph& graph) {
  const std::set<std::string> shared = shared_targets(graph);
  if (shared.empty()) return;
  std::set<std::string> taken;
  for (const Node& node : graph.nodes) taken.insert(node.name);
  std::vector<Node> nodes;
  std::vector<int> places;                // of the old nodes
  std::map<std::string, int> parameters;  // by "target.name"
  for (Node& node : graph.nodes) {
    for (int& input : node.inputs) input = places[static_cast<size_t>(input)];
    if (has_own(node) && shared.contains(node.target)) {
      for (const std::string& name : in_order(node.parameters)) {
        const std::string target = node.target + "." + name;
        if (!parameters.contains(target)) {
          Node parameter;
          parameter.name = new_name(target, taken), parameter.op = "get_attr", parameter.target = target;
          parameter.results = {{node.parameters[name], node.results.front().dtype, node.results.front().element_bytes}};
          parameters[target] = static_cast<int>(nodes.size());
          nodes.push_back(std::move(parameter));
        }
        node.inputs.push_back(parameters[target]);
      }
      node.parameters.clear();
    }
    places.push_back(static_cast<int>(nodes.size()));
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
}

double count_parameters(const Graph& graph) {
  double count = 0;
  const auto add = [&](const std::vector<int64_t>& shape) {
    double elements = 1;
    for (const int64_t size : shape) elements *= static_cast<double>(size);
    count += elements;
  };
  for (const Node& node : graph.nodes) {
    if (node.op == "get_attr" && node.role != Role::buffer) add(node.results.front().shape);
    for (const auto& [name, shape] : node.parameters) add(shape);
  }
  return count;
}

}  // namespace seqtile::planner

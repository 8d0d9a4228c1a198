// tools/cli/plan/plan_text.cpp -- a plan as text for Graphviz and for PyTorch.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "cache/database/text.h"
#include "planner/solver/plan_costs.h"
#include "tools/cli/plan/plan.h"

namespace seqtile::cli {
namespace {

/// Escapes a text for the quotation marks of DOT and Python.
std::string in_quotes(const std::string& text) {
  std::string result;
  for (const char c : cache::one_line(text, text.size())) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

/// The placements of a layout, "[Shard(0), Replicate()]".
std::string placements(const planner::Mesh& mesh, planner::Layout layout) {
  std::string text = "[";
  for (int axis = 0; axis < mesh.num_axes; ++axis) {
    std::string state = layout.partial() >> axis & 1 ? "Partial()" : "Replicate()";
    for (int dim = 0; dim < planner::kMaxRank; ++dim)
      if (layout.axes_of(dim) >> axis & 1) state = fmt::format("Shard({})", dim);
    text += (axis ? ", " : "") + state;
  }
  return text + "]";
}

/// The placements of one tensor, or of a tuple of tensors.
std::string placements(const planner::Mesh& mesh, const std::vector<planner::Layout>& layouts, bool is_tuple) {
  if (!is_tuple) return layouts.empty() ? "None" : placements(mesh, layouts.front());
  std::string text = "(";
  for (const planner::Layout& layout : layouts) text += placements(mesh, layout) + ", ";
  return text + ")";
}

/// The layouts of operands without partial sums, which stand for the gradients' partial sums.
std::vector<planner::Layout> values_of(std::vector<planner::Layout> layouts) {
  for (planner::Layout& layout : layouts) layout = layout.with_partial(0);
  return layouts;
}

/// Layouts of parameters by qualified name, such as "layers.0.weight". A module's own parameters go by its path.
using Parameters = std::vector<std::pair<std::string, planner::Layout>>;

Parameters parameters_of(const planner::Node& node, const planner::Strategy& strategy) {
  Parameters result;
  if (node.op == "get_attr" && !strategy.results.empty())
    result.emplace_back(node.target.empty() ? node.name : node.target, strategy.results.front());
  for (const auto& [name, shape] : node.parameters)
    result.emplace_back((node.target.empty() ? node.name : node.target) + "." + name,
                        planner::parameter_layout(node, strategy, name));
  return result;
}

}  // namespace

std::string plan_dot(const Priced& priced, const planner::Solution& solution) {
  const std::vector<planner::Node>& nodes = priced.graph.nodes;
  const auto costs = planner::operator_costs(priced.graph, priced.problem, solution.choices);
  std::string text =
      "digraph plan {\n  node [shape=box, fontname=\"sans-serif\", fontsize=11];\n"
      "  edge [fontname=\"sans-serif\", fontsize=10];\n";
  const auto out = std::back_inserter(text);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::string& strategy = nodes[i].strategies[static_cast<size_t>(solution.choices[i])].name;
    fmt::format_to(out, "  n{} [label=\"{}\\n{}\\n{:.4g}\"];\n", i, in_quotes(nodes[i].name), in_quotes(strategy),
                   costs[i].total());
  }
  for (const planner::Transfer& edge : planner::transfers(priced.graph, priced.problem, solution.choices)) {
    const bool is_free = edge.cost == 0;
    fmt::format_to(out, "  n{} -> n{} [{}];\n", edge.producer, edge.consumer,
                   is_free ? "color=\"#a0a0a0\"" : fmt::format("label=\"{:.4g}\", color=\"#d1495b\"", edge.cost));
  }
  return text + "}\n";
}

std::string plan_dtensor(const Priced& priced, const planner::Solution& solution) {
  const planner::Graph& graph = priced.graph;
  std::string mesh, parameters, activations;
  for (int axis = 0; axis < graph.mesh.num_axes; ++axis)
    mesh += fmt::format("{}{}", axis ? ", " : "", graph.mesh.shape[static_cast<size_t>(axis)]);
  if (graph.mesh.num_axes == 1) mesh += ",";
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const planner::Node& node = graph.nodes[i];
    const planner::Strategy& strategy = node.strategies[static_cast<size_t>(solution.choices[i])];
    for (const auto& [name, layout] : parameters_of(node, strategy))
      parameters += fmt::format("    \"{}\": {},\n", in_quotes(name), placements(graph.mesh, layout));
    std::string inputs;
    for (size_t j = 0; j < node.inputs.size(); ++j) {
      const planner::Node& input = graph.nodes[static_cast<size_t>(node.inputs[j])];
      inputs += (j ? ", " : "") + placements(graph.mesh, values_of(strategy.operands[j]), input.is_tuple);
    }
    activations += fmt::format("    \"{}\": {{\"inputs\": [{}], \"output\": {}}},\n", in_quotes(node.name), inputs,
                               placements(graph.mesh, strategy.results, node.is_tuple));
  }
  return fmt::format(
      "# Placements by axis of the mesh: parameters by qualified name; activations by operator, with the placements "
      "that\n# its inputs must have and the placement of its output.\n"
      "from torch.distributed.tensor import Partial, Replicate, Shard\n\n"
      "mesh_shape = ({})\n\nparameters = {{\n{}}}\n\nactivations = {{\n{}}}\n",
      mesh, parameters, activations);
}

}  // namespace seqtile::cli

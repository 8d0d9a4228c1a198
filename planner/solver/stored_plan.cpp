// planner/solver/stored_plan.cpp -- see stored_plan.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/stored_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "jit/base/hash.h"
#include "planner/graph/graph_json.h"
#include "planner/graph/json_reader.h"
#include "planner/solver/live_spans.h"

namespace seqtile::planner {
namespace {

using Ordered = nlohmann::ordered_json;

/// The layout as "S0 R"; partial sums append " P1". Every cut dimension has a word, even beyond `rank`.
std::string layout_text(Layout layout, size_t rank) {
  for (size_t dim = rank; dim < kMaxRank; ++dim)
    if (layout.axes_of(static_cast<int>(dim)) != 0) rank = dim + 1;
  std::string text;
  for (size_t dim = 0; dim < rank; ++dim) text += (dim ? " " : "") + axes_name(layout.axes_of(static_cast<int>(dim)));
  if (layout.partial() != 0) text += (text.empty() ? "P" : " P") + axes_name(layout.partial()).substr(1);
  return text;
}

Layout parse_layout(const Reader& json) {
  Layout layout;
  std::istringstream words(json.text());
  int dim = 0;
  for (std::string word; words >> word;) {
    const bool is_partial = word.starts_with("P");
    if (is_partial) word[0] = 'S';
    if (!is_partial && dim == kMaxRank) json.refuse("too many dimensions");
    const AxisSet axes = parse_axes(word);
    layout = is_partial ? layout.with_partial(axes) : layout.with(dim++, axes);
  }
  return layout;
}

/// One text for each member of the node's result.
Ordered layouts_json(const std::vector<Layout>& layouts, const Node& of) {
  Ordered texts = Ordered::array();
  for (size_t i = 0; i < layouts.size(); ++i)
    texts.push_back(layout_text(layouts[i], i < of.results.size() ? of.results[i].shape.size() : 0));
  return texts;
}

std::vector<Layout> read_layouts(const Reader& json) {
  std::vector<Layout> layouts;
  json.each([&](const Reader& layout) { layouts.push_back(parse_layout(layout)); });
  return layouts;
}

Ordered operator_json(const Planned& plan, size_t i) {
  const Node& node = plan.graph.nodes[i];
  const auto choice = static_cast<size_t>(plan.solution.choices[i]);
  const Strategy& strategy = node.strategies[choice];
  Ordered inputs = Ordered::array(), parameters = Ordered::object();
  for (size_t j = 0; j < strategy.operands.size(); ++j)
    inputs.push_back(layouts_json(strategy.operands[j], plan.graph.nodes[static_cast<size_t>(node.inputs[j])]));
  for (const auto& [name, layout] : strategy.parameters) {
    const auto shape = node.parameters.find(name);
    parameters[name] = layout_text(layout, shape == node.parameters.end() ? 0 : shape->second.size());
  }
  return {{"name", node.name},
          {"strategy", strategy.name},
          {"inputs", std::move(inputs)},
          {"result", layouts_json(strategy.results, node)},
          {"parameters", std::move(parameters)},
          {"compute", strategy.compute},
          {"communication", strategy.communication},
          {"cost", plan.problem.costs[i][choice]},
          {"memory", plan.problem.memory[i][choice]},
          {"activation", strategy.activation},
          {"gradient", strategy.gradient},
          {"kernels", strategy.kernels},
          {"measured", strategy.measured},
          {"merge", node.merges}};
}

Ordered unknown_json(const UnknownOperators& unknown) {
  Ordered rows = Ordered::array();
  for (const auto& one : unknown.all)
    rows.push_back({{"operator", one.name}, {"node", one.node}, {"count", one.count}});
  return rows;
}

void read_operator(const Reader& json, size_t i, Planned& plan) {
  Node& node = plan.graph.nodes[i];
  if (json["name"].text() != node.name) json["name"].refuse("another graph's operator");
  if (json["inputs"].size() > node.inputs.size()) json["inputs"].refuse("more than the operator has");
  Strategy strategy;
  strategy.name = json["strategy"].text();
  json["inputs"].each([&](const Reader& input) { strategy.operands.push_back(read_layouts(input)); });
  strategy.results = read_layouts(json["result"]);
  for (const auto& [name, layout] : json["parameters"].json().items())
    strategy.parameters[name] = parse_layout(json["parameters"][name.c_str()]);
  strategy.compute = json["compute"].number();
  strategy.communication = json["communication"].number();
  strategy.memory = json["memory"].number();
  strategy.activation = json["activation"].number();
  strategy.gradient = json["gradient"].number();
  strategy.kernels = static_cast<int>(json["kernels"].integer(0, 1 << 20));
  strategy.measured = static_cast<int>(json["measured"].integer(0, 1 << 20));
  plan.problem.memory.push_back({strategy.memory});
  node.merges = json["merge"].as<bool>("true or false");
  node.strategies = {std::move(strategy)};
  plan.problem.costs.push_back({json["cost"].number()});
  plan.problem.follows.push_back(-1);
  plan.solution.choices.push_back(0);
}

}  // namespace

std::string graph_hash(const Graph& graph) {
  std::string text = graph_json(graph);
  for (const Node& node : graph.nodes) {
    for (const Strategy& strategy : node.strategies) {
      text += fmt::format("{}|{}|{}|{}|", strategy.name, strategy.compute, strategy.communication, strategy.memory);
      for (const auto& operand : strategy.operands) {
        for (const Layout layout : operand) text += fmt::format("{},", layout.bits());
        text += ';';
      }
      for (const Layout layout : strategy.results) text += fmt::format("{},", layout.bits());
    }
    text += '\n';
  }
  return sha256_hex(text);
}

std::string plan_text(const Planned& plan) {
  const Choices& choices = plan.solution.choices;
  Ordered operators = Ordered::array(), changes = Ordered::array();
  for (size_t i = 0; i < choices.size(); ++i) operators.push_back(operator_json(plan, i));
  for (const Edge& edge : plan.problem.edges) {
    const auto producer = static_cast<size_t>(edge.producer), consumer = static_cast<size_t>(edge.consumer);
    const size_t row = static_cast<size_t>(choices[producer]) * plan.problem.costs[consumer].size();
    changes.push_back({plan.graph.nodes[producer].name, plan.graph.nodes[consumer].name,
                       edge.cost[row + static_cast<size_t>(choices[consumer])]});
  }
  const Ordered json{{"memory", plan.solution.memory},
                     {"width", plan.solution.width},
                     {"unknown", unknown_json(plan.unknown)},
                     {"operators", std::move(operators)},
                     {"changes", std::move(changes)}};
  return json.dump(-1, ' ', true, Ordered::error_handler_t::replace);
}

Planned parse_plan(const std::string& text, Graph graph) {
  const Json json = parse_json(text, "plan");
  const Reader root(json, "plan");
  Planned plan{std::move(graph), {}, {}, {}};
  if (root["operators"].size() != plan.graph.nodes.size()) root["operators"].refuse("another graph's operators");
  std::map<std::string, int> places;
  for (size_t i = 0; i < plan.graph.nodes.size(); ++i) {
    places[plan.graph.nodes[i].name] = static_cast<int>(i);
    read_operator(root["operators"].at(i), i, plan);
  }
  add_live_spans(plan.graph, plan.problem);
  root["changes"].each([&](const Reader& change) {
    if (change.size() != 3) change.refuse("producer, consumer and cost are wanted");
    const auto producer = places.find(change.at(0).text()), consumer = places.find(change.at(1).text());
    if (producer == places.end() || consumer == places.end()) change.refuse("another graph's operator");
    plan.problem.edges.push_back({producer->second, consumer->second, {change.at(2).number()}});
  });
  root["unknown"].each([&](const Reader& one) {
    plan.unknown.all.push_back(
        {one["operator"].text(), one["node"].text(), static_cast<int>(one["count"].integer(1, 1 << 20))});
  });
  plan.solution.memory = root["memory"].number();
  plan.solution.width = static_cast<int>(root["width"].integer(0, 1 << 20));
  return plan;
}

}  // namespace seqtile::planner

// tests/planner/graph_maker.h -- graphs of models, node by node.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/graph/graph.h"

namespace seqtile::testing {

using PlanShape = std::vector<int64_t>;

class GraphMaker {
 public:
  GraphMaker(planner::Mesh mesh, std::string dtype, int64_t element_bytes)
      : dtype_(std::move(dtype)), element_bytes_(element_bytes) {
    graph_.mesh = mesh;
  }

  int placeholder(const std::string& name, PlanShape shape) { return add(name, "placeholder", {}, std::move(shape)); }
  int function(const std::string& name, const std::string& target, std::vector<int> inputs, PlanShape shape) {
    const int node = add(name, "call_function", std::move(inputs), std::move(shape));
    graph_.nodes.back().target = target;
    return node;
  }
  int linear(const std::string& name, int input, int64_t columns) {
    PlanShape shape = shape_of(input);
    const PlanShape weight{columns, shape.back()};
    shape.back() = columns;
    return module(name, "Linear", input, shape, weight);
  }
  int norm(const std::string& name, int input) {
    const PlanShape shape = shape_of(input);
    return module(name, "RMSNorm", input, shape, {shape.back()});
  }
  int module(const std::string& name, const std::string& type, int input, PlanShape shape, PlanShape weight) {
    const int node = add(name, "call_module", {input}, std::move(shape));
    graph_.nodes.back().module = type;
    graph_.nodes.back().parameters["weight"] = std::move(weight);
    return node;
  }
  planner::Graph output(int node) {
    add("output", "output", {node}, {});
    graph_.nodes.back().results.clear();
    return graph_;
  }
  const PlanShape& shape_of(int node) const { return graph_.nodes[static_cast<size_t>(node)].results[0].shape; }

 private:
  int add(const std::string& name, const std::string& op, std::vector<int> inputs, PlanShape shape) {
    planner::Node node;
    node.name = name, node.op = op, node.inputs = std::move(inputs);
    node.results.push_back({std::move(shape), dtype_, element_bytes_});
    graph_.nodes.push_back(std::move(node));
    return static_cast<int>(graph_.nodes.size()) - 1;
  }

  planner::Graph graph_;
  std::string dtype_;
  int64_t element_bytes_;
};

}  // namespace seqtile::testing

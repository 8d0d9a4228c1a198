// planner/graph/node_view.h -- a node of a graph with its inputs, while its strategies are made.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/graph/graph.h"

namespace seqtile::planner {

using Shape = std::vector<int64_t>;

class NodeView {
 public:
  NodeView(const Graph& graph, Node& node) : graph_(graph), node_(node) {}

  const Mesh& mesh() const { return graph_.mesh; }
  const Node& node() const { return node_; }
  const Node& input(size_t i) const { return graph_.nodes[static_cast<size_t>(node_.inputs[i])]; }
  /// Whether there are so many inputs, each one tensor, and one result.
  bool has_inputs(size_t count) const;
  const Shape* parameter(const char* name) const;
  /// Of the node's only result, of an input's.
  const Shape& shape() const { return node_.results.front().shape; }
  const Shape& input_shape(size_t i) const { return input(i).results.front().shape; }

 protected:
  Node& mutable_node() { return node_; }

 private:
  const Graph& graph_;
  Node& node_;
};

/// Operators that are kept whole as no way to cut them is known.
struct UnknownOperators {
  struct One {
    std::string name, node;  ///< of the operator, of the first node that calls it
    int count = 0;           ///< nodes
    bool operator==(const One&) const = default;
  };
  std::vector<One> all;

  void add(const Node& node);
  bool empty() const { return all.empty(); }
  int count() const;
  /// "matmul (node m), roll (node r and 9 others)".
  std::string text() const;
  bool operator==(const UnknownOperators&) const = default;
};
/// Nodes that call something: what unknown operators are a share of.
int count_operators(const Graph& graph);

/// The name of a function or method without its modules, or that of a module's class.
std::string operator_name(const Node& node);
/// Whether its results are elements of its first input as they are held already: another shape, another order, parts.
bool is_view(const Node& node);

}  // namespace seqtile::planner

// planner/graph/node_view.h -- a node of a graph together with its inputs, for the code that makes its strategies.
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
  /// Whether the node has `count` inputs, each of one tensor, and one result.
  bool has_inputs(size_t count) const;
  /// The shape of the node's parameter, null if it has none of that name.
  const Shape* parameter(const char* name) const;
  /// The shape of the node's only result, and of input i.
  const Shape& shape() const { return node_.results.front().shape; }
  const Shape& input_shape(size_t i) const { return input(i).results.front().shape; }

 protected:
  Node& mutable_node() { return node_; }

 private:
  const Graph& graph_;
  Node& node_;
};

/// Operators that stay whole because no way to cut them is known.
struct UnknownOperators {
  struct One {
    std::string name, node;  ///< the operator, and the first node that calls it
    int count = 0;           ///< number of nodes
    bool operator==(const One&) const = default;
  };
  std::vector<One> all;

  void add(const Node& node);
  bool empty() const { return all.empty(); }
  int count() const;
  /// Text for messages: "matmul (node m), roll (node r and 9 others)".
  std::string text() const;
  bool operator==(const UnknownOperators&) const = default;
};
/// The number of nodes that call something. Reports give UnknownOperators::count() as a share of it.
int count_operators(const Graph& graph);

/// The name of a function or method without its modules, or the class of a module.
std::string operator_name(const Node& node);
/// Whether the results are elements of the first input where they already lie: another shape, another order, or parts.
bool is_view(const Node& node);

}  // namespace seqtile::planner

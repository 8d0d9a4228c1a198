// planner/compat/strategy_list.h -- the strategies of one node while they are made.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string>
#include <vector>

#include "planner/compat/compat_costs.h"
#include "planner/graph/node_view.h"

namespace seqtile::planner {

/// The cost of a strategy, in the known planner's units.
struct StrategyCost {
  double compute = 0, communication = 0;
  double memory = 0;  ///< bytes
};

class StrategyList : public NodeView {
 public:
  StrategyList(const Graph& graph, Node& node) : NodeView(graph, node) { node.strategies.clear(); }

  /// The number of elements of one device's part.
  double local(const Shape& shape, Layout layout) const { return local_elements(mesh(), shape, layout); }
  bool fits(const Shape& shape, Layout layout) const { return divides(mesh(), shape, layout); }

  /// Appends a strategy. Leaves it out where another one has its name, or where it cuts a result or an input unevenly.
  /// `operands` is indexed by input; a layout of a tuple holds for all its members, and a missing layout means whole
  /// copies.
  void add(std::string name, std::vector<Layout> operands, Layout result, const StrategyCost& cost);
};

/// The layout of a tensor as text: "[S0, R]".
std::string name_of(Layout layout, const Shape& shape);

/// All layouts that cut only the dimensions `dims`, without partial sums. For a mesh of two axes the order is: axes 0
/// and 1 alone on each dimension in turn, both on two dimensions, both on one, none. `pairs_first` moves both on two
/// and both on one to the front.
std::vector<Layout> all_layouts(const Mesh& mesh, std::span<const int> dims, bool pairs_first);

// One function for each family of operators. It returns false, and adds no strategy, where the node's inputs,
// parameters and shapes are not those of a form that it knows.
bool add_conv(StrategyList& list);
bool add_linear(StrategyList& list);
bool add_matmul(StrategyList& list);
bool add_binary(StrategyList& list);
bool add_where(StrategyList& list);
bool add_batch_norm(StrategyList& list);
bool add_layer_norm(StrategyList& list);
bool add_embedding(StrategyList& list);
bool add_pool(StrategyList& list);
/// The work of an operator that computes element by element: multiplies for each element.
struct UnaryWork {
  double forward = 1, backward = 1;
  double copies = 3;       ///< copies of the tensor that are held in memory
  bool needs_row = false;  ///< the last dimension is not cut
};
bool add_unary(StrategyList& list, const UnaryWork& work);
bool add_view(StrategyList& list);
/// Strategies of an operator whose result is whole on every device.
bool add_flattened(StrategyList& list, bool averages);
bool add_permuted(StrategyList& list);
bool add_split(StrategyList& list);
bool add_getitem(StrategyList& list);

}  // namespace seqtile::planner

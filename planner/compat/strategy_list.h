// planner/compat/strategy_list.h -- the strategies of one node while they are made.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string>
#include <vector>

#include "planner/compat/compat_costs.h"
#include "planner/graph/node_view.h"

namespace seqtile::planner {

/// What a strategy costs, in the known planner's units.
struct StrategyCost {
  double compute = 0, communication = 0;
  double memory = 0;  ///< bytes
};

class StrategyList : public NodeView {
 public:
  StrategyList(const Graph& graph, Node& node) : NodeView(graph, node) { node.strategies.clear(); }

  /// Elements of a device.
  double local(const Shape& shape, Layout layout) const { return local_elements(mesh(), shape, layout); }
  bool fits(const Shape& shape, Layout layout) const { return divides(mesh(), shape, layout); }

  /// One that has a name already, or cuts a result or an input unevenly, is left out. `operands` by input, where an
  /// input is a tuple the same for all its members; missing ones are whole copies.
  void add(std::string name, std::vector<Layout> operands, Layout result, const StrategyCost& cost);
};

/// "[S0, R]" of a shape's dimensions.
std::string name_of(Layout layout, const Shape& shape);

/// All layouts of some dimensions of a tensor, without partial sums. Of a mesh of two axes in this order: in turn axis
/// 0 and 1 alone on each dimension, both on two, both on one, none; `pairs_first` begins with both on two and on one.
std::vector<Layout> all_layouts(const Mesh& mesh, std::span<const int> dims, bool pairs_first);

// One function for each family of operators. False, and no strategy: the node's inputs, parameters and shapes are not
// what the operator has where it is known.
bool add_conv(StrategyList& list);
bool add_linear(StrategyList& list);
bool add_matmul(StrategyList& list);
bool add_binary(StrategyList& list);
bool add_where(StrategyList& list);
bool add_batch_norm(StrategyList& list);
bool add_layer_norm(StrategyList& list);
bool add_embedding(StrategyList& list);
bool add_pool(StrategyList& list);
/// Multiplies for each element, forward and backward.
struct UnaryWork {
  double forward = 1, backward = 1;
  double copies = 3;       ///< of the tensor, in memory
  bool needs_row = false;  ///< the last dimension is whole
};
bool add_unary(StrategyList& list, const UnaryWork& work);
bool add_view(StrategyList& list);
/// Of what is whole afterwards.
bool add_flattened(StrategyList& list, bool averages);
bool add_permuted(StrategyList& list);
bool add_split(StrategyList& list);
bool add_getitem(StrategyList& list);

}  // namespace seqtile::planner

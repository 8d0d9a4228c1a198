// planner/compat/reshard_costs.h -- the costs of bringing a producer's layouts to the layouts that a consumer wants.
// SPDX-License-Identifier: Apache-2.0
//
// Models repeat their layers, so each pair of layouts is priced once for all tensors of one shape and element size.
#pragma once
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "planner/graph/graph.h"

namespace seqtile::planner {

class ReshardCosts {
 public:
  /// Requires: `graph` and its strategies outlive this object.
  explicit ReshardCosts(const Graph& graph) : graph_(graph) {}

  /// Costs of resharding operand `operand` of `consumer`: [strategies of the producer][strategies of the consumer]. A
  /// tuple costs the sum over its members.
  std::vector<double> between(int producer, int consumer, size_t operand);

 private:
  /// The priced pairs of layouts of tensors of one shape and element size.
  struct Shape {
    std::unordered_map<uint32_t, int> numbers;  ///< from the bits of a layout to its number
    std::vector<Layout> layouts;                ///< by number
    std::vector<std::vector<double>> costs;     ///< [from][to]; NaN: not asked for yet
  };

  static int number_of(Shape& shape, Layout layout);

  const Graph& graph_;
  std::map<std::pair<std::vector<int64_t>, int64_t>, Shape> shapes_;
};

}  // namespace seqtile::planner

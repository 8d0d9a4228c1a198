// planner/compat/reshard_costs.h -- what it costs to bring a producer's layouts to those that a consumer wants.
// SPDX-License-Identifier: Apache-2.0
//
// Models repeat themselves: of all pairs of layouts of tensors of one shape, each is priced once.
#pragma once
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "planner/graph/graph.h"

namespace seqtile::planner {

class ReshardCosts {
 public:
  /// The graph, with its strategies, outlives this.
  explicit ReshardCosts(const Graph& graph) : graph_(graph) {}

  /// [strategies of the producer][strategies of the consumer]; of a tuple, the sum over its members.
  std::vector<double> between(int producer, int consumer, size_t operand);

 private:
  /// Tensors of one shape and element size.
  struct Shape {
    std::unordered_map<uint32_t, int> numbers;  ///< of layouts, by their bits
    std::vector<Layout> layouts;                ///< by number
    std::vector<std::vector<double>> costs;     ///< [from][to], NaN where nobody has asked
  };

  static int number_of(Shape& shape, Layout layout);

  const Graph& graph_;
  std::map<std::pair<std::vector<int64_t>, int64_t>, Shape> shapes_;
};

}  // namespace seqtile::planner

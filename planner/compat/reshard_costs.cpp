// planner/compat/reshard_costs.cpp -- see reshard_costs.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/compat/reshard_costs.h"

#include <cmath>
#include <limits>

#include "planner/compat/compat_reshard.h"

namespace seqtile::planner {

int ReshardCosts::number_of(Shape& shape, Layout layout) {
  const auto [place, is_new] = shape.numbers.try_emplace(layout.bits(), static_cast<int>(shape.layouts.size()));
  if (is_new) shape.layouts.push_back(layout);
  return place->second;
}

std::vector<double> ReshardCosts::between(int producer, int consumer, size_t operand) {
  const Node& from = graph_.nodes[static_cast<size_t>(producer)];
  const Node& to = graph_.nodes[static_cast<size_t>(consumer)];
  std::vector<double> costs(from.strategies.size() * to.strategies.size());
  std::vector<int> targets(to.strategies.size());
  for (size_t member = 0; member < from.results.size(); ++member) {
    const TensorType& type = from.results[member];
    Shape& shape = shapes_[{type.shape, type.element_bytes}];
    for (size_t j = 0; j < targets.size(); ++j)
      targets[j] = number_of(shape, to.strategies[j].operands[operand][member]);
    double* cost = costs.data();
    for (const Strategy& source : from.strategies) {
      const auto number = static_cast<size_t>(number_of(shape, source.results[member]));
      if (shape.costs.size() <= number) shape.costs.resize(number + 1);
      std::vector<double>& row = shape.costs[number];
      row.resize(shape.layouts.size(), std::numeric_limits<double>::quiet_NaN());
      for (const int target : targets) {
        double& known = row[static_cast<size_t>(target)];
        if (std::isnan(known))
          known = compat_reshard(graph_.mesh, type.shape, static_cast<int>(type.element_bytes),
                                 OrderedLayout(shape.layouts[number]), shape.layouts[static_cast<size_t>(target)])
                      .total;
        *cost++ += known;
      }
    }
  }
  return costs;
}

}  // namespace seqtile::planner

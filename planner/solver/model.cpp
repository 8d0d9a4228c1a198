// planner/solver/model.cpp -- see model.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace seqtile::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

using Tables = std::map<std::pair<int, int>, std::vector<double>>;

void add_nodes(const Problem& problem, ProblemModel& result) {
  std::map<int, int> variables;  // by leader
  for (int node = 0; node < problem.num_nodes(); ++node) {
    const auto n = static_cast<size_t>(node);
    const auto [place, is_new] =
        variables.try_emplace(leader_of(problem, node), static_cast<int>(result.model.unaries.size()));
    if (is_new) {
      result.model.unaries.emplace_back(problem.costs[n].size());
      result.memory.emplace_back(problem.costs[n].size());
      std::vector<int>& strategies = result.strategy.emplace_back(problem.costs[n].size());
      std::iota(strategies.begin(), strategies.end(), 0);
    }
    const auto variable = static_cast<size_t>(place->second);
    for (size_t i = 0; i < problem.costs[n].size(); ++i) {
      result.model.unaries[variable][i] += problem.costs[n][i];
      result.memory[variable][i] += std::ceil(problem.memory[n][i]);
    }
    result.variable_of.push_back(place->second);
  }
  result.num_steps = problem.num_steps;
  for (const Live& live : problem.live) {
    result.live.push_back({result.variable_of[static_cast<size_t>(live.node)], live.begin, live.end, live.bytes});
    for (double& bytes : result.live.back().bytes) bytes = std::ceil(bytes);
  }
}

/// All edges between two variables become one table. An edge within a variable is added to the variable's costs.
Tables pairs_of(const Problem& problem, ProblemModel& result) {
  Tables tables;
  for (const Edge& edge : problem.edges) {
    const int a = result.variable_of[static_cast<size_t>(edge.producer)],
              b = result.variable_of[static_cast<size_t>(edge.consumer)];
    std::vector<double>& of_a = result.model.unaries[static_cast<size_t>(a)];
    const size_t rows = of_a.size(), columns = result.model.unaries[static_cast<size_t>(b)].size();
    std::vector<double>& table = tables[std::minmax(a, b)];
    if (a != b) table.resize(rows * columns);
    for (size_t i = 0; i < rows; ++i) {
      if (a == b) {
        of_a[i] += edge.cost[i * columns + i];
        continue;
      }
      for (size_t j = 0; j < columns; ++j) table[a < b ? i * columns + j : j * rows + i] += edge.cost[i * columns + j];
    }
  }
  std::erase_if(tables, [](const auto& entry) { return entry.second.empty(); });
  return tables;
}

/// By variable: the tables that contain it, and whether it is the row of the table.
using TablesOf = std::vector<std::vector<std::pair<const std::vector<double>*, bool>>>;

TablesOf tables_of(const Tables& tables, size_t num_variables) {
  TablesOf result(num_variables);
  for (const auto& [pair, table] : tables) {
    result[static_cast<size_t>(pair.first)].emplace_back(&table, true);
    result[static_cast<size_t>(pair.second)].emplace_back(&table, false);
  }
  return result;
}

/// A variable's side of one table: a row of costs for each of its values, indexed by the values of the other variable.
class Side {
 public:
  Side(const std::vector<double>& table, bool is_row, size_t domain)
      : others_(table.size() / domain), rows_(&table), least_(domain, kInfinite), most_(domain, -kInfinite) {
    if (!is_row) {
      turned_.resize(table.size());
      for (size_t at = 0; at < table.size(); ++at) turned_[at % domain * others_ + at / domain] = table[at];
    }
    for (size_t at = 0; at < table.size(); ++at) {
      const double cost = row(0)[at];
      least_[at / others_] = std::min(least_[at / others_], cost);
      most_[at / others_] = std::max(most_[at / others_], cost);
    }
  }

  /// An upper bound of the least difference between the rows of two values.
  double most_lead(size_t value, size_t by) const {
    return std::min(least_[value] - least_[by], most_[value] - most_[by]);
  }
  /// The least difference between the rows of two values. The search stops at a difference below `enough`.
  double lead(size_t value, size_t by, double enough) const {
    const double *at = row(value), *at_by = row(by);
    double least = kInfinite;
    for (size_t i = 0; i < others_ && least >= enough; ++i) least = std::min(least, at[i] - at_by[i]);
    return least;
  }

 private:
  const double* row(size_t value) const { return (turned_.empty() ? *rows_ : turned_).data() + value * others_; }

  size_t others_;
  const std::vector<double>* rows_;
  std::vector<double> turned_;  ///< copy of the table, if the variable is its column
  std::vector<double> least_, most_;
};

/// By variable: the bytes it holds all the time, and each Live that it holds for a while.
using SizesOf = std::vector<std::vector<const std::vector<double>*>>;

SizesOf sizes_of(const ProblemModel& all) {
  SizesOf result;
  for (const auto& memory : all.memory) result.push_back({&memory});
  for (const ProblemModel::Live& live : all.live) result[static_cast<size_t>(live.variable)].push_back(&live.bytes);
  return result;
}

/// The values of one variable that no other value beats, whatever its neighbours choose.
class Survivors {
 public:
  Survivors(const std::vector<double>& costs, const SizesOf::value_type& sizes, const TablesOf::value_type& tables,
            bool has_budget)
      : costs_(costs), sizes_(sizes), has_budget_(has_budget), sums_(costs.size()) {
    for (const auto& [table, is_row] : tables) sides_.emplace_back(*table, is_row, costs_.size());
    for (const std::vector<double>* of_values : sizes)
      for (size_t value = 0; value < sums_.size(); ++value) sums_[value] += (*of_values)[value];
  }

  std::vector<size_t> run() const {
    std::vector<size_t> cheapest(costs_.size()), kept;  // cheap values beat most others and are tried first
    std::iota(cheapest.begin(), cheapest.end(), size_t{0});
    std::ranges::stable_sort(cheapest, {}, [&](size_t value) { return costs_[value]; });
    std::vector<char> is_out(costs_.size());
    for (size_t value = 0; value < costs_.size(); ++value) {
      is_out[value] =
          std::ranges::any_of(cheapest, [&](size_t by) { return by != value && !is_out[by] && is_beaten(value, by); });
      if (!is_out[value]) kept.push_back(value);
    }
    return kept;
  }

 private:
  /// Whether `by` holds no more bytes than `value` at any time.
  bool is_leaner(size_t value, size_t by) const {
    return std::ranges::all_of(sizes_, [&](const auto* of_values) { return (*of_values)[by] <= (*of_values)[value]; });
  }

  bool is_beaten(size_t value, size_t by) const {
    if (has_budget_ ? !is_leaner(value, by) : sums_[by] > sums_[value]) return false;
    // Upper bound of the leads of the sides that are not searched yet.
    double lead = costs_[value] - costs_[by], hoped = 0;
    for (const Side& side : sides_) hoped += side.most_lead(value, by);
    for (const Side& side : sides_) {
      if (lead + hoped < 0) return false;
      hoped -= side.most_lead(value, by);
      lead += side.lead(value, by, -lead - hoped);
    }
    return lead > 0 || (lead == 0 && std::tie(sums_[by], by) < std::tie(sums_[value], value));
  }

  const std::vector<double>& costs_;
  const SizesOf::value_type& sizes_;
  const bool has_budget_;
  std::vector<double> sums_;  ///< total bytes, by value
  std::vector<Side> sides_;
};

}  // namespace

Choices ProblemModel::choices(const std::vector<int>& assignment) const {
  Choices result;
  for (const int variable : variable_of) {
    const auto v = static_cast<size_t>(variable);
    result.push_back(strategy[v][static_cast<size_t>(assignment[v])]);
  }
  return result;
}

ProblemModel make_model(const Problem& problem, bool has_budget) {
  ProblemModel all;
  add_nodes(problem, all);
  const Tables tables = pairs_of(problem, all);
  const TablesOf of_variable = tables_of(tables, all.model.unaries.size());
  const SizesOf sizes = sizes_of(all);
  std::vector<std::vector<size_t>> kept;
  for (size_t v = 0; v < all.model.unaries.size(); ++v)
    kept.push_back(Survivors(all.model.unaries[v], sizes[v], of_variable[v], has_budget).run());
  const auto keep = [&](auto& values, size_t variable) {
    const auto old = std::exchange(values, {});
    for (const size_t value : kept[variable]) values.push_back(old[value]);
  };
  for (const auto& [pair, table] : tables) {
    const auto a = static_cast<size_t>(pair.first), b = static_cast<size_t>(pair.second);
    Model::Pair& left = all.model.pairs.emplace_back(Model::Pair{pair.first, pair.second, {}});
    for (const size_t i : kept[a])
      for (const size_t j : kept[b]) left.values.push_back(table[i * all.model.unaries[b].size() + j]);
  }
  for (size_t variable = 0; variable < kept.size(); ++variable) {
    keep(all.model.unaries[variable], variable);
    keep(all.memory[variable], variable);
    keep(all.strategy[variable], variable);
  }
  for (ProblemModel::Live& live : all.live) keep(live.bytes, static_cast<size_t>(live.variable));
  return all;
}

}  // namespace seqtile::planner

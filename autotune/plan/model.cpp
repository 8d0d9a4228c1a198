// autotune/plan/model.cpp -- see model.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/plan/model.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace seqtile::plan {
namespace {

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
      result.memory[variable][i] += problem.memory[n][i];
    }
    result.variable_of.push_back(place->second);
  }
}

/// Edges between the same variables are one table; one within a variable is a part of its costs.
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

/// By variable: the tables that have it, and whether it is their row.
using TablesOf = std::vector<std::vector<std::pair<const std::vector<double>*, bool>>>;

TablesOf tables_of(const Tables& tables, size_t num_variables) {
  TablesOf result(num_variables);
  for (const auto& [pair, table] : tables) {
    result[static_cast<size_t>(pair.first)].emplace_back(&table, true);
    result[static_cast<size_t>(pair.second)].emplace_back(&table, false);
  }
  return result;
}

/// Whether value `by` of the variable costs no more than `value`, whatever its neighbours are.
bool is_beaten(const ProblemModel& all, const TablesOf& tables, int variable, size_t value, size_t by) {
  const std::vector<double>& costs = all.model.unaries[static_cast<size_t>(variable)];
  const std::vector<double>& memory = all.memory[static_cast<size_t>(variable)];
  if (memory[by] > memory[value]) return false;
  double lead = costs[value] - costs[by];
  for (const auto& [table, is_row] : tables[static_cast<size_t>(variable)]) {
    const size_t others = table->size() / costs.size(), step = is_row ? 1 : costs.size();
    const double* at = table->data() + (is_row ? value * others : value);
    const double* at_by = table->data() + (is_row ? by * others : by);
    double least = at[0] - at_by[0];
    for (size_t i = 1; i < others; ++i) least = std::min(least, at[i * step] - at_by[i * step]);
    lead += least;
    if (lead < -1e300) return false;
  }
  return lead > 0 || (lead == 0 && by < value);
}

}  // namespace

Choices ProblemModel::choices(const std::vector<int>& assignment) const {
  Choices result;
  for (const int variable : variable_of) {
    const auto v = static_cast<size_t>(variable);
    result.push_back(strategy[v][static_cast<size_t>(assignment[v])]);
  }
  return result;
}

ProblemModel make_model(const Problem& problem) {
  ProblemModel all;
  add_nodes(problem, all);
  const Tables tables = pairs_of(problem, all);
  const TablesOf of_variable = tables_of(tables, all.model.unaries.size());
  std::vector<std::vector<size_t>> kept(all.model.unaries.size());
  for (size_t variable = 0; variable < kept.size(); ++variable) {
    const size_t domain = all.model.unaries[variable].size();
    std::vector<char> is_out(domain);
    for (size_t value = 0; value < domain; ++value)
      for (size_t by = 0; by < domain && !is_out[value]; ++by)
        is_out[value] =
            by != value && !is_out[by] && is_beaten(all, of_variable, static_cast<int>(variable), value, by);
    for (size_t value = 0; value < domain; ++value)
      if (!is_out[value]) kept[variable].push_back(value);
  }
  const auto keep = [&](auto& values, size_t variable) {
    auto old = values[variable];
    values[variable].clear();
    for (const size_t value : kept[variable]) values[variable].push_back(old[value]);
  };
  for (const auto& [pair, table] : tables) {
    const auto a = static_cast<size_t>(pair.first), b = static_cast<size_t>(pair.second);
    Model::Pair& left = all.model.pairs.emplace_back(Model::Pair{pair.first, pair.second, {}});
    for (const size_t i : kept[a])
      for (const size_t j : kept[b]) left.values.push_back(table[i * all.model.unaries[b].size() + j]);
  }
  for (size_t variable = 0; variable < kept.size(); ++variable) {
    keep(all.model.unaries, variable);
    keep(all.memory, variable);
    keep(all.strategy, variable);
  }
  return all;
}

}  // namespace seqtile::plan

// autotune/plan/solver.cpp -- see solver.h.
// SPDX-License-Identifier: Apache-2.0
//
// A budget is a price on memory: for each price the elimination finds the best plan, and what it finds less the price
// of the budget is a bound for all plans that keep it. Branching on the strategies of one node after the other closes
// the gap between the best price's bound and the best plan that was found.
#include "autotune/plan/solver.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <queue>
#include <tuple>

#include "autotune/plan/model.h"

namespace seqtile::plan {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// A plan as an assignment, with what it costs and holds.
struct Point {
  std::vector<int> assignment;
  double cost = kInfinite, memory = kInfinite;
};

using Values = std::vector<std::vector<double>>;

class Searcher {
 public:
  Searcher(const ProblemModel& all, const SolveOptions& options)
      : all_(all), options_(options), elimination_(all.model, options.table_limit) {}

  int width() const { return elimination_.width(); }
  bool is_exact() const { return elimination_.is_exact(); }
  bool may_search() const { return num_searches_ < options_.most_searches; }

  /// The best point where memory has a price, and the bound of cost + price memory. Infinite `excluded` are ruled out.
  std::pair<Point, double> search(double price, const Values& excluded) {
    ++num_searches_;
    Values unaries = excluded;
    for (size_t v = 0; v < unaries.size(); ++v)
      for (size_t i = 0; i < unaries[v].size(); ++i)
        unaries[v][i] += all_.model.unaries[v][i] + price * all_.memory[v][i];
    Elimination::Result result = elimination_.run(unaries);
    return {point_of(std::move(result.assignment)), result.bound};
  }

  /// Of the least memory: no strategy's memory depends on another's.
  Point leanest(const Values& excluded) const {
    std::vector<int> assignment;
    for (size_t v = 0; v < excluded.size(); ++v) {
      const auto key = [&](size_t i) {
        return std::tuple(excluded[v][i], all_.memory[v][i], all_.model.unaries[v][i]);
      };
      size_t least = 0;
      for (size_t i = 1; i < excluded[v].size(); ++i)
        if (key(i) < key(least)) least = i;
      assignment.push_back(static_cast<int>(least));
    }
    return point_of(std::move(assignment));
  }

 private:
  Point point_of(std::vector<int> assignment) const {
    Point point{std::move(assignment), 0, 0};
    point.cost = value_of(all_.model, point.assignment);
    for (size_t v = 0; v < all_.memory.size(); ++v)
      point.memory += all_.memory[v][static_cast<size_t>(point.assignment[v])];
    return point;
  }

  const ProblemModel& all_;
  const SolveOptions& options_;
  Elimination elimination_;
  int num_searches_ = 0;
};

/// The best of the plans that keep a budget, by branch and bound.
class BranchSearch {
 public:
  BranchSearch(const ProblemModel& all, Searcher& searcher, double budget)
      : all_(all), searcher_(searcher), budget_(budget) {}

  void run(const Point& leanest) {
    best_ = leanest;
    open_.push({bound_of(nothing_excluded()), nothing_excluded()});
    lower_bound_ = open_.top().first.bound;
    while (!open_.empty() && searcher_.may_search()) {
      const Branch branch = open_.top();
      open_.pop();
      lower_bound_ = std::max(lower_bound_, std::min(branch.first.bound, best_.cost));
      if (is_closed(branch.first.bound) || !split(branch)) break;
    }
    if (open_.empty() || is_closed(open_.top().first.bound)) lower_bound_ = best_.cost;
  }

  const Point& best() const { return best_; }
  double lower_bound() const { return lower_bound_; }

 private:
  /// Of the plans of a branch: a bound, and the points at the best price on either side of the budget.
  struct Bound {
    double bound = -kInfinite;
    Point above, within;
  };
  using Branch = std::pair<Bound, Values>;
  struct IsLater {
    bool operator()(const Branch& a, const Branch& b) const { return a.first.bound > b.first.bound; }
  };

  /// The bound is the best plan's cost, summed up in another order.
  bool is_closed(double bound) const { return bound >= best_.cost - 1e-13 * std::abs(best_.cost); }

  Values nothing_excluded() const {
    Values values;
    for (const auto& memory : all_.memory) values.emplace_back(memory.size(), 0.0);
    return values;
  }

  void offer(const Point& point) {
    if (point.memory <= budget_ && point.cost < best_.cost) best_ = point;
  }

  /// The largest bound over all prices: between a point above the budget and one within, the price at which they cost
  /// the same is tried, until it finds neither anything new.
  Bound bound_of(const Values& excluded) {
    Bound result;
    double bound;
    std::tie(result.above, bound) = searcher_.search(0, excluded);
    result.bound = bound;
    if (bound == kInfinite) return result;
    if (result.above.memory <= budget_) {
      result.within = result.above;
      offer(result.within);
      return result;
    }
    result.within = searcher_.leanest(excluded);
    if (result.within.memory > budget_) return {kInfinite, {}, {}};
    offer(result.within);
    while (searcher_.may_search()) {
      const double price = (result.within.cost - result.above.cost) / (result.above.memory - result.within.memory);
      if (!(price > 0)) break;
      auto [point, value] = searcher_.search(price, excluded);
      result.bound = std::max(result.bound, value - price * budget_);
      offer(point);
      const double line = result.above.cost + price * result.above.memory;
      if (point.cost + price * point.memory >= line - 1e-12 * std::abs(line)) break;
      (point.memory <= budget_ ? result.within : result.above) = point;
    }
    return result;
  }

  /// Parts the strategies of one variable. False: no variable is left that has several.
  bool split(const Branch& branch) {
    const auto& [bound, excluded] = branch;
    const bool is_over = bound.above.memory > budget_;
    const auto variable = is_over ? farthest_apart(bound) : widest(excluded);
    if (!variable) return false;
    // Lean strategies on one side; where tables were too small for an exact bound, half of them, whatever they are.
    std::vector<size_t> order;
    for (size_t i = 0; i < excluded[*variable].size(); ++i)
      if (excluded[*variable][i] == 0) order.push_back(i);
    const std::vector<double>& memory = all_.memory[*variable];
    std::ranges::stable_sort(order, {}, [&](size_t i) { return memory[i]; });
    size_t count = order.size() / 2;
    if (is_over) {
      const double middle = (memory_of(bound.above, *variable) + memory_of(bound.within, *variable)) / 2;
      count = static_cast<size_t>(std::ranges::count_if(order, [&](size_t i) { return memory[i] <= middle; }));
    }
    for (const bool is_first : {true, false}) {
      Values part = excluded;
      for (size_t at = 0; at < order.size(); ++at)
        if ((at < count) != is_first) part[*variable][order[at]] = kInfinite;
      Bound of_part = bound_of(part);
      of_part.bound = std::max(of_part.bound, bound.bound);
      if (!is_closed(of_part.bound)) open_.push({std::move(of_part), std::move(part)});
    }
    return true;
  }

  double memory_of(const Point& point, size_t variable) const {
    return all_.memory[variable][static_cast<size_t>(point.assignment[variable])];
  }

  /// Where the points on either side of the budget differ most in memory.
  std::optional<size_t> farthest_apart(const Bound& bound) const {
    std::optional<size_t> result;
    double most = 0;
    for (size_t v = 0; v < all_.memory.size(); ++v)
      if (const double difference = std::abs(memory_of(bound.above, v) - memory_of(bound.within, v)); difference > most)
        most = difference, result = v;
    return result;
  }

  /// The one with the most strategies that are left.
  static std::optional<size_t> widest(const Values& excluded) {
    std::optional<size_t> result;
    std::ptrdiff_t most = 1;
    for (size_t v = 0; v < excluded.size(); ++v)
      if (const auto count = std::ranges::count(excluded[v], 0.0); count > most) most = count, result = v;
    return result;
  }

  const ProblemModel& all_;
  Searcher& searcher_;
  const double budget_;
  Point best_;
  double lower_bound_ = -kInfinite;
  std::priority_queue<Branch, std::vector<Branch>, IsLater> open_;
};

}  // namespace

double Solution::gap() const {
  const double difference = objective - lower_bound;
  return difference <= 0 ? 0 : difference / std::max(std::abs(objective), 1e-300);
}

Solution solve(const Problem& problem, const SolveOptions& options) {
  check(problem);
  const ProblemModel all = make_model(problem);
  Searcher searcher(all, options);
  Values free;
  for (const auto& unary : all.model.unaries) free.emplace_back(unary.size(), 0.0);
  auto [point, bound] = searcher.search(0, free);
  Solution solution;
  solution.width = searcher.width();
  const Point leanest = searcher.leanest(free);
  solution.smallest_budget = leanest.memory;
  solution.is_feasible = leanest.memory <= options.memory_budget;
  if (!solution.is_feasible) {
    point = leanest;
  } else if (point.memory > options.memory_budget || !searcher.is_exact()) {
    BranchSearch search(all, searcher, options.memory_budget);
    search.run(leanest);
    point = search.best();
    bound = std::max(bound, search.lower_bound());
  }
  solution.choices = all.choices(point.assignment);
  solution.objective = objective(problem, solution.choices);
  solution.memory = memory(problem, solution.choices);
  solution.lower_bound = std::min(bound, solution.objective);
  // The bound is the same sum in another order.
  if (std::abs(bound - solution.objective) <= 1e-12 * std::abs(solution.objective))
    solution.lower_bound = solution.objective;
  return solution;
}

}  // namespace seqtile::plan

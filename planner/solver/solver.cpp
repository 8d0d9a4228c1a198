// planner/solver/solver.cpp -- see solver.h.
// SPDX-License-Identifier: Apache-2.0
//
// The memory budget becomes a price on memory at each cut (Lagrangian relaxation; memory_cuts.h). For given prices,
// elimination finds the plan of least cost + price * memory. That minimum less price * budget is a lower bound for
// every plan within the budget. Branch and bound over the strategies of one variable at a time closes the gap between
// the bound at the best prices and the best plan found.
#include "planner/solver/solver.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <queue>
#include <tuple>

#include "planner/solver/memory_cuts.h"
#include "seqtile/error.h"

namespace seqtile::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// A plan as an assignment, with its cost, its peak memory, and the cut of the peak.
struct Point {
  std::vector<int> assignment;
  double cost = kInfinite, memory = kInfinite;
  size_t peak = 0;
};

/// The plan with the least memory that was found, and a lower bound of the memory of every plan.
struct Leanest {
  Point point;
  double bound = 0;
};

class Searcher {
 public:
  Searcher(const ProblemModel& all, const SolveOptions& options)
      : all_(all), cuts_(all), options_(options), elimination_(all.model, options.table_limit) {}

  const MemoryCuts& cuts() const { return cuts_; }
  int width() const { return elimination_.width(); }
  bool is_exact() const { return elimination_.is_exact(); }
  bool may_search() const {
    constexpr int kFewSearches = 50;
    return num_searches_ < options_.most_searches &&
           (num_searches_ < kFewSearches || num_searches_ * elimination_.num_entries() < options_.most_entries);
  }

  /// The plan of least cost + price * memory over all cuts, and a lower bound of that sum. A value with infinite
  /// `excluded` is ruled out.
  std::pair<Point, double> search(const std::vector<double>& prices, const Values& excluded) {
    ++num_searches_;
    Values unaries = cuts_.priced(prices);
    for (size_t v = 0; v < unaries.size(); ++v)
      for (size_t i = 0; i < unaries[v].size(); ++i) unaries[v][i] += all_.model.unaries[v][i] + excluded[v][i];
    Elimination::Result result = elimination_.run(unaries);
    return {point_of(std::move(result.assignment)), result.bound};
  }

  /// Multiplicative weights: cuts where plans hold the most gain weight. The minimum of the weighted memory, which
  /// every variable reaches by itself, is a lower bound of the peak.
  Leanest leanest(const Values& excluded) const {
    constexpr int kMostRounds = 8;
    constexpr double kGrowth = 4;  // growth per round of the peak's weight, relative to that of an empty cut
    std::vector<double> weights(cuts_.count(), 1.0 / static_cast<double>(cuts_.count()));
    Leanest result{{}, -kInfinite};
    for (int round = 0; round < kMostRounds; ++round) {
      auto [point, bound] = least(cuts_.priced(weights), excluded);
      result.bound = std::max(result.bound, bound);
      const std::vector<double> bytes = cuts_.of(point.assignment);
      if (point.memory < result.point.memory) result.point = std::move(point);
      if (result.bound >= result.point.memory || cuts_.count() == 1) break;
      double sum = 0;
      for (size_t cut = 0; cut < weights.size(); ++cut)
        sum += weights[cut] *= std::pow(kGrowth, bytes[cut] / std::ranges::max(bytes));
      for (double& weight : weights) weight /= sum;
    }
    result.bound = std::max(result.bound, least(cuts_.at(result.point.peak), excluded).second);
    result.bound = whole(result.bound);
    return result;
  }
  /// The largest of the bounds of the single cuts. Expensive if there are many cuts.
  double least_at_any_cut(const Values& excluded) const {
    double bound = 0;
    for (size_t cut = 0; cut < cuts_.count(); ++cut) bound = std::max(bound, least(cuts_.at(cut), excluded).second);
    return whole(bound);
  }
  Point leanest_at(size_t cut, const Values& excluded) const { return least(cuts_.at(cut), excluded).first; }

 private:
  /// Rounds a bound up: plans hold whole bytes. The factor allows for inexact weights.
  static double whole(double bound) { return std::ceil(bound * (1 - 1e-12)); }

  /// The assignment that minimises `sizes` value by value, and its sum of sizes.
  std::pair<Point, double> least(const Values& sizes, const Values& excluded) const {
    std::vector<int> assignment;
    double sum = 0;
    for (size_t v = 0; v < sizes.size(); ++v) {
      const auto key = [&](size_t i) { return std::tuple(excluded[v][i], sizes[v][i], all_.model.unaries[v][i]); };
      size_t best = 0;
      for (size_t i = 1; i < sizes[v].size(); ++i)
        if (key(i) < key(best)) best = i;
      assignment.push_back(static_cast<int>(best));
      sum += sizes[v][best];
    }
    return {point_of(std::move(assignment)), sum};
  }

  Point point_of(std::vector<int> assignment) const {
    Point point{std::move(assignment)};
    point.cost = value_of(all_.model, point.assignment);
    const std::vector<double> bytes = cuts_.of(point.assignment);
    point.peak = static_cast<size_t>(std::ranges::max_element(bytes) - bytes.begin());
    point.memory = bytes[point.peak];
    return point;
  }

  const ProblemModel& all_;
  const MemoryCuts cuts_;
  const SolveOptions& options_;
  Elimination elimination_;
  int num_searches_ = 0;
};

/// Branch and bound for the best plan within a budget.
class BranchSearch {
 public:
  BranchSearch(const ProblemModel& all, Searcher& searcher, double budget)
      : all_(all), searcher_(searcher), budget_(budget) {}

  void run() {
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

  /// The best plan within the budget; infinite cost if none was found. is_proven_impossible() says whether none exists.
  const Point& best() const { return best_; }
  bool is_proven_impossible() const { return open_.empty() && best_.cost == kInfinite; }
  /// The plan with the least memory of all plans seen.
  const Point& leanest() const { return leanest_; }
  double lower_bound() const { return lower_bound_; }

 private:
  /// A lower bound of a branch's plans, and the points at the best prices on either side of the budget at one cut.
  struct Bound {
    double bound = -kInfinite;
    Point above, within;
    size_t cut = 0;
  };
  using Branch = std::pair<Bound, Values>;
  struct IsLater {
    bool operator()(const Branch& a, const Branch& b) const { return a.first.bound > b.first.bound; }
  };

  /// Whether a branch cannot improve on the best plan. The tolerance covers sums in different orders.
  bool is_closed(double bound) const {
    return bound == kInfinite || bound >= best_.cost - 1e-13 * std::abs(best_.cost);
  }

  Values nothing_excluded() const {
    Values values;
    for (const auto& memory : all_.memory) values.emplace_back(memory.size(), 0.0);
    return values;
  }

  void offer(const Point& point) {
    if (point.memory < leanest_.memory) leanest_ = point;
    if (point.memory <= budget_ && point.cost < best_.cost) best_ = point;
  }

  /// Raises the lower bound by coordinate ascent over the prices: the next cut is the one with the peak of the current
  /// plan.
  Bound bound_of(const Values& excluded) {
    constexpr int kMostCuts = 16;
    const Leanest leanest = searcher_.leanest(excluded);
    if (leanest.bound > budget_) return {kInfinite, {}, {}};
    offer(leanest.point);
    std::vector<double> prices = searcher_.cuts().no_prices();
    Bound result;
    std::tie(result.above, result.bound) = searcher_.search(prices, excluded);
    offer(result.above);
    for (int i = 0; i < kMostCuts && result.bound < kInfinite && result.above.memory > budget_; ++i) {
      const double before = result.bound;
      result.cut = result.above.peak;
      climb(prices, excluded, result);
      const bool is_higher = result.bound > before + 1e-12 * std::abs(before);
      if (result.within.memory <= budget_ || !is_higher || !searcher_.may_search()) break;
      std::swap(result.above, result.within);
    }
    return result;
  }

  /// Raises the price of one cut. Each step tries the price at which a point above the budget and a point within it
  /// cost the same, until the search finds no point below that line.
  void climb(std::vector<double>& prices, const Values& excluded, Bound& result) {
    const size_t cut = result.cut;
    double& price = prices[cut];
    double others = 0;  // price times budget at the other cuts
    for (const double other : prices) others += other * budget_;
    others -= price * budget_;
    const auto bytes = [&](const Point& point) { return searcher_.cuts().of(point.assignment); };
    const auto cost = [&](const Point& point) {
      const std::vector<double> held = bytes(point);
      double sum = point.cost;
      for (size_t other = 0; other < held.size(); ++other)
        if (other != cut) sum += prices[other] * held[other];
      return sum;
    };
    result.within = searcher_.leanest_at(cut, excluded);
    offer(result.within);
    if (bytes(result.within)[cut] > budget_) {
      result.bound = kInfinite;
      return;
    }
    double best_price = price;
    while (searcher_.may_search()) {
      const double above = bytes(result.above)[cut], within = bytes(result.within)[cut];
      const double tried = (cost(result.within) - cost(result.above)) / (above - within);
      if (!(tried > 0)) break;
      price = tried;
      auto [point, value] = searcher_.search(prices, excluded);
      offer(point);
      if (const double bound = value - others - tried * budget_; bound > result.bound)
        result.bound = bound, best_price = tried;
      const double line = cost(result.above) + tried * above, held = bytes(point)[cut];
      if (cost(point) + tried * held >= line - 1e-12 * std::abs(line)) break;
      (held <= budget_ ? result.within : result.above) = std::move(point);
    }
    price = best_price;
  }

  /// Divides the remaining strategies of one variable over two branches. Returns false if every variable has one left.
  bool split(const Branch& branch) {
    const auto& [bound, excluded] = branch;
    const bool is_over = bound.above.memory > budget_;
    const Values memory = searcher_.cuts().at(bound.cut);
    auto variable = is_over ? farthest_apart(bound, memory) : std::nullopt;
    const bool by_memory = variable.has_value();
    if (!by_memory) variable = widest(excluded);
    if (!variable) return false;
    // The first branch gets the leaner strategies. These are the strategies up to the middle between the two points if
    // the points lie on either side of the budget and differ in memory, otherwise half of them.
    std::vector<size_t> order;
    for (size_t i = 0; i < excluded[*variable].size(); ++i)
      if (excluded[*variable][i] == 0) order.push_back(i);
    const std::vector<double>& sizes = memory[*variable];
    std::ranges::stable_sort(order, {}, [&](size_t i) { return sizes[i]; });
    size_t count = order.size() / 2;
    if (by_memory) {
      const double middle = (size_of(bound.above, sizes, *variable) + size_of(bound.within, sizes, *variable)) / 2;
      count = static_cast<size_t>(std::ranges::count_if(order, [&](size_t i) { return sizes[i] <= middle; }));
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

  static double size_of(const Point& point, const std::vector<double>& sizes, size_t variable) {
    return sizes[static_cast<size_t>(point.assignment[variable])];
  }

  /// The variable whose memory differs most between the two points.
  static std::optional<size_t> farthest_apart(const Bound& bound, const Values& memory) {
    std::optional<size_t> result;
    double most = 0;
    for (size_t v = 0; v < memory.size(); ++v)
      if (const double difference = std::abs(size_of(bound.above, memory[v], v) - size_of(bound.within, memory[v], v));
          difference > most)
        most = difference, result = v;
    return result;
  }

  /// The variable with the most strategies left.
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
  Point best_, leanest_;
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
  const bool has_budget = options.memory_budget < kInfinite;
  const ProblemModel all = make_model(problem, has_budget);
  Searcher searcher(all, options);
  Values free;
  for (const auto& unary : all.model.unaries) free.emplace_back(unary.size(), 0.0);
  auto [point, bound] = searcher.search(searcher.cuts().no_prices(), free);
  Solution solution;
  solution.width = searcher.width();
  Leanest leanest;
  if (has_budget) {
    leanest = searcher.leanest(free);
    if (leanest.bound <= options.memory_budget && leanest.point.memory > options.memory_budget)
      leanest.bound = std::max(leanest.bound, searcher.least_at_any_cut(free));
    solution.is_feasible = leanest.bound <= options.memory_budget;
  }
  if (solution.is_feasible && (point.memory > options.memory_budget || !searcher.is_exact())) {
    BranchSearch search(all, searcher, options.memory_budget);
    search.run();
    point = search.best();
    bound = std::max(bound, search.lower_bound());
    solution.is_feasible = point.cost < kInfinite;
    if (search.leanest().memory < leanest.point.memory) leanest.point = search.leanest();
    if (search.is_proven_impossible()) leanest.bound = std::max(leanest.bound, std::floor(options.memory_budget) + 1);
  }
  if (has_budget) {
    solution.smallest_budget = leanest.point.memory;
    solution.smallest_budget_bound = leanest.bound;
  }
  if (!solution.is_feasible) point = leanest.point;
  solution.choices = all.choices(point.assignment);
  solution.objective = objective(problem, solution.choices);
  if (!std::isfinite(solution.objective))
    throw Error(ErrorCode::invalid_argument, "the sum of the costs is not finite; give them in a larger unit");
  solution.memory = memory(problem, solution.choices);
  if (!std::isfinite(solution.memory))
    throw Error(ErrorCode::invalid_argument, "the sum of the sizes is not finite; give them in bytes");
  solution.lower_bound = std::min(bound, solution.objective);
  // The bound may be the same sum in another order.
  if (std::abs(bound - solution.objective) <= 1e-12 * std::abs(solution.objective))
    solution.lower_bound = solution.objective;
  return solution;
}

}  // namespace seqtile::planner

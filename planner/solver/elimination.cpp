// planner/solver/elimination.cpp -- see elimination.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/elimination.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace seqtile::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// The least of value(0), ..., value(count - 1). Four independent minima hide the latency of each.
template <class Value>
double least_of(size_t count, const Value& value) {
  double least[4] = {kInfinite, kInfinite, kInfinite, kInfinite};
  size_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (size_t part = 0; part < 4; ++part) {
      const double at = value(i + part);
      least[part] = at < least[part] ? at : least[part];
    }
  for (; i < count; ++i) least[0] = std::min(least[0], value(i));
  return std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
}

/// The least of start[i] + rows[0][i] + rows[1][i] + ... over i. One and two rows, the usual numbers, have fast paths.
double least_sum(const std::vector<double>& start, const std::vector<const double*>& rows, std::vector<double>& sums) {
  const double *begin = start.data(), *first = rows.empty() ? begin : rows[0];
  if (rows.size() == 1) return least_of(start.size(), [=](size_t i) { return begin[i] + first[i]; });
  if (rows.size() == 2) {
    const double* second = rows[1];
    return least_of(start.size(), [=](size_t i) { return begin[i] + first[i] + second[i]; });
  }
  sums = start;
  for (const double* row : rows)
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += row[i];
  return least_of(sums.size(), [&](size_t i) { return sums[i]; });
}

constexpr int64_t kHugeTable = int64_t{1} << 40;  ///< entries, far above any limit; larger sizes are not told apart

/// Counts, for each variable, the functions that it shares with each neighbour and with itself, while functions enter
/// and leave. The counts make table_size() independent of the number of functions, which can be thousands.
class Neighbours {
 public:
  explicit Neighbours(const std::vector<int>& domains) : domains_(domains), shared_(domains.size()) {}

  /// Adds (`change` 1) or removes (-1) a function.
  void count(const std::vector<int>& scope, int change) {
    for (const int variable : scope)
      for (const int other : scope)
        if (std::map<int, int>& shared = shared_[static_cast<size_t>(variable)]; (shared[other] += change) == 0)
          shared.erase(other);
  }
  /// Entries of the joint table of all functions of the variable.
  int64_t table_size(size_t variable) const {
    int64_t size = 1;
    for (const auto& [other, functions] : shared_[variable])
      if ((size *= domains_[static_cast<size_t>(other)]) > kHugeTable) break;
    return size;
  }

 private:
  const std::vector<int>& domains_;
  std::vector<std::map<int, int>> shared_;  ///< by variable: neighbour -> number of shared functions
};

}  // namespace

double value_of(const Model& model, const std::vector<int>& assignment) {
  const auto value = [&](int variable) { return static_cast<size_t>(assignment[static_cast<size_t>(variable)]); };
  double sum = 0;
  for (size_t variable = 0; variable < model.unaries.size(); ++variable)
    sum += model.unaries[variable][value(static_cast<int>(variable))];
  for (const Model::Pair& pair : model.pairs)
    sum += pair.values[value(pair.a) * model.unaries[static_cast<size_t>(pair.b)].size() + value(pair.b)];
  return sum;
}

Elimination::Elimination(const Model& model, int64_t table_limit) {
  for (const auto& unary : model.unaries) domains_.push_back(static_cast<int>(unary.size()));
  for (const Model::Pair& pair : model.pairs) factors_.push_back({choices_of(pair), &pair.values, {}});
  plan(table_limit);
}

// A variable with one value would only widen the tables of its neighbours.
std::vector<int> Elimination::choices_of(const Model::Pair& pair) const {
  if (domains_[static_cast<size_t>(pair.b)] == 1) return {pair.a};
  if (domains_[static_cast<size_t>(pair.a)] == 1) return {pair.b};
  return {pair.a, pair.b};
}

int64_t Elimination::size_of(const std::vector<int>& scope) const {
  int64_t size = 1;
  for (const int variable : scope) {
    size *= domains_[static_cast<size_t>(variable)];
    if (size > kHugeTable) return size;
  }
  return size;
}

std::vector<int> Elimination::joint_scope(const std::vector<int>& factors, int without) const {
  std::vector<int> scope;
  for (const int factor : factors)
    for (const int variable : factors_[static_cast<size_t>(factor)].scope)
      if (variable != without) scope.push_back(variable);
  std::ranges::sort(scope);
  scope.erase(std::unique(scope.begin(), scope.end()), scope.end());
  return scope;
}

std::vector<int> Elimination::first_group(const std::vector<int>& factors, int64_t table_limit) const {
  std::vector<int> group;
  for (const int factor : factors) {
    group.push_back(factor);
    if (group.size() > 1 && size_of(joint_scope(group, -1)) > table_limit) group.pop_back();
  }
  return group;
}

void Elimination::plan(int64_t table_limit) {
  std::vector<std::vector<int>> factors_of(domains_.size());  // functions that are not eliminated yet
  Neighbours neighbours(domains_);
  const auto scope_of = [&](int factor) -> const std::vector<int>& {
    return factors_[static_cast<size_t>(factor)].scope;
  };
  const auto enter = [&](int factor) {
    for (const int variable : scope_of(factor)) factors_of[static_cast<size_t>(variable)].push_back(factor);
    neighbours.count(scope_of(factor), 1);
  };
  const auto leave = [&](int factor) {
    for (const int variable : scope_of(factor)) std::erase(factors_of[static_cast<size_t>(variable)], factor);
    neighbours.count(scope_of(factor), -1);
  };
  for (size_t factor = 0; factor < factors_.size(); ++factor) enter(static_cast<int>(factor));
  std::vector<int64_t> sizes;  // of the table that each variable would need
  std::set<std::pair<int64_t, size_t>> left_by_size;
  for (size_t variable = 0; variable < domains_.size(); ++variable) {
    sizes.push_back(neighbours.table_size(variable));
    left_by_size.emplace(sizes.back(), variable);
  }
  while (!left_by_size.empty()) {
    const auto [size, variable] = *left_by_size.begin();
    left_by_size.erase(left_by_size.begin());
    Step step{static_cast<int>(variable), {}};
    const std::vector<int> factors = factors_of[variable];
    std::vector<int> left = factors;
    do {  // as many functions as one table holds
      const std::vector<int> group = size <= table_limit ? std::exchange(left, {}) : first_group(left, table_limit);
      std::erase_if(left, [&](int factor) { return std::ranges::find(group, factor) != group.end(); });
      step.parts.push_back(make_part(step.variable, group));
    } while (!left.empty());
    is_exact_ = is_exact_ && step.parts.size() == 1;
    step.parts.front().has_unary = true;
    for (const int factor : factors) leave(factor);
    for (const Part& part : step.parts) enter(part.result);
    for (const Part& part : step.parts)
      for (const int other : scope_of(part.result)) {
        const auto o = static_cast<size_t>(other);
        left_by_size.erase({sizes[o], o});
        left_by_size.emplace(sizes[o] = neighbours.table_size(o), o);
      }
    steps_.push_back(std::move(step));
  }
}

Elimination::Part Elimination::make_part(int variable, const std::vector<int>& factors) {
  Part part;
  Factor result{joint_scope(factors, variable), nullptr, {}};
  const int64_t size = size_of(result.scope);
  result.table.resize(static_cast<size_t>(size));
  width_ = std::max(width_, static_cast<int>(result.scope.size()));
  num_entries_ += size * domains_[static_cast<size_t>(variable)];
  for (const int factor : factors) {
    Input input{factor, std::vector<int64_t>(result.scope.size()), 0};
    int64_t stride = 1;
    const std::vector<int>& scope = factors_[static_cast<size_t>(factor)].scope;
    for (size_t i = scope.size(); i-- > 0; stride *= domains_[static_cast<size_t>(scope[i])]) {
      const auto place = std::ranges::find(result.scope, scope[i]);
      (place == result.scope.end() ? input.own_stride
                                   : input.strides[static_cast<size_t>(place - result.scope.begin())]) = stride;
    }
    part.inputs.push_back(std::move(input));
  }
  part.result = static_cast<int>(factors_.size());
  factors_.push_back(std::move(result));
  return part;
}

const double* Elimination::turned(const Input& input, size_t domain, std::vector<double>& place) const {
  const double* data = factors_[static_cast<size_t>(input.factor)].data();
  const auto stride = static_cast<size_t>(input.own_stride);
  if (stride == 1) return data;
  place.resize(static_cast<size_t>(size_of(factors_[static_cast<size_t>(input.factor)].scope)));
  double* to = place.data();
  for (size_t outer = 0; outer < place.size(); outer += stride * domain)
    for (size_t inner = 0; inner < stride; ++inner)
      for (size_t value = 0; value < domain; ++value) *to++ = data[outer + value * stride + inner];
  return place.data();
}

void Elimination::minimise(const Part& part, const std::vector<double>& unary) {
  Factor& result = factors_[static_cast<size_t>(part.result)];
  const size_t rank = result.scope.size(), domain = unary.size();
  std::vector<int> at(rank);
  // The values of the eliminated variable are made adjacent, so that each row is contiguous in memory.
  std::vector<std::vector<double>> places(part.inputs.size());
  std::vector<const double*> rows;
  std::vector<std::vector<int64_t>> strides;
  for (size_t i = 0; i < part.inputs.size(); ++i) {
    const Input& input = part.inputs[i];
    rows.push_back(turned(input, domain, places[i]));
    strides.push_back(input.strides);
    for (int64_t& stride : strides.back())  // dimensions inside the variable's are now outside of it
      if (stride < input.own_stride) stride *= static_cast<int64_t>(domain);
  }
  std::vector<double> start = unary, sums;
  if (!part.has_unary)  // values that are ruled out stay so in every part
    for (double& value : start) value = value == kInfinite ? kInfinite : 0;
  for (double& least : result.table) {
    least = least_sum(start, rows, sums);
    for (size_t axis = rank; axis-- > 0;) {
      const int size = domains_[static_cast<size_t>(result.scope[axis])];
      const bool wraps = ++at[axis] == size;
      for (size_t i = 0; i < rows.size(); ++i) rows[i] += strides[i][axis] * (wraps ? 1 - size : 1);
      if (!wraps) break;
      at[axis] = 0;
    }
  }
}

int Elimination::best_value(const Step& step, const std::vector<double>& unary,
                            const std::vector<int>& assignment) const {
  std::vector<double> sums = unary;
  for (const Part& part : step.parts) {
    const std::vector<int>& scope = factors_[static_cast<size_t>(part.result)].scope;
    for (const Input& input : part.inputs) {
      const double* row = factors_[static_cast<size_t>(input.factor)].data();
      for (size_t axis = 0; axis < scope.size(); ++axis)
        row += assignment[static_cast<size_t>(scope[axis])] * input.strides[axis];
      for (size_t value = 0; value < sums.size(); ++value)
        sums[value] += row[static_cast<int64_t>(value) * input.own_stride];
    }
  }
  return static_cast<int>(std::ranges::min_element(sums) - sums.begin());
}

Elimination::Result Elimination::run(const std::vector<std::vector<double>>& unaries) {
  Result result{std::vector<int>(domains_.size()), 0};
  for (const Step& step : steps_)
    for (const Part& part : step.parts) {
      minimise(part, unaries[static_cast<size_t>(step.variable)]);
      const Factor& left = factors_[static_cast<size_t>(part.result)];
      if (left.scope.empty()) result.bound += left.table.front();
    }
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
    result.assignment[static_cast<size_t>(step->variable)] =
        best_value(*step, unaries[static_cast<size_t>(step->variable)], result.assignment);
  return result;
}

}  // namespace seqtile::planner

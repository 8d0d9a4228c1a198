// planner/solver/elimination.h -- minimises a sum of functions of one and two variables, one variable at a time.
// SPDX-License-Identifier: Apache-2.0
//
// Eliminating a variable replaces all functions of it by one function of its neighbours: the least sum over its values.
// The variable with the smallest table goes first. Graphs of models are almost trees, so tables stay small; the largest
// has domain^(width + 1) entries. Functions whose table would exceed the limit are split into groups. Each group takes
// a minimum of its own, and the result is a lower bound.
// Source: bucket elimination; the split is that of mini-buckets (Dechter and Rish, JACM 2003).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace seqtile::planner {

/// A sum of functions of one variable and of two; each variable has few values.
struct Model {
  struct Pair {
    int a, b;
    std::vector<double> values;  ///< [values of a][values of b]
  };
  std::vector<std::vector<double>> unaries;  ///< by variable, by value
  std::vector<Pair> pairs;                   ///< at most one for each two variables
};

/// The model's sum for an assignment.
double value_of(const Model& model, const std::vector<int>& assignment);

/// The order of elimination and its tables. These do not depend on the unaries, so one object serves many runs.
class Elimination {
 public:
  /// `table_limit` bounds the entries of a table. Requires: `model` outlives this object.
  explicit Elimination(const Model& model, int64_t table_limit = int64_t{1} << 24);

  struct Result {
    std::vector<int> assignment;
    double bound = 0;  ///< lower bound of every assignment's sum
  };
  /// Minimises the sum of the model's pairs and of `unaries`. An infinite value rules out a value of its variable. The
  /// assignment is optimal if is_exact().
  Result run(const std::vector<std::vector<double>>& unaries);

  bool is_exact() const { return is_exact_; }
  /// The number of variables of the largest table, less one.
  int width() const { return width_; }
  /// Table entries that one run takes minima over.
  int64_t num_entries() const { return num_entries_; }

 private:
  /// A function of the variables `scope`, of which the last changes fastest: a pair's, or the result of an elimination.
  struct Factor {
    std::vector<int> scope;
    const std::vector<double>* values = nullptr;  ///< a pair's values; null: `table`
    std::vector<double> table;
    const double* data() const { return values ? values->data() : table.data(); }
  };
  struct Input {
    int factor;
    std::vector<int64_t> strides;  ///< by variable of the result
    int64_t own_stride;            ///< of the variable that is eliminated
  };
  /// The minimum over one group of a variable's functions. A step has several groups where one table would be too
  /// large.
  struct Part {
    std::vector<Input> inputs;
    bool has_unary = false;
    int result = -1;  ///< index of the factor
  };
  struct Step {
    int variable;
    std::vector<Part> parts;
  };

  /// The pair's variables that have more than one value; one of them if neither has.
  std::vector<int> choices_of(const Model::Pair& pair) const;
  int64_t size_of(const std::vector<int>& scope) const;
  std::vector<int> joint_scope(const std::vector<int>& factors, int without) const;
  /// The functions that share the first table: greedily from the first one on, as long as the joint table keeps the
  /// limit.
  std::vector<int> first_group(const std::vector<int>& factors, int64_t table_limit) const;
  void plan(int64_t table_limit);
  Part make_part(int variable, const std::vector<int>& factors);
  /// The input's values, reordered so that the variable's own values are adjacent. Copies to `place` where they are
  /// not.
  const double* turned(const Input& input, size_t domain, std::vector<double>& place) const;
  void minimise(const Part& part, const std::vector<double>& unary);
  int best_value(const Step& step, const std::vector<double>& unary, const std::vector<int>& assignment) const;

  std::vector<int> domains_;
  std::vector<Factor> factors_;
  std::vector<Step> steps_;
  int width_ = 0;
  int64_t num_entries_ = 0;
  bool is_exact_ = true;
};

}  // namespace seqtile::planner

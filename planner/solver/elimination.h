// planner/solver/elimination.h -- the least sum of functions of one and of two variables, one variable after the other.
// SPDX-License-Identifier: Apache-2.0
//
// To eliminate a variable is to replace all functions that have it by one of the variables beside it: the least sum
// over its values. The variable whose table is the smallest goes first. Graphs of models are almost trees, so that
// tables stay small; the largest one has domain^(width + 1) entries. Where a table would be larger than the limit its
// functions are split, each part takes a minimum of its own, and the result is a lower bound.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace seqtile::planner {

/// Variables with few values each; functions of two of them.
struct Model {
  struct Pair {
    int a, b;
    std::vector<double> values;  ///< [values of a][values of b]
  };
  std::vector<std::vector<double>> unaries;  ///< by variable, by value
  std::vector<Pair> pairs;                   ///< at most one of two variables
};

double value_of(const Model& model, const std::vector<int>& assignment);

/// The order of elimination and its tables, which unaries do not change: made once, run for many of them.
class Elimination {
 public:
  /// `table_limit`: entries of the largest table. The model outlives this.
  explicit Elimination(const Model& model, int64_t table_limit = int64_t{1} << 24);

  struct Result {
    std::vector<int> assignment;
    double bound = 0;  ///< no assignment has less
  };
  /// The assignment is optimal where is_exact(). An infinite value of a unary rules it out.
  Result run(const std::vector<std::vector<double>>& unaries);

  bool is_exact() const { return is_exact_; }
  /// Of the largest table, less one.
  int width() const { return width_; }
  int64_t num_entries() const { return num_entries_; }

 private:
  /// A function of `scope`, the last of which changes fastest: a pair's, or what an elimination has left.
  struct Factor {
    std::vector<int> scope;
    const std::vector<double>* values = nullptr;  ///< of a pair; else `table`
    std::vector<double> table;
    const double* data() const { return values ? values->data() : table.data(); }
  };
  struct Input {
    int factor;
    std::vector<int64_t> strides;  ///< of the result's variables
    int64_t own_stride;            ///< of the one that is eliminated
  };
  /// One part of a variable's elimination.
  struct Part {
    std::vector<Input> inputs;
    bool has_unary = false;
    int result = -1;  ///< factor
  };
  struct Step {
    int variable;
    std::vector<Part> parts;
  };

  /// Those of its two variables that have more than one value, or one that has not.
  std::vector<int> choices_of(const Model::Pair& pair) const;
  int64_t size_of(const std::vector<int>& scope) const;
  std::vector<int> joint_scope(const std::vector<int>& factors, int without) const;
  /// As many of the functions as one table holds, from the first one on.
  std::vector<int> first_group(const std::vector<int>& factors, int64_t table_limit) const;
  void plan(int64_t table_limit);
  Part make_part(int variable, const std::vector<int>& factors);
  /// An input's values with the variable's own ones side by side; in `place` where they are not so already.
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

// planner/strategies/operator_rule.h -- an operator's loops, and the strategies that follow from cutting them.
// SPDX-License-Identifier: Apache-2.0
//
// A rule says of each loop which dimension of every operand, parameter and result it runs over. For a linear:
//
//            x[rows, k]   w[n, k]   y[rows, n]
//   rows         0           -          0
//   n            -           0          1
//   k            1           1          -
//
// Every mesh axis cuts one of the loops, or none. All else follows: what a loop runs over is cut; a result that it does
// not run over is a partial sum; an operand that it does not run over is needed whole, and its gradient is a partial
// sum. Where an axis cuts nothing all its devices do the same, and gradients are copies.
//
// In the strategies that are made, partial() of an operand's layout is said of its gradient: operands themselves never
// are partial sums.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "planner/graph/node_view.h"
#include "planner/prices/kernel_times.h"
#include "planner/prices/reshard_paths.h"

namespace seqtile::planner {

/// What operators and changes of layout cost. The mesh's alpha is in seconds, its beta in seconds per byte.
struct CalibratedCosts {
  KernelTimes kernel_time = roofline({});
  double launch_s = DeviceFacts{}.launch_s;  ///< what a kernel that also communicates takes longer
  bool trains = true;                        ///< a backward pass follows
  double state_bytes = 8;  ///< of a parameter in training, beside itself and its gradient: two moments in f32
  /// Each way in which a row of devices has copies of parameters is there with parts of them too, gathered for each
  /// pass: slower, for plans that must keep a budget.
  bool cuts_parameters = false;
  /// How many times as long computation and communication within one kernel each take while both are under way.
  double overlap_slowdown = 1;

  /// What a kernel that computes for `compute` seconds takes longer where it also communicates: all of it where a
  /// device sends with the cores that compute.
  double fused(double communication, double compute) const;
};

/// In place of a dimension: none, so that there are partial sums; none, and the tensor is as if nothing were cut.
inline constexpr int kNoDim = -1, kUntouched = -2;

struct Factor {
  const char* name;
  std::vector<int> operands;  ///< by input: the dimension that it runs over
  int result = kNoDim;
  std::vector<int> parameters = {};  ///< by parameter
  bool is_even = false;              ///< only equal parts
  /// Of a collective within the kernel, along one axis: the dimension of the first operand, or of the result, whose
  /// innermost axis that is.
  int fused_dim = kNoDim;
  std::vector<int> others = {};  ///< by result from the second on: the dimension; empty: all are as the first
};

struct Rule {
  std::vector<Factor> factors;
  std::vector<Shape> parameters = {};  ///< the node's own
};

/// By factor: the axes that cut it.
struct Cut {
  static constexpr size_t kMostFactors = 2 * kMaxRank;
  std::array<AxisSet, kMostFactors> axes{};
};

/// What a device does in one strategy, beside what follows from layouts.
struct Work {
  double forward = 0, backward = 0;  ///< seconds of kernels
  double communication = 0;          ///< seconds of it that kernels do not hide
  int kernels = 0, measured = 0;
  bool keeps_result = true;  ///< false: it is a parameter, counted as such; of a view no result is counted either
};

/// A node while its strategies are made.
class RuleView : public NodeView {
 public:
  RuleView(const Graph& graph, Node& node, const CalibratedCosts& costs, ReshardTables& paths,
           const std::vector<char>& has_gradient);

  const CalibratedCosts& costs() const { return costs_; }
  const std::string& dtype() const { return node().results.front().dtype; }
  double element_bytes() const { return static_cast<double>(node().results.front().element_bytes); }
  /// Whether there is a backward pass through an input.
  bool has_gradient(size_t input) const;
  bool has_any_gradient() const;

  /// Those in which every device has a part of every tensor. An axis of one device cuts nothing.
  std::vector<Cut> cuts(const Rule& rule) const;
  bool can_cut(const Rule& rule, const Cut& cut) const;
  Layout operand(const Rule& rule, const Cut& cut, size_t input) const;
  Layout parameter_layout(const Rule& rule, const Cut& cut, size_t parameter) const;
  Layout result(const Rule& rule, const Cut& cut, size_t member = 0) const;
  /// Bytes that a device reads and writes if it takes every operand and parameter and leaves every result once.
  double traffic(const Rule& rule, const Cut& cut) const;
  double parameter_bytes(const Rule& rule, const Cut& cut) const;
  double result_bytes(const Rule& rule, const Cut& cut) const;

  /// Seconds, counted in `work`.
  double time(const KernelCall& call, Work& work) const;
  /// The node's gradients of parameters are summed over the axes that do not cut them.
  void add(const Rule& rule, const Cut& cut, const Work& work);

 private:
  bool can_fuse(const Rule& rule, const Cut& cut) const;
  /// Of a device's parameters: where they lie, and what it takes to have them and to sum their gradients.
  struct Held {
    double bytes = 0, seconds = 0;
    std::vector<Layout> layouts = {};
  };
  Held held_whole(const Rule& rule, const Cut& cut) const;
  Held held_in_parts(const Rule& rule, const Cut& cut) const;
  bool sums_gradients(const Rule& rule, const Cut& cut) const;
  void add(const Rule& rule, const Cut& cut, const Work& work, const Held& held, const char* suffix);
  /// By name. A rule cuts its parameters of one shape alike.
  std::map<std::string, Layout> by_name(const Rule& rule, const std::vector<Layout>& layouts) const;

  const CalibratedCosts& costs_;
  ReshardTables& paths_;
  const std::vector<char>& has_gradient_;  ///< by node
};

/// "dim 3".
const char* dim_name(size_t dim);

/// A loop over each dimension of the result; operands are aligned with it from behind. Not over dimensions of one
/// element, nor over the last `whole` ones.
Rule broadcast_rule(const NodeView& node, size_t whole = 0);

/// Whether each input is one tensor, and there is a result.
bool has_tensors(const NodeView& node);

// One function for each family of operators. False, and no strategy: the node's inputs, parameters and shapes are not
// what the operator has where it is known.
bool rule_linears(std::vector<RuleView>& siblings);  ///< of one input: one kernel, priced at the first
bool rule_conv(RuleView& node);
bool rule_matmul(RuleView& node);  ///< behind a bias where there is one
bool rule_einsum(RuleView& node);
bool rule_experts(RuleView& node);     ///< rows times the weight of the expert whose they are
bool rule_recurrence(RuleView& node);  ///< LSTM, GRU, RNN
bool rule_attention(RuleView& node);
bool rule_elementwise(RuleView& node);
bool rule_gated(RuleView& node);   ///< of two halves of the last dimension
bool rule_rotary(RuleView& node);  ///< rows of the last dimension are whole
bool rule_softmax(RuleView& node);
bool rule_along(RuleView& node);    ///< the dimensions that its arguments name are whole
bool rule_pair(RuleView& node);     ///< matrices of the last two dimensions are whole
bool rule_reduced(RuleView& node);  ///< sums, means and others over dimensions
bool rule_counted(RuleView& node);  ///< sums over all of the input
bool rule_loss(RuleView& node);     ///< of rows of logits and their labels
bool rule_created(RuleView& node);
bool rule_indexed(RuleView& node);
bool rule_one_hot(RuleView& node);
bool rule_group_norm(RuleView& node);
bool rule_instance_norm(RuleView& node);
bool rule_norm(RuleView& node);
bool rule_batch_norm(RuleView& node);
bool rule_embedding(RuleView& node);
bool rule_pool(RuleView& node);
bool rule_view(RuleView& node);
bool rule_permuted(RuleView& node);
bool rule_split(RuleView& node);
bool rule_part(RuleView& node);      ///< along dimensions that keep their size it may be cut
bool rule_without(RuleView& node);   ///< one dimension less: select, unbind
bool rule_stacked(RuleView& node);   ///< one dimension more
bool rule_expanded(RuleView& node);  ///< repeated along dimensions
bool rule_getitem(RuleView& node);

}  // namespace seqtile::planner

// planner/strategies/operator_rule.h -- an operator's loops, and the strategies that follow from cutting them.
// SPDX-License-Identifier: Apache-2.0
//
// A rule names, for each loop, the dimension of every operand, parameter and result that the loop runs over. A linear:
//
//            x[rows, k]   w[n, k]   y[rows, n]
//   rows         0           -          0
//   n            -           0          1
//   k            1           1          -
//
// Every mesh axis cuts one of the loops, or none. The layouts follow: a dimension that a cut loop runs over is cut. A
// result that the loop does not run over is a partial sum. An operand that the loop does not run over is needed whole,
// and its gradient is a partial sum. An axis that cuts nothing makes all its devices do the same work, with equal
// gradients.
//
// In the strategies, partial() of an operand's layout describes the operand's gradient: operands are never partial
// sums.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "planner/graph/node_view.h"
#include "planner/prices/kernel_times.h"
#include "planner/prices/reshard_paths.h"

namespace seqtile::planner {

/// The costs of operators and of changes of layout. The mesh's alpha is in seconds, its beta in seconds per byte.
struct CalibratedCosts {
  KernelTimes kernel_time = roofline({});
  double launch_s = DeviceFacts{}.launch_s;  ///< extra time of a kernel that also communicates
  bool trains = true;                        ///< a backward pass follows
  double state_bytes = 8;                    ///< per trained parameter, besides value and gradient: two moments in f32
  /// Whether every strategy in which devices hold copies of parameters exists a second time with the parameters in
  /// parts, gathered for each pass. Such strategies are slower and serve plans that must keep a budget.
  bool cuts_parameters = false;
  /// Factor by which computation and communication within one kernel slow down while both are under way.
  double overlap_slowdown = 1;

  /// Extra seconds of a kernel that computes for `compute` seconds, if it also communicates for `communication`
  /// seconds. Nothing is saved where a device sends with the cores that compute (overlap_slowdown of 2 or more).
  double fused(double communication, double compute) const;
};

/// Values in place of a dimension. kNoDim: the loop runs over none, so cutting it gives partial sums. kUntouched: the
/// tensor's layout does not depend on the loop.
inline constexpr int kNoDim = -1, kUntouched = -2;

struct Factor {
  const char* name;
  std::vector<int> operands;  ///< by input: the dimension that the loop runs over
  int result = kNoDim;
  std::vector<int> parameters = {};  ///< by parameter
  bool is_even = false;              ///< cut only into equal parts
  /// A loop whose cut puts a collective along one axis into the kernel: the dimension, of the first operand or of the
  /// result, of which that axis must be the innermost. kNoDim: no collective.
  int fused_dim = kNoDim;
  std::vector<int> others = {};  ///< by result after the first: the dimension; empty: as `result`
};

struct Rule {
  std::vector<Factor> factors;
  std::vector<Shape> parameters = {};  ///< the node's own parameters
};

/// By factor: the axes that cut it.
struct Cut {
  static constexpr size_t kMostFactors = 2 * kMaxRank;
  std::array<AxisSet, kMostFactors> axes{};
};

/// The work of a device in one strategy, besides the costs that follow from layouts.
struct Work {
  double forward = 0, backward = 0;  ///< seconds of kernels
  double communication = 0;          ///< seconds that kernels do not hide
  int kernels = 0, measured = 0;
  bool keeps_result = true;  ///< false: the result is a parameter and counted as such; results of views never count
};

/// A node while its strategies are made.
class RuleView : public NodeView {
 public:
  RuleView(const Graph& graph, Node& node, const CalibratedCosts& costs, ReshardTables& paths,
           const std::vector<char>& has_gradient);

  const CalibratedCosts& costs() const { return costs_; }
  const std::string& dtype() const { return node().results.front().dtype; }
  double element_bytes() const { return static_cast<double>(node().results.front().element_bytes); }
  /// Whether a backward pass goes through an input.
  bool has_gradient(size_t input) const;
  bool has_any_gradient() const;

  /// All cuts that give every device a part of every tensor, with at most one collective within the kernel. An axis of
  /// one device cuts nothing.
  std::vector<Cut> cuts(const Rule& rule) const;
  bool can_cut(const Rule& rule, const Cut& cut) const;
  Layout operand(const Rule& rule, const Cut& cut, size_t input) const;
  Layout parameter_layout(const Rule& rule, const Cut& cut, size_t parameter) const;
  Layout result(const Rule& rule, const Cut& cut, size_t member = 0) const;
  /// Bytes that a device reads and writes if it reads every operand and parameter once and writes every result once.
  double traffic(const Rule& rule, const Cut& cut) const;
  double parameter_bytes(const Rule& rule, const Cut& cut) const;
  double result_bytes(const Rule& rule, const Cut& cut) const;

  /// Seconds of a kernel call. Counts the call in `work`.
  double time(const KernelCall& call, Work& work) const;
  /// Adds the strategy of a cut. Gradients of the node's parameters are summed over the axes that do not cut the
  /// parameters.
  void add(const Rule& rule, const Cut& cut, const Work& work);

 private:
  bool can_fuse(const Rule& rule, const Cut& cut) const;
  /// A device's parameters: their bytes and layouts, and the seconds of gathering them and summing their gradients.
  struct Held {
    double bytes = 0, seconds = 0;
    std::vector<Layout> layouts = {};
  };
  Held held_whole(const Rule& rule, const Cut& cut) const;
  Held held_in_parts(const Rule& rule, const Cut& cut) const;
  bool sums_gradients(const Rule& rule, const Cut& cut) const;
  void add(const Rule& rule, const Cut& cut, const Work& work, const Held& held, const char* suffix);
  /// Layouts by name of the parameter. Parameters of one shape are cut alike.
  std::map<std::string, Layout> by_name(const Rule& rule, const std::vector<Layout>& layouts) const;

  const CalibratedCosts& costs_;
  ReshardTables& paths_;
  const std::vector<char>& has_gradient_;  ///< by node
};

/// The name of a loop over a dimension: "dim 3".
const char* dim_name(size_t dim);

/// A rule with a loop over each dimension of the result; operands are aligned with the result at the last dimension.
/// Dimensions of one element and the last `whole` ones have no loop.
Rule broadcast_rule(const NodeView& node, size_t whole = 0);

/// Whether each input is one tensor, and the node has a result.
bool has_tensors(const NodeView& node);

// One function for each family of operators. It returns false, and adds no strategy, where the node's inputs,
// parameters and shapes are not those of a form that it knows.
bool rule_linears(std::vector<RuleView>& siblings);  ///< linears of one input: one kernel, priced at the first
bool rule_conv(RuleView& node);
bool rule_matmul(RuleView& node);  ///< with an optional bias as first input
bool rule_einsum(RuleView& node);
bool rule_experts(RuleView& node);     ///< each row times the weight of the row's expert
bool rule_recurrence(RuleView& node);  ///< LSTM, GRU, RNN
bool rule_attention(RuleView& node);
bool rule_elementwise(RuleView& node);
bool rule_gated(RuleView& node);   ///< the last dimension has two halves
bool rule_rotary(RuleView& node);  ///< the last dimension stays whole
bool rule_softmax(RuleView& node);
bool rule_along(RuleView& node);    ///< the dimensions named by the arguments stay whole
bool rule_pair(RuleView& node);     ///< matrices of the last two dimensions stay whole
bool rule_reduced(RuleView& node);  ///< sums, means and others over dimensions
bool rule_counted(RuleView& node);  ///< sums over all of the input
bool rule_loss(RuleView& node);     ///< rows of logits and their labels
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
bool rule_part(RuleView& node);      ///< dimensions that keep their size may be cut
bool rule_without(RuleView& node);   ///< drops one dimension: select, unbind
bool rule_stacked(RuleView& node);   ///< adds one dimension
bool rule_expanded(RuleView& node);  ///< repeats along dimensions
bool rule_getitem(RuleView& node);

}  // namespace seqtile::planner

// models/layers/plan_shares.cpp -- see plan_shares.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/layers/plan_shares.h"

#include <fmt/format.h>

#include "jit/base/counted.h"
#include "seqtile/error.h"

namespace seqtile::models {
using namespace kernels;

const char* share_name(Share share) {
  static constexpr const char* kShareNames[] = {"whole", "cut by rows", "cut by columns", "partial sums"};
  return kShareNames[static_cast<size_t>(share)];
}

bool is_linear(const planner::Node& node) { return planner::operator_name(node) == "Linear"; }
bool is_norm(const planner::Node& node) { return planner::operator_name(node) == "RMSNorm"; }

PlanShares::PlanShares(const planner::Graph& graph, const planner::Choices& choices, int rank, int ranks)
    : graph_(graph), choices_(choices), rank_(rank), ranks_(ranks) {
  const bool is_block = graph.mesh.num_axes == 1 && graph.mesh.shape[0] == ranks && !graph.nodes.empty() &&
                        graph.nodes.front().op == "placeholder" && shape_of(0).size() == 3 && shape_of(0)[0] == 1;
  if (!is_block)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the graph must be decoder layers (is_block) of one sequence, over a mesh of one axis "
                            "with as many devices",
                            counted(ranks, "rank")));
  length_ = shape_of(0)[1];
  if (length_ < 2 * ranks)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("length {} on {}: give each rank two rows at least", length_, counted(ranks, "rank")));
  layout_ = row_layout();
}

const planner::Strategy& PlanShares::strategy_of(int node) const {
  return node_at(node).strategies[static_cast<size_t>(choices_[static_cast<size_t>(node)])];
}

void PlanShares::refuse(int node, const std::string& what) const {
  throw Error(ErrorCode::unsupported, fmt::format("{} ({}): {}; it can be planned, but not run", node_at(node).name,
                                                  strategy_of(node).name, what));
}

Share PlanShares::share_of(int node, planner::Layout layout) const {
  if (layout.partial()) return Share::sums;
  if (layout.axes_of(1)) return Share::rows;
  if (layout.axes_of(2)) return Share::columns;
  if (layout.cutting()) refuse(node, "no kernel for this cut");
  return Share::whole;
}

Share PlanShares::result_share(int node) const { return share_of(node, strategy_of(node).results.front()); }

Share PlanShares::operand_share(int node, size_t operand) const {
  return share_of(node, strategy_of(node).operands[operand].front().with_partial(0));
}

seqpar::RowLayout PlanShares::row_layout() const {
  bool gathers_keys = false, changes = false;
  for (int node = 0; node < static_cast<int>(graph_.nodes.size()); ++node) {
    gathers_keys = gathers_keys || strategy_of(node).name.ends_with("with gathered keys");
    for (size_t i = 0; i < node_at(node).inputs.size(); ++i) {
      const Share wanted = operand_share(node, i);
      changes = changes || changes_rows(result_share(node_at(node).inputs[i]), wanted) ||
                (is_linear(node_at(node)) && changes_rows(wanted, result_share(node)));
    }
  }
  return gathers_keys && !changes ? seqpar::RowLayout::zigzag : seqpar::RowLayout::contiguous;
}

int64_t PlanShares::own_rows(Share share) const {
  return share == Share::rows ? seqpar::num_rows(layout_, rank_, length_, ranks_) : length_;
}

int64_t PlanShares::own_part(int node, int64_t size) const {
  if (size % ranks_ != 0) refuse(node, fmt::format("{} ranks would have uneven parts of {}", ranks_, size));
  return size / ranks_;
}

int64_t PlanShares::heads_of(int node, Share share) const {
  const int64_t heads = shape_of(node)[2];
  return share == Share::columns ? own_part(node, heads) : heads;
}

}  // namespace seqtile::models

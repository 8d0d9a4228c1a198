// models/layers/plan_shares.h -- a rank's share of every tensor of a planned graph of decoder layers.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>

#include "planner/graph/graph.h"
#include "planner/graph/node_view.h"
#include "planner/graph/problem.h"
#include "seqtile/seqpar.h"

namespace seqtile::models {

/// A rank's share of a tensor [1, length, ...]. Columns are the third dimension: heads, or features.
enum class Share { whole, rows, columns, sums };
const char* share_name(Share share);

bool is_linear(const planner::Node& node);
bool is_norm(const planner::Node& node);

/// A plan over a mesh of one axis, as one rank sees it.
class PlanShares {
 public:
  /// Errors: invalid_argument if the graph is not a block (model_graph.h) of one sequence over `ranks` devices, or a
  /// rank would have fewer than two rows.
  PlanShares(const planner::Graph& graph, const planner::Choices& choices, int rank, int ranks);

 protected:
  const planner::Node& node_at(int node) const { return graph_.nodes[static_cast<size_t>(node)]; }
  const planner::Shape& shape_of(int node) const { return node_at(node).results.front().shape; }
  const planner::Strategy& strategy_of(int node) const;
  Share result_share(int node) const;
  Share operand_share(int node, size_t operand) const;
  int64_t own_rows(Share share) const;
  /// The size of this rank's part. Errors: unsupported, as by refuse(), if parts would be unequal.
  int64_t own_part(int node, int64_t size) const;
  int64_t heads_of(int node, Share share) const;
  /// Throws unsupported. The message names the node, its strategy and `what`, for which there is no kernel.
  [[noreturn]] void refuse(int node, const std::string& what) const;

  const planner::Graph& graph_;
  const planner::Choices& choices_;
  const int rank_, ranks_;
  int64_t length_ = 0;
  kernels::seqpar::RowLayout layout_ = kernels::seqpar::RowLayout::contiguous;

 private:
  Share share_of(int node, planner::Layout layout) const;
  bool changes_rows(Share from, Share to) const { return from != to && (from == Share::rows || to == Share::rows); }
  /// Zigzag if keys are gathered and no other operator needs rows in order.
  kernels::seqpar::RowLayout row_layout() const;
};

}  // namespace seqtile::models

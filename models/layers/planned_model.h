// models/layers/planned_model.h -- runs a planned graph of decoder layers on one of P ranks, as the plan says.
// SPDX-License-Identifier: Apache-2.0
//
// The plan is a strategy for each operator of model_graph() with `is_block`, over a mesh of one axis. A step is one
// launch: an operator with its strategy, where that communicates the fused one; linears of one input together, as they
// are priced; or a change of layout between two operators, which is a collective. Where the library has one kernel for
// two operators there is one step for both: a sum and the norm of it, rotary embeddings of queries and keys.
//
// Rows are cut evenly and in order; but where a plan gathers keys, and rows change their layout nowhere, zigzag
// (seqpar/row_layout.h), so that the causal mask leaves all ranks the same work.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autotune/engine.h"
#include "jit/fabric/core/channel.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "models/file/model.h"
#include "models/layers/model_weights.h"
#include "planner/graph/graph.h"
#include "planner/graph/problem.h"

namespace seqtile::models {

struct PlannedStep {
  std::vector<int> nodes;  ///< operators that it computes; of a change the one that wants it
  bool is_change = false;  ///< of a layout
  std::string operation;   ///< the registered one
  autotune::Workload workload{};
  bool communicates = false;
  std::vector<Tensor> tensors{};
  int64_t length = 0, number = 0;
  Handle handle{};
};

class PlannedModel {
 public:
  /// Collective. Weights outlive it. Errors: unsupported where the library has no kernel for an operator, its strategy
  /// or a change of layout (the line names it), or a share of a dimension would be uneven; and as FusedHandle.
  PlannedModel(Engine& engine, Fabric& fabric, const Model& model, const planner::Graph& graph,
               const planner::Choices& choices, const ModelWeights& weights);

  /// x [length, hidden]: takes the part that this rank wants of it.
  void set_input(const Tensor& x);
  /// Collective. Where a rank gives up the outputs are NaN, and check() says why.
  void run() const;
  void run_step(const PlannedStep& step) const;
  /// Errors: as Channel::check().
  void check() const;
  const std::vector<PlannedStep>& steps() const { return steps_; }

  /// The part of y [length, hidden] that this rank has, a row for each of its rows.
  const Tensor& result() const { return result_; }
  /// Where they are in the sequence.
  int64_t position_of(int64_t row) const;
  int64_t length() const { return length_; }

 private:
  friend class PlannedModelMaker;

  int64_t length_ = 0;
  int rank_ = 0, world_size_ = 1;
  kernels::seqpar::RowLayout layout_ = kernels::seqpar::RowLayout::contiguous;
  bool has_input_rows_ = false, has_result_rows_ = false;
  Tensor input_{}, result_{};
  std::vector<ModelTensor> memory_;
  std::unique_ptr<Channel> channel_;  ///< where anything communicates
  std::vector<PlannedStep> steps_;
};

}  // namespace seqtile::models

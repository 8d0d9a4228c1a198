// models/layers/planned_model.h -- runs a planned graph of decoder layers on one of P ranks.
// SPDX-License-Identifier: Apache-2.0
//
// The plan is a strategy for each operator of model_graph() with `is_block`, over a mesh of one axis. A step is one
// launch. It computes an operator with its strategy (if that communicates, as a fused kernel), or all linears of one
// input, which the planner prices together, or a change of layout between two operators, which is a collective. Where
// the library has one kernel for two operators, one step computes both: a sum and its norm, or the rotary embeddings of
// queries and keys.
//
// Rows are cut evenly and in order. If a plan gathers keys and never changes the layout of rows, the cut is zigzag
// (RowLayout), so that the causal mask leaves all ranks the same work.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/layers/model_weights.h"
#include "planner/graph/graph.h"
#include "planner/graph/problem.h"
#include "seqtile/engine.h"
#include "seqtile/fabric.h"
#include "seqtile/model.h"
#include "seqtile/seqpar.h"

namespace seqtile::models {

struct PlannedStep {
  std::vector<int> nodes;  ///< operators that it computes; for a change, the consumer
  bool is_change = false;  ///< the step is a change of layout
  std::string operation;   ///< name of the registered operation
  autotune::Workload workload{};
  bool communicates = false;
  std::span<const std::string_view> shares{};  ///< fields by which ranks may differ
  std::vector<Tensor> tensors{};
  int64_t length = 0, op_id = 0;
  Handle handle{};
};

class PlannedModel {
 public:
  /// Collective. Requires: `weights` outlives this object.
  /// Errors: unsupported if the library has no kernel for an operator, its strategy or a change of layout (the message
  /// names it), or if shares of a dimension would be unequal; and as FusedHandle.
  PlannedModel(Engine& engine, Fabric& fabric, const Model& model, const planner::Graph& graph,
               const planner::Choices& choices, const ModelWeights& weights);

  /// Copies this rank's part of x [length, hidden].
  void set_input(const Tensor& x);
  /// Runs all steps. Collective. If a rank gives up, outputs are NaN and check() says why.
  void run() const;
  void run_step(const PlannedStep& step) const;
  /// Errors: as Channel::check().
  void check() const;
  const std::vector<PlannedStep>& steps() const { return steps_; }

  /// This rank's part of y [length, hidden]: its rows.
  const Tensor& result() const { return result_; }
  /// The position in the sequence of a row of result().
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
  std::unique_ptr<Channel> channel_;  ///< null if no step communicates
  std::vector<PlannedStep> steps_;
};

}  // namespace seqtile::models

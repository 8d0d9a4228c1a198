// models/layers/model_weights.h -- random weights of a decoder model, and memory for its tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "planner/graph/graph.h"
#include "seqtile/tensor.h"

namespace seqtile::models {

/// A dense tensor in page-aligned memory.
class ModelTensor {
 public:
  ModelTensor() = default;
  ModelTensor(DType dtype, int64_t rows, int64_t columns);
  const Tensor& tensor() const { return tensor_; }  ///< [rows, columns]

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  Tensor tensor_{};
};

/// Whole parameters by name, "model.layers.0.mlp.down_proj.weight". A parameter of a norm has one row.
using ModelWeights = std::map<std::string, ModelTensor>;
/// Random parameters for all nodes that have some. Products have about the magnitude of their input.
ModelWeights random_weights(const planner::Graph& graph, DType dtype, uint64_t seed);

}  // namespace seqtile::models

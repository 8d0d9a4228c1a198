// models/layers/model_weights.h -- made-up weights of a decoder model, and memory for tensors of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "jit/device/tensor.h"
#include "planner/graph/graph.h"

namespace seqtile::models {

/// Page-aligned memory of a dense tensor.
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

/// Whole parameters by name, "model.layers.0.mlp.down_proj.weight"; of a norm one row.
using ModelWeights = std::map<std::string, ModelTensor>;
/// Made-up ones of all nodes that have some: products keep the size of what they multiply.
ModelWeights random_weights(const planner::Graph& graph, DType dtype, uint64_t seed);

}  // namespace seqtile::models

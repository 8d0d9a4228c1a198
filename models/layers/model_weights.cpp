// models/layers/model_weights.cpp -- see model_weights.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/layers/model_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <utility>

#include "seqtile/error.h"
#include "seqtile/kernel.h"

namespace seqtile::models {
using namespace kernels;

namespace {

constexpr size_t kPage = 4096;

}  // namespace

ModelTensor::ModelTensor(DType dtype, int64_t rows, int64_t columns) {
  const auto bytes = static_cast<size_t>(rows * columns * dtype_bytes(dtype));
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes / kPage + 1) * kPage)));
  if (!memory_) throw Error(ErrorCode::out_of_resources, fmt::format("no memory for {} bytes of a tensor", bytes));
  tensor_ = make_tensor(memory_.get(), dtype, {rows, columns});
}

void ModelTensor::Free::operator()(std::byte* memory) const { std::free(memory); }

ModelWeights random_weights(const planner::Graph& graph, DType dtype, uint64_t seed) {
  ModelWeights weights;
  for (const planner::Node& node : graph.nodes)
    for (const auto& [name, shape] : node.parameters) {
      const bool is_row = shape.size() == 1;
      ModelTensor tensor(dtype, is_row ? 1 : shape[0], shape.back());
      const double deviation = is_row ? 0.1 : 1 / std::sqrt(static_cast<double>(shape.back()));
      fill_normal(tensor.tensor(), is_row ? 1 : 0, deviation, seed++);
      weights.emplace(node.target + "." + name, std::move(tensor));
    }
  return weights;
}

}  // namespace seqtile::models

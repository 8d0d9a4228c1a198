// models/layers/model_runner.cpp -- see model_runner.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/layers/model_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "jit/base/assert.h"
#include "jit/base/counted.h"
#include "seqtile/error.h"

namespace seqtile::models {
namespace {

/// The same memory in an argument's shape: [rows, columns] becomes [rows, heads, head_dim], or a list.
Tensor shaped(const Tensor& memory, DType dtype, std::span<const int64_t> sizes) {
  Tensor tensor = memory;
  tensor.dtype = dtype;
  tensor.rank = static_cast<int>(sizes.size());
  int64_t elements = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.sizes[d] = sizes[static_cast<size_t>(d)];
    tensor.strides[d] = elements;
    elements *= tensor.sizes[d];
  }
  return tensor;
}

int64_t bytes_of_row(const Tensor& tensor) { return tensor.strides[0] * dtype_bytes(tensor.dtype); }

}  // namespace

ModelRunner::ModelRunner(Engine& engine, const Model& model, Parameters parameters, int64_t capacity)
    : engine_(engine), model_(model), parameters_(std::move(parameters)), capacity_(capacity) {}

void ModelRunner::run(std::span<const int32_t> ids, const Observer& observe) {
  const auto tokens = static_cast<int64_t>(ids.size());
  if (tokens < 1 || past_ + tokens > capacity_)
    throw Error(ErrorCode::invalid_argument, fmt::format("{} behind {}: the runner was made for 1 to {} in all",
                                                         counted(tokens, "token"), past_, capacity_));
  const Phase phase = past_ == 0 ? Phase::prefill : tokens > 1 ? Phase::extend : Phase::decode;
  tokens_ = tokens, keys_ = past_ + tokens;
  buffers_.clear();
  fill_indices(ids);
  for (const Step& step : entry_steps(model_)) run_step(step);
  if (observe) observe(buffer("hidden"));
  for (layer_ = 0; layer_ < model_.layers; ++layer_) {
    if (layer_ > 0) next_layer();
    for (const Step& step : layer_steps(model_, layer_, phase)) run_step(step);
    if (observe) observe(buffer("result"));
  }
  for (const Step& step : exit_steps(model_)) run_step(step);
  past_ = keys_;
}

/// Makes the layer's result the input of the next layer.
void ModelRunner::next_layer() {
  for (const auto& [from, to] : {std::pair("result", "hidden"), std::pair("result_normed", "normed")})
    if (buffers_.contains(from)) std::swap(buffers_[to], buffers_[from]);
}

void ModelRunner::fill_indices(std::span<const int32_t> ids) {
  const auto fill = [&](const char* name, std::span<const int32_t> values) {
    ModelTensor& list = buffers_[name] = ModelTensor(DType::i32, 1, static_cast<int64_t>(values.size()));
    std::memcpy(list.tensor().data, values.data(), values.size_bytes());
  };
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(past_));
  fill("ids", ids);
  fill("positions", positions);
  fill("q_start", std::array{0, static_cast<int32_t>(tokens_)});
  fill("kv_start", std::array{0});
  fill("kv_len", std::array{static_cast<int32_t>(keys_)});
  for (const LayerKind& kind : model_.kinds) {
    if (!kind.has_rope) continue;
    ModelTensor& table = buffers_[rope_table_buffer(kind)] =
        ModelTensor(DType::i32, kernels::kRopeTableRows, kind.rope.rotary_dim / 2);
    fill_rope_table(kind.rope, keys_, table.tensor());
  }
}

ModelTensor& ModelRunner::cache_of(const std::string& name) { return caches_[fmt::format("{}.{}", name, layer_)]; }

int64_t ModelRunner::size_of(const autotune::Dim& dim, const Step& step) const {
  if (dim.symbol.empty()) return dim.size;
  if (dim.symbol == "batch") return 1 + dim.size;
  const bool has_keys = dim.symbol == "kv_tokens" || (dim.symbol == "length" && step.length == StepLength::keys);
  return dim.size + (has_keys ? keys_ : tokens_);
}

Tensor ModelRunner::bind_parameter(const Parameter& parameter, const autotune::ArgSpec& arg) const {
  const Tensor whole = parameters_(parameter.name);
  Tensor part = whole;
  if (parameter.rows > 0) {
    part.sizes[0] = parameter.rows;
    part.data = static_cast<std::byte*>(whole.data) + parameter.first * bytes_of_row(whole);
  }
  if (part.num_elements() != std::accumulate(arg.dims.begin(), arg.dims.end(), int64_t{1},
                                             [](int64_t n, const autotune::Dim& dim) { return n * dim.size; }))
    throw Error(ErrorCode::invalid_argument, fmt::format("parameter {}: has {} elements, the model file says otherwise",
                                                         parameter.name, part.num_elements()));
  return part;
}

Tensor ModelRunner::bind(const autotune::ArgSpec& arg, const Step& step) {
  const auto wire = std::ranges::find(step.wires, arg.name, &Wire::argument);
  SEQTILE_ASSERT(wire != step.wires.end());
  std::vector<int64_t> sizes;
  for (const autotune::Dim& dim : arg.dims) sizes.push_back(size_of(dim, step));
  if (wire->buffer.empty()) return shaped(bind_parameter(wire->parameter, arg), arg.dtype, sizes);
  const bool is_cache = std::ranges::count(step.cached, wire->buffer, &CachedRows::cache) > 0;
  ModelTensor& buffer = is_cache ? cache_of(wire->buffer) : buffers_[wire->buffer];
  if (!buffer.tensor().data)
    buffer = ModelTensor(arg.dtype, sizes[0],
                         std::accumulate(sizes.begin() + 1, sizes.end(), int64_t{1}, std::multiplies()));
  return shaped(buffer.tensor(), arg.dtype, sizes);
}

void ModelRunner::run_step(const Step& step) {
  for (const auto& [name, rows] : step.cached) {
    const Tensor from = buffer(rows);
    ModelTensor& cache = cache_of(name);
    if (!cache.tensor().data) cache = ModelTensor(from.dtype, capacity_, from.strides[0]);
    const int64_t bytes = bytes_of_row(from);
    std::memcpy(static_cast<std::byte*>(cache.tensor().data) + past_ * bytes, from.data,
                static_cast<size_t>(tokens_ * bytes));
  }
  const Handle handle = engine_.prepare(step.workload);
  std::vector<Tensor> tensors;
  for (const autotune::ArgSpec& arg : handle.schema().args) tensors.push_back(bind(arg, step));
  handle(tensors, step.length == StepLength::keys ? keys_ : tokens_);
}

}  // namespace seqtile::models

// models/layers/model_runner.h -- runs a decoder model: prefill, extend and decode of one sequence, with a KV cache.
// SPDX-License-Identifier: Apache-2.0
//
// This is the plain way to execute the steps of a model on a CPU: one launch a step, buffers by name, no batching. It
// is not made for speed. Tests compare it with the package that wrote the model file, and servers can copy how it binds
// arguments.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/layers/model_weights.h"
#include "seqtile/engine.h"
#include "seqtile/model.h"

namespace seqtile::models {

class ModelRunner {
 public:
  /// Returns a whole parameter by name, [rows, columns] or [columns], dense, in the model's dtype. Requires: its memory
  /// outlives the runner.
  using Parameters = std::function<Tensor(const std::string& name)>;
  /// Receives the hidden states of a call, [tokens, hidden_size]: before layer 0, and after every layer.
  using Observer = std::function<void(const Tensor& hidden)>;

  /// `capacity` limits the tokens of the sequence. Requires: `engine` and `model` outlive the runner. Errors: as
  /// layer_steps().
  ModelRunner(Engine& engine, const Model& model, Parameters parameters, int64_t capacity);

  /// Runs the tokens `ids`, which follow the tokens of earlier calls. buffer("logits") then has their logits, and
  /// buffer("result_normed") the normed states after the last layer. A call that failed, here or in `observe`, may be
  /// repeated.
  /// Errors: invalid_argument for no token, and for more tokens than the capacity allows.
  void run(std::span<const int32_t> ids, const Observer& observe = nullptr);
  /// The named buffer's rows of the last call.
  Tensor buffer(const std::string& name) const { return buffers_.at(name).tensor(); }

 private:
  void run_step(const Step& step);
  Tensor bind(const autotune::ArgSpec& arg, const Step& step);
  Tensor bind_parameter(const Parameter& parameter, const autotune::ArgSpec& arg) const;
  ModelTensor& cache_of(const std::string& name);
  int64_t size_of(const autotune::Dim& dim, const Step& step) const;
  void fill_indices(std::span<const int32_t> ids);
  void next_layer();

  Engine& engine_;
  const Model& model_;
  Parameters parameters_;
  const int64_t capacity_;
  int64_t past_ = 0;               ///< tokens of the calls that succeeded
  int64_t tokens_ = 0, keys_ = 0;  ///< of this call; of this call and all before
  int64_t layer_ = 0;
  std::map<std::string, ModelTensor> buffers_;  ///< rows of this call, and index lists
  std::map<std::string, ModelTensor> caches_;   ///< by name and layer: [capacity, columns]
};

}  // namespace seqtile::models

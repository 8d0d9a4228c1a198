// models/layers/model_runner.h -- runs a decoder model's steps: prefill, extend and decode of one sequence, with a KV
// cache.
// SPDX-License-Identifier: Apache-2.0
//
// The plain way to execute layer_program.h on a CPU: one launch a step, buffers by name, nothing batched. Not for
// speed; the tests compare it with the package that wrote the model file, and it shows how a server binds the
// arguments.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "autotune/engine.h"
#include "models/layers/layer_program.h"
#include "models/layers/model_weights.h"

namespace seqtile::models {

class ModelRunner {
 public:
  /// A whole parameter of the model by its name, [rows, columns] or [columns], dense, in the model's dtype; its memory
  /// outlives the runner.
  using Parameters = std::function<Tensor(const std::string& name)>;
  /// Sees the hidden states of a call, [tokens, hidden_size]: before layer 0, and behind every layer.
  using Observer = std::function<void(const Tensor& hidden)>;

  /// `capacity`: tokens of the sequence. Engine and model outlive the runner. Errors: as layer_steps().
  ModelRunner(Engine& engine, const Model& model, Parameters parameters, int64_t capacity);

  /// Runs the tokens that follow those of earlier calls. Their logits are in buffer("logits"), the normed states behind
  /// the last layer in buffer("result_normed"). Errors: invalid_argument for no token and beyond the capacity; a
  /// call that failed, here or in `observe`, may be made again.
  void run(std::span<const int32_t> ids, const Observer& observe = nullptr);
  /// The rows of the last call.
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
  std::map<std::string, ModelTensor> buffers_;  ///< rows of this call, and numbers
  std::map<std::string, ModelTensor> caches_;   ///< of all layers, [capacity, columns]
};

}  // namespace seqtile::models

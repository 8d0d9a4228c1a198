// models/layers/model_operations.h -- the operations of a decoder model's forward pass.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <vector>

#include "autotune/tuner.h"
#include "models/file/model.h"

namespace seqtile::models {

struct ModelLengths {
  int64_t lo = 1, hi = 1;        ///< tokens of a call
  int64_t kv_lo = 1, kv_hi = 0;  ///< keys of a decode step; kv_hi 0: the model's max_positions
};

/// Rows of a call for which logits are computed: one for each sequence of the batch, so from 1 on at any length.
constexpr int64_t kMaxLogitRows = 256;

/// Every distinct operation of the model's forward pass with the lengths that it must cover: distinct_steps() of
/// layer_program.h. Labels: embedding, input_norm (first layer), qkv_proj, q_norm and k_norm (olmo2), rope,
/// attention_prefill, attention_extend, attention_decode (suffix _window if the model has both kinds), o_proj,
/// residual_norm, gate_up_proj (up_proj without a gate), down_proj, final_norm (olmo2), lm_head.
/// Errors: unsupported, with the feature of the model that no operation computes.
std::vector<autotune::TuneRequest> model_operations(const Model& model, const ModelLengths& lengths, DType dtype,
                                                    int threads);

}  // namespace seqtile::models

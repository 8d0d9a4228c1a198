// models/layers/layer_program.h -- a decoder model as a list of steps: one operation each, with its arguments.
// SPDX-License-Identifier: Apache-2.0
//
// This is the only description of a layer's computation. The operations to tune, the layers of `replay` and the model
// runner follow from it. A value between steps is a named buffer with one row for each token:
//
//   ids -> hidden, normed                        entry; each layer begins with these two
//   normed -> q, k, v -> q_turned, k_turned -> attended -> projected
//   projected + hidden -> middle, middle_normed
//   middle_normed -> activated -> fed
//   fed + middle -> result, result_normed        hidden and normed of the next layer
//   result_normed -> logits                      exit
//
// The step that makes a norm's input also computes the norm, if the input is a sum. A layer's last step therefore
// computes the norm of the next layer's input, or the model's last norm. Models that normalise only results (olmo2)
// have no normed buffers.
#pragma once
#include <string>
#include <vector>

#include "autotune/fields.h"
#include "kernels/attention/attention_forward.h"
#include "kernels/rows/rope.h"
#include "models/file/model.h"

namespace seqtile::models {

/// Rows [first, first + rows) of a parameter in Hugging Face's module tree. rows 0: all rows.
struct Parameter {
  std::string name;
  int64_t first = 0, rows = 0;
};

/// An argument of a step's operation, and the buffer or the parameter that it is bound to.
struct Wire {
  std::string argument, buffer;
  Parameter parameter{};
};

/// Before the step runs, the rows of buffer `rows` are appended to buffer `cache`, behind the rows of earlier calls.
struct CachedRows {
  std::string cache, rows;
};

using Phase = kernels::AttentionForward::Phase;
enum class StepLength {
  tokens,  ///< of the call
  keys,    ///< of the call and of all calls before it: attention of phase decode
  logits,  ///< tokens whose logits are wanted
};

struct Step {
  std::string label;  ///< role in a layer: "qkv_proj"; equal labels have equal workloads
  autotune::Workload workload;
  std::vector<Wire> wires{};
  StepLength length = StepLength::tokens;
  std::vector<CachedRows> cached{};
};

/// Steps before the first layer, of one layer, and after the last layer.
/// Errors, also of the functions below: unsupported, with the model's type and the feature that no operation computes.
std::vector<Step> entry_steps(const Model& model);
std::vector<Step> layer_steps(const Model& model, int64_t layer, Phase phase);
std::vector<Step> exit_steps(const Model& model);
/// The steps of the entry, of layers of every kind in every phase, and of the exit, one for each label, in the order of
/// a layer.
std::vector<Step> distinct_steps(const Model& model);

/// The rotation of queries and keys in layers of a kind. fill_rope_table(kind.rope, ...) puts its frequencies in a
/// table.
kernels::Rope rope_of(const Model& model, const LayerKind& kind);

/// The name of the buffer that holds the table of a kind's rope.
std::string rope_table_buffer(const LayerKind& kind);

}  // namespace seqtile::models

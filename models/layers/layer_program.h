// models/layers/layer_program.h -- a decoder model as a list of steps: one operation each, and what its arguments are.
// SPDX-License-Identifier: Apache-2.0
//
// The one description of what a layer computes; operations to tune, the layers of `replay` and the model runner follow
// from it. A value between steps is a buffer with a name, of one row a token:
//
//   ids -> hidden, normed                        entry; each layer begins with these two
//   normed -> q, k, v -> q_turned, k_turned -> attended -> projected
//   projected + hidden -> middle, middle_normed
//   middle_normed -> activated -> fed
//   fed + middle -> result, result_normed        hidden and normed of the next layer
//   result_normed -> logits                      exit
//
// Each norm is computed by the step that makes its input, where that is a sum: the norm of the next layer's input, or
// of the model's, belongs to a layer's last step. Models that normalise results alone (olmo2) have no normed buffers.
#pragma once
#include <string>
#include <vector>

#include "autotune/fields.h"
#include "kernels/attention/attention_forward.h"
#include "kernels/rows/rope.h"
#include "models/file/model.h"

namespace seqtile::models {

/// Rows [first, first + rows) of a parameter of Hugging Face's module tree; rows 0: all of it.
struct Parameter {
  std::string name;
  int64_t first = 0, rows = 0;
};

/// One argument of a step's operation: a buffer, or a parameter.
struct Wire {
  std::string argument, buffer;
  Parameter parameter{};
};

/// Rows of buffer `rows` that go behind those of earlier calls in buffer `cache`, before the step runs.
struct CachedRows {
  std::string cache, rows;
};

using Phase = kernels::AttentionForward::Phase;
enum class StepLength {
  tokens,  ///< of the call
  keys,    ///< of the call and of all before it: attention of phase decode
  logits,  ///< the tokens whose logits are wanted
};

struct Step {
  std::string label;  ///< "qkv_proj": the role in a layer; equal labels have equal workloads
  autotune::Workload workload;
  std::vector<Wire> wires{};
  StepLength length = StepLength::tokens;
  std::vector<CachedRows> cached{};
};

/// Errors (here and below): unsupported, naming the model's type and what no operation computes.
std::vector<Step> entry_steps(const Model& model);
std::vector<Step> layer_steps(const Model& model, int64_t layer, Phase phase);
std::vector<Step> exit_steps(const Model& model);
/// The steps of entry, layers of every kind in every phase, and exit that have different labels, in the order of a
/// layer.
std::vector<Step> distinct_steps(const Model& model);

/// The rotation of a kind's queries and keys; its frequencies are in the table, fill_rope_table(kind.rope, ...).
kernels::Rope rope_of(const Model& model, const LayerKind& kind);

/// The buffer that a step reads as the table of a kind's rope.
std::string rope_table_buffer(const LayerKind& kind);

}  // namespace seqtile::models

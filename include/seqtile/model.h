// include/seqtile/model.h -- a decoder model: its sizes, its layers as steps, its operations, also over ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "seqtile/op.h"
#include "seqtile/ops/attention.h"
#include "seqtile/ops/rows.h"
#include "seqtile/tensor.h"
#include "seqtile/tuner.h"

namespace seqtile::models {

/// A rope with all values resolved: defaults are filled in, and factors that depend on other fields are computed.
/// Source: Su et al., RoFormer (2021); the scalings follow the transformers classes that write model files.
struct RopeForm {
  std::string type = "default";  ///< default | linear | dynamic | yarn | longrope | llama3
  double theta = 10000;
  int64_t rotary_dim = 0;  ///< leading elements of a head that are rotated; the rest is copied
  double factor = 1;       ///< not for default and longrope
  /// dynamic, longrope: sequences longer than this have other frequencies. yarn, llama3: the length before the scaling.
  int64_t original_max_positions = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn
  bool truncate = true;                              ///< yarn: the ends of the ramp are whole dimensions
  double attention_factor = 1;                       ///< yarn, longrope: multiplies cosine and sine
  std::vector<double> short_factor, long_factor;     ///< longrope, one for each pair

  friend bool operator==(const RopeForm&, const RopeForm&) = default;
};

/// Whether the frequencies depend on the length. If so, every call needs a newly filled table.
bool depends_on_length(const RopeForm& form);
/// Fills the table of the operation rope (seqtile/ops/rows.h). Errors: as kernels::fill_rope_table().
void fill_rope_table(const RopeForm& form, int64_t length, const Tensor& table);

// Model is a decoder model: its sizes, and the computation of its layers.
//
// Some models store fused weights (Phi3's qkv_proj and gate_up_proj). The parts are row slices of one tensor, so the
// operations are the same as with separate weights.

/// The features in which the layers of one model can differ.
struct LayerKind {
  std::string name;    ///< "" if all layers are alike; else "full" or "window", plus "_no_rope" without rope
  int64_t window = 0;  ///< keys that a query sees, including its own; 0: all keys before it
  bool has_rope = true;
  RopeForm rope;  ///< only where has_rope

  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

enum class Norm { rms, layer };
/// The place of norms around attention and feed-forward part: on the input (llama), on the result (olmo2), on both
/// (gemma2).
enum class NormPlace { before, after, both };
/// The norm of queries and keys before rope: a weight [head_dim] for each head (qwen3), or one weight for all heads of
/// a row (olmo2).
enum class HeadNorm { none, each_head, all_heads };

struct Model {
  std::string type;  ///< for example "llama"
  DType dtype = DType::f32;
  int64_t hidden_size = 0, intermediate_size = 0, layers = 0, vocab_size = 0, max_positions = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::string activation;  ///< silu, gelu or gelu_tanh
  bool is_gated = true;    ///< false: down(activation(up(x))), as in StarCoder2
  Norm norm = Norm::rms;
  NormPlace norm_place = NormPlace::before;
  HeadNorm head_norm = HeadNorm::none;
  double norm_eps = 0;
  double norm_weight_offset = 0;  ///< added to the weights of all norms; Gemma: 1
  bool norm_bias = false, qkv_bias = false, output_bias = false, mlp_bias = false, head_bias = false;
  bool is_tied = false;                                              ///< lm_head has the weight of the embedding
  double embedding_scale = 1, residual_scale = 1, logits_scale = 1;  ///< factors, of Gemma and Granite
  double attention_scale = 0;                                        ///< 0: 1 / sqrt(head_dim)
  double soft_cap = 0, logits_soft_cap = 0;                          ///< of attention, of logits; 0: none
  std::vector<LayerKind> kinds;                                      ///< distinct, ordered by their first layers
  std::vector<int> kind_of_layer;                                    ///< [layers], indexes `kinds`

  const LayerKind& kind_of(int64_t layer) const {
    return kinds[static_cast<size_t>(kind_of_layer[static_cast<size_t>(layer)])];
  }
  /// Makes all layers alike. Requires: `layers` is set.
  void set_kind(LayerKind kind) {
    kinds = {std::move(kind)};
    kind_of_layer.assign(static_cast<size_t>(layers), 0);
  }
};

struct ModelLengths {
  int64_t lo = 1, hi = 1;        ///< tokens of a call
  int64_t kv_lo = 1, kv_hi = 0;  ///< keys of a decode step; kv_hi 0: the model's max_positions
};

/// Rows of a call for which logits are computed: one for each sequence of the batch, so from 1 on at any length.
constexpr int64_t kMaxLogitRows = 256;

/// Every distinct operation of the model's forward pass with the lengths that it must cover: those of
/// distinct_steps(). Labels: embedding, input_norm (first layer), qkv_proj, q_norm and k_norm (olmo2), rope,
/// attention_prefill, attention_extend, attention_decode (suffix _window if the model has both kinds), o_proj,
/// residual_norm, gate_up_proj (up_proj without a gate), down_proj, final_norm (olmo2), lm_head.
/// Errors: unsupported, with the feature of the model that no operation computes.
std::vector<autotune::TuneRequest> model_operations(const Model& model, const ModelLengths& lengths, DType dtype,
                                                    int threads);

// Steps are a decoder model as a list: one operation each, with its arguments.
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

// Ranks share the operations of a decoder model, tensor and sequence parallel.
//
// Between the products the sequence is cut: each rank embeds, adds and normalises its own rows. Within the products
// heads and columns are cut: fused_allgather_and_linear gathers the rows for the first product, attention sees all rows
// of the rank's heads, and fused_linear_and_reducescatter sums the second product and scatters its rows. Sizes need not
// be divisible: shares can differ by a KV group or a block of columns, and so do the keys of the ranks' records.

struct ModelRank {
  int rank = 0, world_size = 1;
  std::string fabric = "threads";  ///< Fabric::kind(): part of the keys of operations that communicate
};

/// A rank's share of a model. Every rank has all of the embedding and the norms.
struct ModelShard {
  int64_t heads = 0, kv_heads = 0;  ///< kv_heads includes copies
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;  ///< columns of lm_head
};

/// KV groups are cut by the floor rule: rank r has groups [floor(r g / P), floor((r + 1) g / P)) with all their query
/// heads. With fewer groups than ranks, query heads are cut by this rule and the KV heads that they read are
/// replicated. If the rank's heads read several KV heads, and not equally many heads read each, some KV heads are
/// copied several times. Columns are cut in blocks of 64, or of the largest smaller power of two that divides their
/// number, so that rows of weights stay aligned.
/// Errors: unsupported where a rank would have no head or no column.
ModelShard shard_of(const Model& model, int rank, int world_size);

/// model_operations() of one rank. Operations that communicate, rope and attention have lengths of the whole sequence;
/// embedding and norms have lengths of the rank's own rows. The product that adds the residual also normalises the sum;
/// residual_norm remains only for layer norms and where results are normalised before they are added. lm_head gathers
/// its rows too: every rank computes its columns of all logits.
/// Errors: as shard_of().
std::vector<autotune::TuneRequest> rank_operations(const Model& model, const ModelLengths& lengths, DType dtype,
                                                   int threads, const ModelRank& rank);

/// distinct_steps() as a rank runs them: a product that sums takes the arguments of the next norm if it also
/// normalises. Workloads are those of the whole model. Errors: as rank_operations().
std::vector<Step> rank_steps(const Model& model);

}  // namespace seqtile::models

// models/model_operations.cpp -- see model_operations.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/model_operations.h"

#include <fmt/format.h>

#include <algorithm>

#include "jit/error.h"
#include "kernels/attention_forward.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"

namespace seqtile::models {
using namespace kernels;

namespace {

void check_served(const Model& model) {
  const auto refuse = [&](bool is_so, const char* what) {
    if (is_so) throw Error(ErrorCode::unsupported, fmt::format("{} model: no operation for {}", model.type, what));
  };
  refuse(!model.is_gated, "a feed-forward part without a gate");
  refuse(model.norm != Norm::rms || model.norm_bias, "layer norms");
  refuse(model.norm_place == NormPlace::after, "norms of results alone");
  refuse(model.head_norm != HeadNorm::none, "norms of queries and keys");
  refuse(model.mlp_bias || model.head_bias, "biases of the feed-forward part or the head");
  refuse(model.residual_scale != 1 || model.logits_scale != 1, "scaled residuals and logits");
  for (const LayerKind& kind : model.kinds) {
    refuse(!kind.has_rope, "layers without rope");
    refuse(kind.rope != model.kinds.front().rope, "layers of different rope");
  }
}

}  // namespace

Rope rope_of(const Model& model, const LayerKind& kind) {
  const RopeForm& form = kind.rope;
  Rope rope{.heads = model.heads, .kv_heads = model.kv_heads, .head_dim = model.head_dim};
  rope.rotary_dim = form.rotary_dim;
  rope.theta = form.theta;
  if (form.type == "default") return rope;
  if (form.type != "llama3")
    throw Error(ErrorCode::unsupported,
                fmt::format("{} model: no operation for rope of type {}", model.type, form.type));
  rope.scaling = form.type;
  rope.factor = form.factor;
  rope.low_freq_factor = form.low_freq_factor;
  rope.high_freq_factor = form.high_freq_factor;
  rope.original_max_position = form.original_max_positions;
  return rope;
}

std::vector<autotune::TuneRequest> model_operations(const Model& model, const ModelLengths& lengths, DType dtype,
                                                    int threads) {
  check_served(model);
  std::vector<autotune::TuneRequest> requests;
  const auto add = [&](std::string label, autotune::Workload workload, int64_t lo, int64_t hi) {
    workload.dtype = dtype;
    workload.threads = threads;
    requests.push_back({std::move(label), std::move(workload), lo, hi});
  };
  const auto add_rows = [&](std::string label, autotune::Workload workload) {
    add(std::move(label), std::move(workload), lengths.lo, lengths.hi);
  };
  const int64_t hidden = model.hidden_size, q_size = model.heads * model.head_dim,
                kv_size = model.kv_heads * model.head_dim;
  RmsNorm norm{.n = hidden, .eps = model.norm_eps, .weight_offset = model.norm_weight_offset};
  Embedding table{.vocab = model.vocab_size, .n = hidden, .scale = model.embedding_scale};
  add_rows("embedding", table.workload());
  add_rows("input_norm", norm.workload());
  norm.residual = true;
  add_rows("residual_norm", norm.workload());
  add_rows("qkv_proj",
           Linear{.n = q_size, .n2 = kv_size, .n3 = kv_size, .k = hidden, .bias = model.qkv_bias}.workload());
  add_rows("rope", rope_of(model, model.kinds.front()).workload());
  for (const LayerKind& kind : model.kinds) {
    const std::string suffix = kind.name == "window" ? "_window" : "";
    AttentionForward attention{.heads = model.heads,
                               .kv_heads = model.kv_heads,
                               .head_dim = model.head_dim,
                               .window = kind.window,
                               .soft_cap = model.soft_cap,
                               .scale = model.attention_scale};
    for (const char* phase : {"prefill", "extend", "decode"}) {
      attention.phase = phase;
      const bool decode = attention.phase == "decode";
      add("attention_" + attention.phase + suffix, attention.workload(), decode ? lengths.kv_lo : lengths.lo,
          decode ? (lengths.kv_hi ? lengths.kv_hi : model.max_positions) : lengths.hi);
    }
  }
  add_rows("o_proj", Linear{.n = hidden, .k = q_size, .bias = model.output_bias}.workload());
  add_rows(
      "gate_up_proj",
      Linear{.n = model.intermediate_size, .k = hidden, .activation = parse_activation(model.activation), .gated = true}
          .workload());
  add_rows("down_proj", Linear{.n = hidden, .k = model.intermediate_size}.workload());
  if (lengths.lo <= kMaxLogitRows)
    add("lm_head", Linear{.n = model.vocab_size, .k = hidden}.workload(), lengths.lo,
        std::min(lengths.hi, kMaxLogitRows));
  return requests;
}

}  // namespace seqtile::models

// models/layers/layer_program.cpp -- see seqtile/model.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "kernels/act/activation.h"
#include "seqtile/error.h"
#include "seqtile/ops/linear.h"
#include "seqtile/ops/rows.h"

namespace seqtile::models {
using namespace kernels;

namespace {

constexpr std::pair<Phase, const char*> kPhases[] = {
    {Phase::prefill, "prefill"}, {Phase::extend, "extend"}, {Phase::decode, "decode"}};

void check_served(const Model& model) {
  const auto refuse = [&](bool is_so, const char* what) {
    if (is_so) throw Error(ErrorCode::unsupported, fmt::format("{} model: no operation for {}", model.type, what));
  };
  const bool has_layer_norm = model.norm == Norm::layer;
  refuse(has_layer_norm && model.norm_place != NormPlace::before, "layer norms of results (norm_place)");
  refuse(has_layer_norm && model.norm_weight_offset != 0, "layer norms with an offset of weights (norm_weight_offset)");
  refuse(has_layer_norm && model.head_norm != HeadNorm::none, "layer norms of heads (head_norm)");
  refuse(!has_layer_norm && model.norm_bias, "root-mean-square norms with a bias (norm_bias)");
  const auto first = std::ranges::find_if(model.kinds, &LayerKind::has_rope);
  for (const LayerKind& kind : model.kinds) {
    refuse(!kind.has_rope && model.head_norm == HeadNorm::each_head,
           "norms of heads in layers without rope (head_norm)");
    refuse(kind.has_rope && kind.rope.rotary_dim != first->rope.rotary_dim,
           "layers that rotate different parts of heads (rotary_dim)");
  }
}

class ProgramMaker {
 public:
  explicit ProgramMaker(const Model& model)
      : m_(model), q_size_(model.heads * model.head_dim), kv_size_(model.kv_heads * model.head_dim) {
    check_served(model);
  }

  std::vector<Step> take() { return std::move(steps_); }

  void add_entry() {
    add("embedding", Embedding{.vocab = m_.vocab_size, .n = m_.hidden_size, .scale = m_.embedding_scale},
        {{"ids", "ids"}, parameter("table", "model.embed_tokens.weight"), {"y", "hidden"}});
    if (has_input_norm()) add_norm("input_norm", "hidden", input_norm(0), "normed");
  }

  /// Adds the steps of a layer: attention once for each of `kinds` and `phases`, all other steps once.
  void add_layer(int64_t layer, std::span<const LayerKind> kinds,
                 std::span<const std::pair<Phase, const char*>> phases) {
    layer_ = layer;
    add_queries();
    const bool has_rope = std::ranges::any_of(kinds, &LayerKind::has_rope);
    if (has_rope) add_rope(*std::ranges::find_if(kinds, &LayerKind::has_rope));
    for (const LayerKind& kind : kinds)
      for (const auto& [phase, name] : phases) add_attention(kind, phase, name, has_rope);
    add("o_proj", Linear{.n = m_.hidden_size, .k = q_size_, .bias = m_.output_bias, .scale = m_.residual_scale},
        {{"x", "attended"}, {"y", "projected"}}, {{"self_attn.o_proj", "", m_.output_bias}});
    const std::string after = path("post_attention_layernorm");
    add_sum("projected", "hidden", after, m_.norm_place == NormPlace::both ? path("pre_feedforward_layernorm") : after,
            "middle");
    add_feed_forward();
    add_sum("fed", "middle", path("post_feedforward_layernorm"), input_norm(layer + 1), "result");
  }

  void add_exit() {
    if (!has_input_norm()) add_norm("final_norm", "result", "model.norm", "result_normed");
    const std::string head = m_.is_tied ? "model.embed_tokens" : "lm_head";
    Step& step = add("lm_head",
                     Linear{.n = m_.vocab_size,
                            .k = m_.hidden_size,
                            .bias = m_.head_bias,
                            .scale = m_.logits_scale,
                            .soft_cap = m_.logits_soft_cap},
                     {{"x", "result_normed"}, parameter("w", head + ".weight"), {"y", "logits"}});
    if (m_.head_bias) step.wires.push_back(parameter("bias", "lm_head.bias"));
    step.length = StepLength::logits;
  }

 private:
  /// A weight of a product: its module, the suffix of its arguments, and its rows.
  struct Weight {
    std::string module, suffix;
    bool has_bias;
    int64_t first = 0, rows = 0;
  };

  static Wire parameter(std::string argument, std::string name, int64_t first = 0, int64_t rows = 0) {
    return {std::move(argument), "", {std::move(name), first, rows}};
  }
  std::string path(const std::string& module) const { return fmt::format("model.layers.{}.{}", layer_, module); }
  bool has_input_norm() const { return m_.norm_place != NormPlace::after; }
  /// The norm of a layer's input. After the last layer it is the model's last norm.
  std::string input_norm(int64_t layer) const {
    return layer == m_.layers ? "model.norm" : fmt::format("model.layers.{}.input_layernorm", layer);
  }
  std::string attention_input() const { return has_input_norm() ? "normed" : "hidden"; }
  std::string fed_input() const { return has_input_norm() ? "middle_normed" : "middle"; }

  template <class Op>
  Step& add(std::string label, Op op, std::vector<Wire> wires, const std::vector<Weight>& weights = {}) {
    op.dtype = m_.dtype;
    for (const Weight& weight : weights) {
      const std::string module = path(weight.module);
      wires.push_back(parameter("w" + weight.suffix, module + ".weight", weight.first, weight.rows));
      if (weight.has_bias)
        wires.push_back(parameter("bias" + weight.suffix, module + ".bias", weight.first, weight.rows));
    }
    return steps_.emplace_back(Step{.label = std::move(label), .workload = op.workload(), .wires = std::move(wires)});
  }

  RmsNorm rms(int64_t n) const { return {.n = n, .eps = m_.norm_eps, .weight_offset = m_.norm_weight_offset}; }

  void add_norm(std::string label, const std::string& x, const std::string& module, const std::string& y) {
    std::vector<Wire> wires = {{"x", x}, parameter("weight", module + ".weight"), {"y", y}};
    if (m_.norm_bias) wires.push_back(parameter("bias", module + ".bias"));
    if (m_.norm == Norm::layer)
      add(std::move(label), LayerNorm{.n = m_.hidden_size, .eps = m_.norm_eps, .bias = m_.norm_bias}, std::move(wires));
    else add(std::move(label), rms(m_.hidden_size), std::move(wires));
  }

  /// Adds `sum` = x + residual with the norms that the model has: `of_x` normalises x, `of_sum` normalises the sum.
  void add_sum(const std::string& x, const std::string& residual, const std::string& of_x, const std::string& of_sum,
               const std::string& sum) {
    std::vector<Wire> wires = {{"x", x}, {"residual", residual}, {"sum", sum}};
    if (m_.norm_place != NormPlace::before) wires.push_back(parameter("x_weight", of_x + ".weight"));
    if (has_input_norm()) {
      wires.push_back(parameter("weight", of_sum + ".weight"));
      wires.push_back({"y", sum + "_normed"});
      if (m_.norm_bias) wires.push_back(parameter("bias", of_sum + ".bias"));
    }
    if (m_.norm == Norm::layer) {
      add("residual_norm", LayerNorm{.n = m_.hidden_size, .eps = m_.norm_eps, .bias = m_.norm_bias, .residual = true},
          std::move(wires));
      return;
    }
    RmsNorm norm = rms(m_.hidden_size);
    norm.residual = true;
    using Normed = RmsNorm::Normed;
    norm.normed = m_.norm_place == NormPlace::before  ? Normed::sum
                  : m_.norm_place == NormPlace::after ? Normed::x
                                                      : Normed::both;
    add("residual_norm", norm, std::move(wires));
  }

  void add_queries() {
    std::vector<Weight> weights = {{"self_attn.q_proj", "", m_.qkv_bias},
                                   {"self_attn.k_proj", "2", m_.qkv_bias},
                                   {"self_attn.v_proj", "3", m_.qkv_bias}};
    if (m_.type == "phi3")
      weights = {{"self_attn.qkv_proj", "", m_.qkv_bias, 0, q_size_},
                 {"self_attn.qkv_proj", "2", m_.qkv_bias, q_size_, kv_size_},
                 {"self_attn.qkv_proj", "3", m_.qkv_bias, q_size_ + kv_size_, kv_size_}};
    const bool are_normed = m_.head_norm == HeadNorm::all_heads;
    add("qkv_proj", Linear{.n = q_size_, .n2 = kv_size_, .n3 = kv_size_, .k = m_.hidden_size, .bias = m_.qkv_bias},
        {{"x", attention_input()},
         {"y", are_normed ? "q_plain" : "q"},
         {"y2", are_normed ? "k_plain" : "k"},
         {"y3", "v"}},
        weights);
    if (!are_normed) return;
    add("q_norm", rms(q_size_), {{"x", "q_plain"}, parameter("weight", path("self_attn.q_norm.weight")), {"y", "q"}});
    add("k_norm", rms(kv_size_), {{"x", "k_plain"}, parameter("weight", path("self_attn.k_norm.weight")), {"y", "k"}});
  }

  void add_rope(const LayerKind& kind) {
    std::vector<Wire> wires = {{"q", "q"},
                               {"k", "k"},
                               {"positions", "positions"},
                               {"table", rope_table_buffer(kind)},
                               {"q_out", "q_turned"},
                               {"k_out", "k_turned"}};
    if (m_.head_norm == HeadNorm::each_head)
      for (const char* which : {"q_norm", "k_norm"})
        wires.push_back(parameter(which, path(fmt::format("self_attn.{}.weight", which))));
    add("rope", rope_of(m_, kind), std::move(wires));
  }

  void add_attention(const LayerKind& kind, Phase phase, const char* name, bool is_turned) {
    const AttentionForward attention{.heads = m_.heads,
                                     .kv_heads = m_.kv_heads,
                                     .head_dim = m_.head_dim,
                                     .phase = phase,
                                     .window = kind.window,
                                     .soft_cap = m_.soft_cap,
                                     .scale = m_.attention_scale};
    const bool has_others = std::ranges::any_of(m_.kinds, [&](const LayerKind& k) { return k.window != kind.window; });
    Step& step = add(fmt::format("attention_{}{}", name, kind.window && has_others ? "_window" : ""), attention,
                     {{"q", is_turned ? "q_turned" : "q"},
                      {"k", "k_cache"},
                      {"v", "v_cache"},
                      {"q_start", "q_start"},
                      {"kv_start", "kv_start"},
                      {"kv_len", "kv_len"},
                      {"out", "attended"},
                      {"lse", "lse"}});
    if (phase == Phase::decode) step.length = StepLength::keys;
    step.cached = {{"k_cache", is_turned ? "k_turned" : "k"}, {"v_cache", "v"}};
  }

  void add_feed_forward() {
    const int64_t n = m_.intermediate_size;
    const Linear up{.n = n,
                    .k = m_.hidden_size,
                    .bias = m_.mlp_bias,
                    .activation = parse_activation(m_.activation),
                    .gated = m_.is_gated};
    std::vector<Weight> weights = {{"mlp.gate_proj", "", m_.mlp_bias}, {"mlp.up_proj", "2", m_.mlp_bias}};
    if (m_.type == "phi3")
      weights = {{"mlp.gate_up_proj", "", m_.mlp_bias, 0, n}, {"mlp.gate_up_proj", "2", m_.mlp_bias, n, n}};
    if (!m_.is_gated) weights = {{"mlp.c_fc", "", m_.mlp_bias}};
    add(m_.is_gated ? "gate_up_proj" : "up_proj", up, {{"x", fed_input()}, {"y", "activated"}}, weights);
    add("down_proj", Linear{.n = m_.hidden_size, .k = n, .bias = m_.mlp_bias, .scale = m_.residual_scale},
        {{"x", "activated"}, {"y", "fed"}}, {{m_.is_gated ? "mlp.down_proj" : "mlp.c_proj", "", m_.mlp_bias}});
  }

  const Model& m_;
  const int64_t q_size_, kv_size_;
  int64_t layer_ = 0;
  std::vector<Step> steps_;
};

}  // namespace

kernels::Rope rope_of(const Model& model, const LayerKind& kind) {
  Rope rope{.heads = model.heads,
            .kv_heads = model.kv_heads,
            .head_dim = model.head_dim,
            .rotary_dim = kind.rope.rotary_dim,
            .norm = model.head_norm == HeadNorm::each_head};
  if (rope.norm) rope.eps = model.norm_eps, rope.weight_offset = model.norm_weight_offset;
  return rope;
}

std::string rope_table_buffer(const LayerKind& kind) {
  return kind.name.empty() ? "rope_table" : "rope_table_" + kind.name;
}

std::vector<Step> entry_steps(const Model& model) {
  ProgramMaker maker(model);
  maker.add_entry();
  return maker.take();
}

std::vector<Step> layer_steps(const Model& model, int64_t layer, Phase phase) {
  ProgramMaker maker(model);
  const auto named = std::ranges::find(kPhases, phase, [](const auto& p) { return p.first; });
  maker.add_layer(layer, {&model.kind_of(layer), 1}, {named, 1});
  return maker.take();
}

std::vector<Step> exit_steps(const Model& model) {
  ProgramMaker maker(model);
  maker.add_exit();
  return maker.take();
}

std::vector<Step> distinct_steps(const Model& model) {
  ProgramMaker maker(model);
  maker.add_entry();
  maker.add_layer(0, model.kinds, kPhases);
  maker.add_exit();
  std::vector<Step> steps = maker.take();
  std::set<std::string> seen;
  std::erase_if(steps, [&](const Step& step) { return !seen.insert(step.label).second; });
  return steps;
}

}  // namespace seqtile::models

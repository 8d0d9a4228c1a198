// tests/models/layer_program_test.cpp -- steps of models of every form: wires of arguments, fused norms.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/model.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "seqtile/error.h"
#include "tests/support/kernels/kernel_cases.h"

namespace seqtile::testing {
namespace {

using namespace models;

Model llama() {
  Model model{.type = "llama",
              .hidden_size = 64,
              .intermediate_size = 96,
              .layers = 2,
              .vocab_size = 48,
              .max_positions = 64,
              .heads = 4,
              .kv_heads = 2,
              .head_dim = 16,
              .activation = "silu",
              .norm_eps = 1e-5};
  model.set_kind({.rope = {.rotary_dim = 16}});
  return model;
}

Model olmo2() {
  Model model = llama();
  model.type = "olmo2", model.norm_place = NormPlace::after, model.head_norm = HeadNorm::all_heads;
  return model;
}

Model gemma3() {
  Model model = llama();
  model.type = "gemma3_text", model.norm_place = NormPlace::both, model.head_norm = HeadNorm::each_head;
  model.norm_weight_offset = 1, model.embedding_scale = 8, model.logits_soft_cap = 30, model.is_tied = true;
  model.kinds = {{"window", 8, true, {.rotary_dim = 16}}, {"full", 0, true, {.theta = 1e6, .rotary_dim = 16}}};
  model.kind_of_layer = {0, 1};
  return model;
}

Model starcoder2() {
  Model model = llama();
  model.type = "starcoder2", model.norm = Norm::layer, model.norm_bias = model.qkv_bias = model.output_bias = true;
  model.mlp_bias = true, model.is_gated = false, model.activation = "gelu_tanh";
  return model;
}

Model smollm3() {
  Model model = llama();
  model.type = "smollm3";
  model.kinds = {{"full", 0, true, {.rotary_dim = 16}}, {"full_no_rope", 0, false, {}}};
  model.kind_of_layer = {0, 1};
  return model;
}

Model granite() {
  Model model = llama();
  model.type = "granite", model.embedding_scale = 12, model.residual_scale = 0.22, model.logits_scale = 0.125;
  model.attention_scale = 0.5, model.head_bias = model.mlp_bias = true;
  return model;
}

const Model kModels[] = {llama(), olmo2(), gemma3(), starcoder2(), smollm3(), granite()};

std::vector<std::string> labels_of(const std::vector<Step>& steps) {
  std::vector<std::string> labels;
  for (const Step& step : steps) labels.push_back(step.label);
  return labels;
}

const Step& find(const std::vector<Step>& steps, const std::string& label) {
  const auto found = std::ranges::find(steps, label, &Step::label);
  REQUIRE(found != steps.end());
  return *found;
}

/// Checks that each argument of `workload`, which runs, has one wire, and that there is no other wire.
void check_wires(const Step& step, const autotune::Workload& workload) {
  INFO(step.label);
  const autotune::OpDef& op = library_op(workload.operation);
  // The ranks bind these tensors when they meet.
  const std::set<std::string> kChannel = {"staging", "flags", "channel"};
  std::multiset<std::string> arguments, wired;
  for (const autotune::ArgSpec& arg : op.schema(op.normalize(workload)).args)
    if (!kChannel.contains(arg.name)) arguments.insert(arg.name);
  for (const Wire& wire : step.wires) {
    wired.insert(wire.argument);
    CHECK(wire.buffer.empty() != wire.parameter.name.empty());
  }
  CHECK(arguments == wired);
}

}  // namespace

TEST_CASE("layer program: every argument of every step is wired once", "[models]") {
  for (const Model& model : kModels) {
    INFO(model.type);
    for (const Step& step : distinct_steps(model)) check_wires(step, step.workload);
    for (int64_t layer = 0; layer < model.layers; ++layer)
      for (const Phase phase : {Phase::prefill, Phase::extend, Phase::decode})
        for (const Step& step : layer_steps(model, layer, phase)) check_wires(step, step.workload);
  }
}

TEST_CASE("layer program: what a step reads an earlier one has written", "[models]") {
  for (const Model& model : kModels) {
    INFO(model.type);
    std::set<std::string> written = {"ids", "positions", "q_start", "kv_start", "kv_len"};
    for (const LayerKind& kind : model.kinds) written.insert(rope_table_buffer(kind));
    std::vector<Step> steps = entry_steps(model);
    for (const Step& step : layer_steps(model, 0, Phase::extend)) steps.push_back(step);
    for (const Step& step : exit_steps(model)) steps.push_back(step);
    for (const Step& step : steps) {
      INFO(step.label);
      for (const CachedRows& cached : step.cached) {
        CHECK(written.contains(cached.rows));
        written.insert(cached.cache);
      }
      const autotune::OpDef& op = library_op(step.workload.operation);
      for (const autotune::ArgSpec& arg : op.schema(op.normalize(step.workload)).args) {
        const std::string& buffer = std::ranges::find(step.wires, arg.name, &Wire::argument)->buffer;
        if (arg.role == autotune::ArgRole::output) CHECK(written.insert(buffer).second);
        else if (!buffer.empty()) CHECK(written.contains(buffer));
      }
    }
  }
}

TEST_CASE("layer program: launches of each form", "[models]") {
  using Labels = std::vector<std::string>;
  CHECK(labels_of(layer_steps(llama(), 0, Phase::decode)) == Labels{"qkv_proj", "rope", "attention_decode", "o_proj",
                                                                    "residual_norm", "gate_up_proj", "down_proj",
                                                                    "residual_norm"});
  CHECK(labels_of(layer_steps(gemma3(), 0, Phase::prefill)) == Labels{"qkv_proj", "rope", "attention_prefill_window",
                                                                      "o_proj", "residual_norm", "gate_up_proj",
                                                                      "down_proj", "residual_norm"});
  CHECK(labels_of(layer_steps(olmo2(), 1, Phase::extend)) == Labels{"qkv_proj", "q_norm", "k_norm", "rope",
                                                                    "attention_extend", "o_proj", "residual_norm",
                                                                    "gate_up_proj", "down_proj", "residual_norm"});
  CHECK(labels_of(layer_steps(smollm3(), 1, Phase::decode)) == Labels{"qkv_proj", "attention_decode", "o_proj",
                                                                      "residual_norm", "gate_up_proj", "down_proj",
                                                                      "residual_norm"});
  CHECK(labels_of(exit_steps(olmo2())) == Labels{"final_norm", "lm_head"});
}

TEST_CASE("layer program: a layer's last norm is the next layer's, or the model's", "[models]") {
  const auto weight_of = [](const Step& step) {
    return std::ranges::find(step.wires, "weight", &Wire::argument)->parameter.name;
  };
  CHECK(weight_of(layer_steps(llama(), 0, Phase::decode).back()) == "model.layers.1.input_layernorm.weight");
  CHECK(weight_of(layer_steps(llama(), 1, Phase::decode).back()) == "model.norm.weight");
}

TEST_CASE("layer program: fused parameters are row slices of one", "[models]") {
  Model phi = llama();
  phi.type = "phi3";
  const std::vector<Step> steps = layer_steps(phi, 0, Phase::decode);
  const auto slice = [&](const char* label, const char* argument) {
    const Parameter& parameter = std::ranges::find(find(steps, label).wires, argument, &Wire::argument)->parameter;
    return std::tuple(parameter.name, parameter.first, parameter.rows);
  };
  const std::string path = "model.layers.0.";
  CHECK(slice("qkv_proj", "w") == std::tuple(path + "self_attn.qkv_proj.weight", 0, 64));
  CHECK(slice("qkv_proj", "w3") == std::tuple(path + "self_attn.qkv_proj.weight", 96, 32));
  CHECK(slice("gate_up_proj", "w2") == std::tuple(path + "mlp.gate_up_proj.weight", 96, 96));
}

TEST_CASE("layer program: what no operation computes is refused by name", "[models]") {
  using Catch::Contains;
  Model model = starcoder2();
  model.norm_place = NormPlace::after;
  CHECK_THROWS_WITH(distinct_steps(model), Contains("starcoder2 model: ") && Contains("norm_place"));
  model = smollm3();
  model.head_norm = HeadNorm::each_head;
  CHECK_THROWS_WITH(entry_steps(model), Contains("norms of heads in layers without rope"));
  model = llama();
  model.norm_bias = true;
  CHECK_THROWS_AS(exit_steps(model), Error);
}

TEST_CASE("layer program: over ranks every argument is wired too, norms in the products that sum up", "[models]") {
  for (const Model& model : kModels) {
    INFO(model.type);
    if (model.type == "olmo2") {
      CHECK_THROWS_WITH(rank_steps(model), Catch::Contains("olmo2 model: no operation over ranks"));
      continue;
    }
    const auto requests = rank_operations(model, {.lo = 1, .hi = 64}, DType::f32, 1, {.rank = 0, .world_size = 2});
    for (const Step& step : rank_steps(model)) {
      const auto request = std::ranges::find(requests, step.label, &autotune::TuneRequest::label);
      REQUIRE(request != requests.end());
      check_wires(step, request->workload);
    }
  }
}

}  // namespace seqtile::testing

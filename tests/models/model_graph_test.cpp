// tests/models/model_graph_test.cpp -- decoder models as graphs: their parameters, shapes, repeated layers.
// SPDX-License-Identifier: Apache-2.0
#include "models/layers/model_graph.h"

#include <catch2/catch.hpp>

#include <algorithm>

#include "models/file/model_file.h"
#include "planner/compat/compat_problem.h"
#include "planner/compat/compat_strategies.h"
#include "planner/graph/graph_json.h"
#include "planner/graph/shared_parameters.h"
#include "planner/strategies/calibrated_strategies.h"

namespace seqtile::testing {
namespace {

using models::Model;
using planner::Graph;
using planner::Node;

constexpr planner::Mesh kMesh{2, {2, 4}, {1, 1}, {1, 1}};

Model example(const std::string& name) {
  return models::load_model(SEQTILE_SOURCE_DIR "/examples/models/" + name + ".json");
}

Model tiny(const std::string& type) {
  return models::parse_model(R"({"model_type": ")" + type + R"(", "torch_dtype": "bfloat16", "hidden_act": "silu",
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 128, "max_position_embeddings": 64, "sliding_window": 16})",
                             type);
}

Graph graph_of(const Model& model, models::ModelGraphOptions options = {}) {
  options.mesh = kMesh;
  return models::model_graph(model, options);
}

const Node& find(const Graph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.nodes, name, &Node::name);
  INFO(name);
  REQUIRE(found != graph.nodes.end());
  return *found;
}

}  // namespace

TEST_CASE("model graph: it has as many parameters as the model's card says", "[kernels][plan]") {
  CHECK(planner::count_parameters(graph_of(example("llama-3-8b"))) == 8'030'261'248);
  CHECK(planner::count_parameters(graph_of(example("llama-3-70b"))) == 70'553'706'496);
  CHECK(planner::count_parameters(graph_of(example("tinyllama-1.1b"))) == 1'100'048'384);
}

TEST_CASE("model graph: a tied embedding is one parameter, which both of its readers have", "[kernels][plan]") {
  for (const auto& [name, count] : {std::pair{"llama-3.2-1b", 1'235'814'400.0}, {"smollm2-135m", 134'515'008.0}}) {
    INFO(name);
    const Graph graph = graph_of(example(name));
    CHECK(planner::count_parameters(graph) == count);
    const Node &words = find(graph, "model_embed_tokens_weight"), &head = find(graph, "lm_head");
    CHECK(words.target == "model.embed_tokens.weight");
    CHECK(std::ranges::count_if(graph.nodes, [&](const Node& node) {
            return std::ranges::any_of(node.inputs,
                                       [&](int i) { return &graph.nodes[static_cast<size_t>(i)] == &words; });
          }) == 2);
    CHECK(head.parameters.empty());
    Graph planned = graph;
    CHECK(planner::generate_compat_strategies(planned).empty());
    planner::ReshardTables paths(planned.mesh);
    CHECK(planner::generate_calibrated_strategies(planned, {}, paths).unknown.empty());
  }
}

TEST_CASE("model graph: shapes of a layer, and what training and prefill end with", "[kernels][plan]") {
  const Model model = example("llama-3-8b");
  const Graph training = graph_of(model, {.batch = 3, .length = 40, .layers = 1});
  const Node& mixed = find(training, "model_layers_0_self_attn_attention");
  using Shape = std::vector<int64_t>;
  CHECK(mixed.target == "attention");
  CHECK(mixed.results[0].shape == Shape{3, 40, 32, 128});
  REQUIRE(mixed.inputs.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const Node& operand = training.nodes[static_cast<size_t>(mixed.inputs[i])];
    CHECK(operand.results[0].shape == Shape{3, 40, i == 0 ? 32 : 8, 128});
    CHECK(operand.target == (i == 2 ? "view" : "rotary"));
  }
  const Node& gate = find(training, "model_layers_0_mlp_gate");
  CHECK(gate.target == "silu_and_mul");
  CHECK(gate.results[0].shape == Shape{3, 40, 14336});
  CHECK(training.nodes[static_cast<size_t>(gate.inputs[0])].results[0].shape == Shape{3, 40, 28672});
  CHECK(gate.results[0].dtype == "bf16");
  CHECK(find(training, "lm_head").results[0].shape == Shape{3, 40, 128256});
  CHECK(find(training, "lm_head").target == "lm_head");
  CHECK(training.is_training);
  const Graph prefill = graph_of(model, {.batch = 3, .length = 40, .layers = 1, .is_training = false});
  CHECK(find(prefill, "lm_head").results[0].shape == Shape{3, 1, 128256});
  CHECK_FALSE(prefill.is_training);
  for (size_t i = 0; i < prefill.nodes.size(); ++i)
    for (const int input : prefill.nodes[i].inputs) CHECK(input < static_cast<int>(i));
}

TEST_CASE("model graph: a block is the layers and the norm behind them", "[kernels][plan]") {
  const Graph block =
      graph_of(example("llama-3-8b"), {.length = 40, .layers = 2, .is_training = false, .is_block = true});
  using Shape = std::vector<int64_t>;
  CHECK(block.nodes.front().op == "placeholder");
  CHECK(block.nodes.front().results[0].shape == Shape{1, 40, 4096});
  CHECK(block.nodes.front().results[0].dtype == "bf16");
  REQUIRE(block.nodes.back().inputs.size() == 1);
  const Node& last = block.nodes[static_cast<size_t>(block.nodes.back().inputs[0])];
  CHECK(last.name == "model_norm");
  CHECK(last.results[0].shape == Shape{1, 40, 4096});
  CHECK(planner::count_parameters(block) == 2 * 218'112'000 + 4096);
}

TEST_CASE("model graph: layers repeat the first ones", "[kernels][plan]") {
  const Graph graph = graph_of(example("llama-3-70b"), {.length = 4096});
  const std::vector<int> repeats = planner::repeated_nodes(graph, 10);
  int64_t last_layer = 0, of_first = 0;  // a run begins inside the first layer and ends in the second
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (repeats[i] < 0 || !graph.nodes[i].name.starts_with("model_layers_79_")) continue;
    ++last_layer;
    const std::string name = graph.nodes[static_cast<size_t>(repeats[i])].name, rest = graph.nodes[i].name.substr(16);
    of_first += name == "model_layers_0_" + rest || name == "model_layers_1_" + rest;
  }
  CHECK(last_layer >= 13);
  CHECK(of_first == last_layer);
}

TEST_CASE("model graph: the head behind the last layer does not take a projection's choice", "[kernels][plan]") {
  Graph graph = graph_of(example("llama-3-8b"), {.length = 4096});
  planner::generate_compat_strategies(graph);
  const planner::Problem problem = planner::compat_problem(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].name == "lm_head") CHECK(problem.follows[i] < 0);
    if (graph.nodes[i].name == "model_layers_7_mlp_down_proj") CHECK(problem.follows[i] >= 0);
  }
}

TEST_CASE("model graph: biases, norms of results, scaled embeddings and windows are as the model has them",
          "[kernels][plan]") {
  const Graph qwen = graph_of(tiny("qwen2"));
  CHECK(find(qwen, "model_layers_0_self_attn_k_proj").parameters.at("bias") == std::vector<int64_t>{64});
  CHECK_FALSE(find(qwen, "model_layers_0_self_attn_o_proj").parameters.contains("bias"));
  const Graph gemma = graph_of(tiny("gemma2"));
  CHECK(find(gemma, "scaled_embedding").arguments == std::vector<std::string>{"model_embed_tokens", "8"});
  CHECK(find(gemma, "model_layers_3_post_feedforward_layernorm").module == "RMSNorm");
  CHECK(find(gemma, "model_layers_0_self_attn_attention").arguments.back() == "window=16");
  CHECK(find(gemma, "model_layers_1_self_attn_attention").arguments.size() == 3);
  CHECK(find(graph_of(tiny("mistral")), "model_layers_1_self_attn_attention").arguments.back() == "window=16");
}

TEST_CASE("model graph: sizes that are too small or too large are refused", "[kernels][plan]") {
  using Catch::Contains;
  const Model model = example("llama-3-8b");
  CHECK_THROWS_WITH(graph_of(model, {.layers = 33}), Contains("layers 33 must be in 1..32"));
  CHECK_THROWS_WITH(graph_of(model, {.batch = 0}), Contains("batch 0 must be in"));
  CHECK_THROWS_WITH(graph_of(model, {.length = -1}), Contains("length -1 must be in"));
  CHECK_THROWS_WITH(graph_of(model, {.batch = 1 << 20, .length = 1 << 20}), Contains("at most 2^40"));
}

TEST_CASE("model graph: it is read back as it was written", "[kernels][plan]") {
  for (const bool is_training : {true, false}) {
    const Graph graph = graph_of(tiny("gemma2"), {.length = 32, .is_training = is_training});
    const std::string text = planner::graph_json(graph);
    const Graph again = *planner::parse_plan_file(text, "written").graph;
    CHECK(again.nodes.size() == graph.nodes.size());
    CHECK(again.is_training == is_training);
    CHECK(planner::graph_json(again) == text);
  }
}

}  // namespace seqtile::testing

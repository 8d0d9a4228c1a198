// models/model_graph.cpp -- see model_graph.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/model_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "jit/error.h"

namespace seqtile::models {
namespace {

using Shape = std::vector<int64_t>;

class GraphMaker {
 public:
  GraphMaker(const Model& model, const ModelGraphOptions& options)
      : model_(model), batch_(options.batch), length_(options.length) {
    graph_.mesh = options.mesh;
    graph_.is_training = options.is_training;
  }

  plan::Graph run(int64_t layers, bool is_block) {
    int x = is_block ? hidden_states() : embedding();
    for (int64_t layer = 0; layer < layers; ++layer) x = decoder_layer(x, layer);
    x = norm("model.norm", x);
    if (!is_block) x = head(x);
    add("output", "output", "output", {x}, {});
    last().results.clear();
    return std::move(graph_);
  }

 private:
  int hidden_states() {
    return add("hidden_states", "placeholder", "hidden_states", {}, {batch_, length_, model_.hidden_size});
  }

  int head(int x) {
    if (!graph_.is_training) {
      x = function("_operator.getitem", "last_token", {x}, {batch_, 1, model_.hidden_size});
      last().arguments.emplace_back("(slice(None, None, None), slice(-1, None, None))");
      last().merges = true;
    }
    return linear("lm_head", x, model_.vocab_size, false);
  }

  plan::Node& last() { return graph_.nodes.back(); }
  const Shape& shape_of(int node) const { return graph_.nodes[static_cast<size_t>(node)].results.front().shape; }

  int add(std::string name, const char* op, std::string target, std::vector<int> inputs, Shape shape) {
    plan::Node node;
    node.name = std::move(name);
    node.op = op;
    node.target = std::move(target);
    for (const int input : inputs) node.arguments.push_back(graph_.nodes[static_cast<size_t>(input)].name);
    node.inputs = std::move(inputs);
    node.results.push_back({std::move(shape), std::string(dtype_name(model_.dtype)), dtype_bytes(model_.dtype)});
    graph_.nodes.push_back(std::move(node));
    return static_cast<int>(graph_.nodes.size()) - 1;
  }

  int module(const char* type, const std::string& path, int input, Shape shape, Shape weight) {
    std::string name = path;
    std::ranges::replace(name, '.', '_');
    const int node = add(std::move(name), "call_module", path, {input}, std::move(shape));
    last().module = type;
    last().parameters["weight"] = std::move(weight);
    return node;
  }

  int function(const std::string& target, std::string name, std::vector<int> inputs, Shape shape) {
    return add(std::move(name), "call_function", target, std::move(inputs), std::move(shape));
  }

  int view(std::string name, int input, Shape shape) {
    const int node = add(std::move(name), "call_method", "view", {input}, shape);
    for (const int64_t size : shape) last().arguments.push_back(std::to_string(size));
    last().merges = true;
    return node;
  }

  int linear(const std::string& path, int input, int64_t columns, bool has_bias) {
    Shape shape = shape_of(input);
    const int64_t rows = std::exchange(shape.back(), columns);
    const int node = module("Linear", path, input, std::move(shape), {columns, rows});
    if (has_bias) last().parameters["bias"] = {columns};
    return node;
  }

  int norm(const std::string& path, int input) {
    return module("RMSNorm", path, input, shape_of(input), {model_.hidden_size});
  }

  int embedding() {
    const int ids = add("input_ids", "placeholder", "input_ids", {}, {batch_, length_});
    last().results.front().dtype = "i64";
    last().results.front().element_bytes = 8;
    const int rows = module("Embedding", "model.embed_tokens", ids, {batch_, length_, model_.hidden_size},
                            {model_.vocab_size, model_.hidden_size});
    if (model_.embedding_scale == 1) return rows;
    const int scaled = function("_operator.mul", "scaled_embedding", {rows}, shape_of(rows));
    last().arguments.push_back(fmt::format("{}", model_.embedding_scale));
    return scaled;
  }

  /// Of one of q, k and v: [batch, length, heads, head_dim], rotated or not.
  int heads(const std::string& path, const char* which, int input, int64_t count, bool is_rotated) {
    const int product = linear(path + "." + which + "_proj", input, count * model_.head_dim, model_.qkv_bias);
    const std::string name = last().name;
    const int cut = view(name + "_heads", product, {batch_, length_, count, model_.head_dim});
    return is_rotated ? function("rotary", name + "_rotary", {cut}, shape_of(cut)) : cut;
  }

  int attention(const std::string& path, int input, int64_t layer) {
    const int q = heads(path, "q", input, model_.heads, true), k = heads(path, "k", input, model_.kv_heads, true),
              v = heads(path, "v", input, model_.kv_heads, false);
    std::string name = path;
    std::ranges::replace(name, '.', '_');
    const int mixed = function("attention", name + "_attention", {q, k, v}, shape_of(q));
    if (const int64_t window = model_.kind_of(layer).window)
      last().arguments.push_back(fmt::format("window={}", window));
    const int rows = view(name + "_rows", mixed, {batch_, length_, model_.heads * model_.head_dim});
    return linear(path + ".o_proj", rows, model_.hidden_size, model_.output_bias);
  }

  int feed_forward(const std::string& path, int input) {
    const int both = linear(path + ".gate_up_proj", input, 2 * model_.intermediate_size, false);
    Shape shape = shape_of(both);
    shape.back() = model_.intermediate_size;
    std::string name = path;
    std::ranges::replace(name, '.', '_');
    const int gated = function(model_.activation + "_and_mul", name + "_gate", {both}, std::move(shape));
    return linear(path + ".down_proj", gated, model_.hidden_size, false);
  }

  int decoder_layer(int x, int64_t layer) {
    const std::string path = fmt::format("model.layers.{}.", layer), name = fmt::format("model_layers_{}_", layer);
    const bool norms_results = model_.norm_place == NormPlace::both;  // before they are added
    int mixed = attention(path + "self_attn", norm(path + "input_layernorm", x), layer);
    if (norms_results) mixed = norm(path + "post_attention_layernorm", mixed);
    x = function("_operator.add", name + "add_attention", {x, mixed}, shape_of(x));
    const char* before = norms_results ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    mixed = feed_forward(path + "mlp", norm(path + before, x));
    if (norms_results) mixed = norm(path + "post_feedforward_layernorm", mixed);
    return function("_operator.add", name + "add_mlp", {x, mixed}, shape_of(x));
  }

  const Model& model_;
  const int64_t batch_, length_;
  plan::Graph graph_;
};

}  // namespace

plan::Graph model_graph(const Model& model, const ModelGraphOptions& options) {
  const int64_t layers = options.layers ? options.layers : model.layers;
  const auto check = [](const char* what, int64_t value, int64_t most) {
    if (value < 1 || value > most)
      throw Error(ErrorCode::invalid_argument, fmt::format("{} {} must be in 1..{}", what, value, most));
  };
  check("layers", layers, model.layers);
  check("batch", options.batch, plan::kMostElements);
  check("length", options.length, plan::kMostElements);
  const int64_t logit_rows = options.is_training ? options.length : 1;
  const double widest = std::max(
      static_cast<double>(options.length) *
          static_cast<double>(std::max({2 * model.intermediate_size, model.hidden_size, model.heads * model.head_dim})),
      options.is_block ? 0 : static_cast<double>(logit_rows) * static_cast<double>(model.vocab_size));
  if (static_cast<double>(options.batch) * widest > static_cast<double>(plan::kMostElements))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("batch {} of length {}: a tensor would have {:.3g} elements, at most 2^40 are planned; "
                            "plan fewer sequences or shorter ones",
                            options.batch, options.length, static_cast<double>(options.batch) * widest));
  return GraphMaker(model, options).run(layers, options.is_block);
}

}  // namespace seqtile::models

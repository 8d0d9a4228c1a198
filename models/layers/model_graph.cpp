// models/layers/model_graph.cpp -- see model_graph.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/layers/model_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "seqtile/error.h"

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

  planner::Graph run(int64_t layers, bool is_block) {
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
    x = scaled("scaled_logits",
               model_.is_tied ? tied_head(x) : linear("lm_head", x, model_.vocab_size, model_.head_bias),
               model_.logits_scale);
    if (model_.logits_soft_cap == 0) return x;
    x = scaled("logits_over_cap", x, 1 / model_.logits_soft_cap);
    x = function("torch.tanh", "logits_tanh", {x}, shape_of(x));
    return scaled("capped_logits", x, model_.logits_soft_cap);
  }

  /// The embedding's weight is a node that embedding and head both read, so it has one layout, one memory and one
  /// gradient.
  int tied_head(int x) {
    Shape shape = shape_of(x);
    shape.back() = model_.vocab_size;
    std::vector<int> inputs{x, words_};
    if (model_.head_bias) inputs.push_back(parameter("lm_head.bias", {model_.vocab_size}));
    const int node = add("lm_head", "call_module", "lm_head", std::move(inputs), std::move(shape));
    last().module = "Linear";
    return node;
  }

  int parameter(const std::string& path, Shape shape) {
    std::string name = path;
    std::ranges::replace(name, '.', '_');
    return add(std::move(name), "get_attr", path, {}, std::move(shape));
  }

  planner::Node& last() { return graph_.nodes.back(); }
  const Shape& shape_of(int node) const { return graph_.nodes[static_cast<size_t>(node)].results.front().shape; }

  int add(std::string name, const char* op, std::string target, std::vector<int> inputs, Shape shape) {
    planner::Node node;
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
    const int64_t columns = shape_of(input).back();
    const int node =
        module(model_.norm == Norm::layer ? "LayerNorm" : "RMSNorm", path, input, shape_of(input), {columns});
    if (model_.norm_bias) last().parameters["bias"] = {columns};
    return node;
  }

  int scaled(std::string name, int input, double factor) {
    if (factor == 1) return input;
    const int node = function("_operator.mul", std::move(name), {input}, shape_of(input));
    last().arguments.push_back(fmt::format("{}", factor));
    return node;
  }

  int embedding() {
    const int ids = add("input_ids", "placeholder", "input_ids", {}, {batch_, length_});
    last().results.front().dtype = "i64";
    last().results.front().element_bytes = 8;
    const Shape weight{model_.vocab_size, model_.hidden_size};
    if (model_.is_tied) words_ = parameter("model.embed_tokens.weight", weight);
    const int rows = module("Embedding", "model.embed_tokens", ids, {batch_, length_, model_.hidden_size}, weight);
    if (model_.is_tied) {
      last().parameters.clear();
      last().inputs.push_back(words_);
      last().arguments.push_back(graph_.nodes[static_cast<size_t>(words_)].name);
    }
    return scaled("scaled_embedding", rows, model_.embedding_scale);
  }

  /// v as [batch, length, heads, head_dim].
  int values(const std::string& path) {
    return heads(linear(path + ".v_proj", input_, model_.kv_heads * model_.head_dim, model_.qkv_bias), model_.kv_heads);
  }

  int heads(int product, int64_t count) {
    return view(last().name + "_heads", product, {batch_, length_, count, model_.head_dim});
  }

  /// q or k as [batch, length, heads, head_dim], normalised and rotated as in the model.
  int turned(const std::string& path, const char* which, int64_t count, bool has_rope) {
    int x = linear(fmt::format("{}.{}_proj", path, which), input_, count * model_.head_dim, model_.qkv_bias);
    const std::string name = last().name, norm_path = fmt::format("{}.{}_norm", path, which);
    if (model_.head_norm == HeadNorm::all_heads) x = norm(norm_path, x);
    x = heads(x, count);
    if (model_.head_norm == HeadNorm::each_head) x = norm(norm_path, x);
    return has_rope ? function("rotary", name + "_rotary", {x}, shape_of(x)) : x;
  }

  int attention(const std::string& path, int input, const LayerKind& kind) {
    input_ = input;
    const int q = turned(path, "q", model_.heads, kind.has_rope), k = turned(path, "k", model_.kv_heads, kind.has_rope),
              v = values(path);
    const std::string name = underscored(path);
    const int mixed = function("attention", name + "_attention", {q, k, v}, shape_of(q));
    if (kind.window) last().arguments.push_back(fmt::format("window={}", kind.window));
    const int rows = view(name + "_rows", mixed, {batch_, length_, model_.heads * model_.head_dim});
    return linear(path + ".o_proj", rows, model_.hidden_size, model_.output_bias);
  }

  int feed_forward(const std::string& path, int input) {
    if (!model_.is_gated) {
      const int up = linear(path + ".c_fc", input, model_.intermediate_size, model_.mlp_bias);
      const char* activation = model_.activation == "silu" ? "silu" : "gelu";  // the planner prices both alike
      const int x = function(activation, underscored(path) + "_activation", {up}, shape_of(up));
      return linear(path + ".c_proj", x, model_.hidden_size, model_.mlp_bias);
    }
    const int both = linear(path + ".gate_up_proj", input, 2 * model_.intermediate_size, model_.mlp_bias);
    Shape shape = shape_of(both);
    shape.back() = model_.intermediate_size;
    const int gated = function(model_.activation + "_and_mul", underscored(path) + "_gate", {both}, std::move(shape));
    return linear(path + ".down_proj", gated, model_.hidden_size, model_.mlp_bias);
  }

  static std::string underscored(std::string path) {
    std::ranges::replace(path, '.', '_');
    return path;
  }

  int add_to(int x, std::string name, int result) {
    result = scaled(name + "_scaled", result, model_.residual_scale);
    return function("_operator.add", std::move(name), {x, result}, shape_of(x));
  }

  int decoder_layer(int x, int64_t layer) {
    const std::string path = fmt::format("model.layers.{}.", layer), name = fmt::format("model_layers_{}_", layer);
    const bool norms_inputs = model_.norm_place != NormPlace::after,
               norms_results = model_.norm_place != NormPlace::before;
    const auto normed = [&](bool is_so, const char* norm_name, int of) {
      return is_so ? norm(path + norm_name, of) : of;
    };
    int mixed = attention(path + "self_attn", normed(norms_inputs, "input_layernorm", x), model_.kind_of(layer));
    mixed = normed(norms_results, "post_attention_layernorm", mixed);
    x = add_to(x, name + "add_attention", mixed);
    const char* before = norms_results ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    mixed = feed_forward(path + "mlp", normed(norms_inputs, before, x));
    mixed = normed(norms_results, "post_feedforward_layernorm", mixed);
    return add_to(x, name + "add_mlp", mixed);
  }

  const Model& model_;
  const int64_t batch_, length_;
  int input_ = 0;  ///< of the attention under construction
  planner::Graph graph_;
  int words_ = -1;  ///< weight of a tied embedding
};

}  // namespace

planner::Graph model_graph(const Model& model, const ModelGraphOptions& options) {
  const int64_t layers = options.layers ? options.layers : model.layers;
  const auto check = [](const char* what, int64_t value, int64_t most) {
    if (value < 1 || value > most)
      throw Error(ErrorCode::invalid_argument, fmt::format("{} {} must be in 1..{}", what, value, most));
  };
  check("layers", layers, model.layers);
  check("batch", options.batch, planner::kMostElements);
  check("length", options.length, planner::kMostElements);
  const int64_t logit_rows = options.is_training ? options.length : 1;
  const double widest = std::max(
      static_cast<double>(options.length) *
          static_cast<double>(std::max({2 * model.intermediate_size, model.hidden_size, model.heads * model.head_dim})),
      options.is_block ? 0 : static_cast<double>(logit_rows) * static_cast<double>(model.vocab_size));
  if (static_cast<double>(options.batch) * widest > static_cast<double>(planner::kMostElements))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("batch {} of length {}: a tensor would have {:.3g} elements, at most 2^40 are planned; "
                            "plan fewer sequences or shorter ones",
                            options.batch, options.length, static_cast<double>(options.batch) * widest));
  return GraphMaker(model, options).run(layers, options.is_block);
}

}  // namespace seqtile::models

// planner/graph/shape_check.cpp -- see shape_check.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/shape_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "jit/base/counted.h"
#include "jit/base/forever.h"
#include "planner/graph/node_view.h"

namespace seqtile::planner {
namespace {

using Names = std::set<std::string>;

const Names& kUnary = forever(Names{"ReLU",      "GELU",    "SiLU",        "Tanh",        "Sigmoid",     "Dropout",
                                    "Identity",  "relu",    "gelu",        "silu",        "tanh",        "sigmoid",
                                    "dropout",   "neg",     "exp",         "sqrt",        "rsqrt",       "contiguous",
                                    "clone",     "float",   "type",        "to",          "Softmax",     "softmax",
                                    "LayerNorm", "RMSNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "rotary"});
const Names& kBroadcast = forever(Names{"add", "sub", "mul", "div", "truediv", "floordiv", "pow", "eq", "ne", "lt",
                                        "gt", "maximum", "minimum", "where"});
const Names& kReshape = forever(Names{"view", "reshape", "Flatten", "flatten", "unsqueeze", "squeeze"});
const Names& kGated = forever(Names{"silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "relu_squared_and_mul"});

const Names& kOthersOfTensors = forever(
    Names{"getitem", "permute", "transpose", "t", "Linear", "linear", "Embedding", "embedding", "matmul", "bmm"});

/// The shape that the inputs require of a result.
struct Wanted {
  bool is_met = true;
  std::string text;  ///< "[8, 4]", "32 elements"
};

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Wanted same_as(const Shape& wanted, const Shape& result) { return {result == wanted, text_of(wanted)}; }

/// The common shape after broadcasting, aligned at the last dimension. Empty if there is none.
std::optional<Shape> broadcast(const std::vector<Shape>& shapes) {
  Shape result;
  for (Shape shape : shapes) {
    const size_t rank = std::max(shape.size(), result.size());
    shape.insert(shape.begin(), rank - shape.size(), 1);
    result.insert(result.begin(), rank - result.size(), 1);
    for (size_t dim = 0; dim < rank; ++dim) {
      if (result[dim] != 1 && shape[dim] != 1 && shape[dim] != result[dim]) return std::nullopt;
      result[dim] = std::max(result[dim], shape[dim]);
    }
  }
  return result;
}

Wanted of_broadcast(const std::vector<Shape>& inputs, const Shape& result) {
  const auto wanted = broadcast(inputs);
  return wanted ? same_as(*wanted, result) : Wanted{false, "nothing: their extents differ and none is 1"};
}

/// x[..., k], w[n, k] and, unless null, bias[n].
Wanted of_linear(const Shape& x, const Shape& weight, const Shape* bias, const Shape& result) {
  if (weight.empty()) return {false, "nothing: a weight has one or two dimensions"};
  if (x.empty() || weight.size() != 2) return {};
  if (x.back() != weight[1])
    return {false,
            fmt::format("nothing: the weight {} takes rows of {}", text_of(weight), counted(weight[1], "element"))};
  if (bias && *bias != Shape{weight[0]})
    return {false, fmt::format("nothing: a bias of [{}] is wanted, not {}", weight[0], text_of(*bias))};
  Shape wanted = x;
  wanted.back() = weight[0];
  return same_as(wanted, result);
}

Wanted of_matmul(const Shape& a, const Shape& b, const Shape& result) {
  if (a.size() < 2 || b.size() < 2) return {};
  if (a.back() != b[b.size() - 2])
    return {false, fmt::format("nothing: columns of {} are wanted of the second", counted(a.back(), "element"))};
  auto wanted = broadcast({Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)});
  if (!wanted) return {false, "nothing: their leading extents differ and none is 1"};
  wanted->insert(wanted->end(), {a[a.size() - 2], b.back()});
  return same_as(*wanted, result);
}

/// indices[...] and w[rows, n].
Wanted of_embedding(Shape indices, const Shape& weight, const Shape& result) {
  if (weight.size() != 2) return {};
  indices.push_back(weight[1]);
  return same_as(indices, result);
}

/// torch.embedding takes the weight first, torch.nn.functional.embedding takes it second.
Wanted of_embedding_function(const std::vector<Shape>& inputs, const Shape& result) {
  const Wanted weight_first = of_embedding(inputs[1], inputs[0], result);
  return weight_first.is_met ? weight_first : of_embedding(inputs[0], inputs[1], result);
}

Wanted of_gate(Shape x, const Shape& result) {
  if (x.empty()) return {};
  if (x.back() % 2) return {false, "nothing: two halves of rows are wanted"};
  x.back() /= 2;
  return same_as(x, result);
}

/// The result may have the extents in any order.
Wanted of_permutation(Shape x, const Shape& result) {
  Shape sorted = result;
  std::ranges::sort(x);
  std::ranges::sort(sorted);
  return {x == sorted, "these extents in another order"};
}

Wanted of_reshape(const Shape& x, const Shape& result) {
  const auto count = [](const Shape& shape) {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    return elements;
  };
  return {count(x) == count(result), counted(count(x), "element")};
}

/// The weight: a parameter of the module, or else the second input.
const Shape* weight_of(const Node& node, const std::vector<Shape>& inputs) {
  if (const auto found = node.parameters.find("weight"); found != node.parameters.end()) return &found->second;
  return node.module.empty() && inputs.size() > 1 ? &inputs[1] : nullptr;
}

/// The bias of a function, its third input. Null where there is none. Modules whose parameters do not fit are kept
/// whole.
const Shape* bias_of(const Node& node, const std::vector<Shape>& inputs) {
  return node.module.empty() && inputs.size() == 3 ? &inputs[2] : nullptr;
}

Wanted wanted_of(const Graph& graph, const Node& node, const std::vector<Shape>& inputs) {
  const std::string name = operator_name(node);
  const TensorType &result = node.results.front(),
                   &first = graph.nodes[static_cast<size_t>(node.inputs.front())].results.front();
  const Shape &x = inputs.front(), &y = result.shape, *weight = weight_of(node, inputs);
  if (kUnary.contains(name)) return same_as(x, y);
  if (kBroadcast.contains(name)) return of_broadcast(inputs, y);
  // A view as another dtype changes the last extent.
  if (kReshape.contains(name) && result.element_bytes == first.element_bytes) return of_reshape(x, y);
  if (kGated.contains(name)) return of_gate(x, y);
  if (name == "permute" || name == "transpose" || name == "t") return of_permutation(x, y);
  if ((name == "Linear" || name == "linear") && weight) return of_linear(x, *weight, bias_of(node, inputs), y);
  if (name == "embedding" && node.module.empty() && inputs.size() > 1) return of_embedding_function(inputs, y);
  if ((name == "Embedding" || name == "embedding") && weight) return of_embedding(x, *weight, y);
  if ((name == "matmul" || name == "bmm") && inputs.size() == 2) return of_matmul(x, inputs[1], y);
  return {};
}

/// Whether the operator computes its result from a tensor; others, as `arange`, may make one of numbers.
bool needs_tensor(const std::string& name) {
  return kUnary.contains(name) || kBroadcast.contains(name) || kReshape.contains(name) || kGated.contains(name) ||
         kOthersOfTensors.contains(name);
}

std::string without_input(const Node& node) {
  const std::string name = operator_name(node);
  if (!needs_tensor(name)) return "";
  const std::string given =
      node.arguments.empty() ? "" : fmt::format(" (its first argument is {})", node.arguments.front());
  return fmt::format(
      "node {}: {} makes a tensor of a tensor, and no input is one{}; the program that wrote the graph "
      "left a node out: export the model again",
      node.name, name, given);
}

}  // namespace

std::string contradiction(const Graph& graph, const Node& node) {
  if (!node.op.starts_with("call_") || node.results.empty()) return "";
  if (node.inputs.empty()) return without_input(node);
  if (node.is_tuple || node.results.size() != 1) return "";
  std::vector<Shape> inputs;
  std::string text;
  for (const int input : node.inputs) {
    const Node& producer = graph.nodes[static_cast<size_t>(input)];
    if (producer.is_tuple || producer.results.size() != 1) return "";
    inputs.push_back(producer.results.front().shape);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", producer.name, text_of(inputs.back()));
  }
  const Wanted wanted = wanted_of(graph, node, inputs);
  if (wanted.is_met) return "";
  return fmt::format("shapes of node {} contradict each other: {} of {} gives {}, \"out\" says {}", node.name,
                     operator_name(node), text, wanted.text, text_of(node.results.front().shape));
}

}  // namespace seqtile::planner

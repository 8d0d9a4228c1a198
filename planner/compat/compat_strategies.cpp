// planner/compat/compat_strategies.cpp -- see compat_strategies.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/compat/compat_strategies.h"

#include "jit/base/forever.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "planner/compat/compat_rules.h"
#include "planner/compat/strategy_list.h"

namespace seqtile::planner {
namespace {

constexpr StrategyCost kNoWork{20, 0, 0};  // the known planner's charge for an operator whose work it does not count

StrategyCost held(const StrategyList& list, Layout layout) {
  StrategyCost cost = kNoWork;
  for (const TensorType& type : list.node().results)
    cost.memory += list.local(type.shape, layout) * static_cast<double>(type.element_bytes);
  return cost;
}

bool add_placeholder(StrategyList& list) {
  list.add("Replica Placeholder", {}, {}, held(list, {}));
  return true;
}

bool add_output(StrategyList& list) {
  list.add("Replica Output", {}, {}, kNoWork);
  return true;
}

bool add_attribute(StrategyList& list) {
  if (!list.has_inputs(0)) return false;
  std::vector<int> dims(list.shape().size());
  std::iota(dims.begin(), dims.end(), 0);
  for (const Layout& layout : all_layouts(list.mesh(), dims, true))
    list.add("get_attr " + name_of(layout, list.shape()), {}, layout, held(list, layout));
  return true;
}

bool add_average(StrategyList& list) { return add_flattened(list, true); }
bool add_flatten(StrategyList& list) { return add_flattened(list, false); }
bool add_activation(StrategyList& list) { return add_unary(list, {}); }
bool add_copy(StrategyList& list) { return add_unary(list, {0, 0}); }
bool add_conversion(StrategyList& list) { return add_unary(list, {0, 0, 2}); }
bool add_softmax(StrategyList& list) { return add_unary(list, {2, 1, 3, true}); }

using Family = bool (*)(StrategyList&);

/// Families by the name of a function or method without its modules, or of a module's class.
const std::map<std::string, Family>& families() {
  static const auto& all = forever([] {
    std::map<std::string, Family> by_name;
    const auto give = [&](Family family, std::initializer_list<const char*> names) {
      for (const char* name : names) by_name[name] = family;
    };
    give(add_conv, {"Conv1d", "Conv2d", "Conv3d"});
    give(add_linear, {"Linear", "linear"});
    give(add_matmul, {"matmul", "bmm"});
    give(add_binary,
         {"add", "sub", "mul", "div", "truediv", "floordiv", "pow", "eq", "ne", "lt", "gt", "maximum", "minimum"});
    give(add_where, {"where"});
    give(add_batch_norm, {"BatchNorm1d", "BatchNorm2d", "BatchNorm3d"});
    give(add_layer_norm, {"LayerNorm"});
    give(add_embedding, {"Embedding", "embedding"});
    give(add_pool, {"MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d", "AvgPool3d"});
    give(add_average, {"AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d"});
    give(add_flatten, {"Flatten", "flatten", "unsqueeze", "squeeze"});
    give(add_activation, {"ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "Dropout", "Identity", "relu", "gelu", "silu",
                          "tanh", "sigmoid", "dropout", "neg", "exp", "sqrt", "rsqrt"});
    give(add_copy, {"type", "contiguous", "clone", "float"});
    give(add_conversion, {"to"});
    give(add_softmax, {"Softmax", "softmax"});
    give(add_view, {"view", "reshape"});
    give(add_permuted, {"permute", "transpose", "t"});
    give(add_split, {"split", "chunk"});
    give(add_getitem, {"getitem"});
    return by_name;
  }());
  return all;
}

Family family_of(const Node& node) {
  if (node.op == "placeholder") return add_placeholder;
  if (node.op == "output") return add_output;
  if (node.op == "get_attr") return add_attribute;
  const auto found = families().find(operator_name(node));
  return found == families().end() ? nullptr : found->second;
}

}  // namespace

UnknownOperators generate_compat_strategies(Graph& graph) {
  UnknownOperators unknown;
  const Graph untouched = graph;
  CompatRules rules(untouched);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    StrategyList list(graph, node);
    const Family family = family_of(node);
    if ((!family || !family(list)) && !rules.add(i, node.strategies)) unknown.add(node);
    if (node.strategies.empty()) list.add("Replica", {}, {}, held(list, {}));
    // The node chooses for itself where it cannot follow every strategy of the leader.
    if (node.merges && node.strategies.size() != list.input(0).strategies.size()) node.merges = false;
  }
  return unknown;
}

}  // namespace seqtile::planner

// tests/support/references/plan_text.cpp -- see plan_text.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/references/plan_text.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "planner/compat/compat_problem.h"
#include "planner/compat/compat_strategies.h"
#include "planner/graph/graph_json.h"
#include "planner/solver/calibrated_problem.h"
#include "planner/solver/solver.h"
#include "seqtile/error.h"

namespace seqtile::testing {
namespace {

using namespace planner;

constexpr size_t kMostNodes = 8, kMostPairs = 20000;
constexpr SolveOptions kShort{.memory_budget = 1e6, .table_limit = 1 << 12, .most_searches = 4};

/// The number of pairs of strategies along the edges, each with a change of layout to price.
size_t pairs_of(const Graph& graph) {
  size_t pairs = 0;
  for (const Node& node : graph.nodes)
    for (const int input : node.inputs)
      pairs += node.strategies.size() * graph.nodes[static_cast<size_t>(input)].strategies.size();
  return pairs;
}

void solve_shortly(const Problem& problem) {
  size_t pairs = 0;
  for (const Edge& edge : problem.edges) pairs += edge.cost.size();
  if (pairs <= kMostPairs && problem.costs.size() <= kMostPairs) solve(problem, kShort);
}

void price_shortly(Graph graph) {
  const CalibratedCosts costs;
  ReshardTables paths(graph.mesh);
  const CalibratedStrategies strategies = generate_calibrated_strategies(graph, costs, paths);
  if (pairs_of(graph) <= kMostPairs) solve_shortly(calibrated_problem(graph, strategies, costs, paths));
}

void take_graph(Graph graph) {
  const std::string text = graph_json(graph);
  if (graph_json(*parse_plan_file(text, "again").graph) != text)
    throw std::logic_error("a graph that was written is another one when it is read: " + text);
  if (graph.nodes.size() > kMostNodes || pairs_of(graph) > kMostPairs) return;
  const bool has_strategies =
      std::ranges::all_of(graph.nodes, [](const Node& node) { return !node.strategies.empty(); });
  if (has_strategies) solve_shortly(compat_problem(graph));
  price_shortly(graph);
  generate_compat_strategies(graph);
  if (pairs_of(graph) <= kMostPairs) solve_shortly(compat_problem(graph));
}

}  // namespace

bool take_plan_text(const std::string& text) {
  try {
    const PlanFile file = parse_plan_file(text, "text");
    if (file.problem) solve_shortly(*file.problem);
    if (file.graph) take_graph(*file.graph);
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.code() != ErrorCode::invalid_argument) throw std::logic_error("not the caller's fault: " + message);
    if (std::ranges::any_of(message, [](unsigned char c) { return std::iscntrl(c); }))
      throw std::logic_error("not one line: " + message);
    return false;
  }
}

std::vector<std::string> plan_texts() {
  const std::string meta = R"({"meta": {"mesh": [2, 2], "alpha": [1, 1], "beta": [1, 1], "devices": 4}, "nodes": [)";
  const std::string x = R"({"name": "x", "op": "placeholder", "inputs": [], "merge": false, "args": [], )"
                        R"("out": {"shape": [8, 4, 8], "dtype": "torch.float32"}}, )";
  const std::string end = R"({"name": "out", "op": "output", "inputs": ["y"], "out": null, "args": ["y"]}]})";
  const std::string out = R"("out": {"shape": [8, 4, 8], "dtype": "torch.float32"}}, )";
  std::vector<std::string> texts;
  for (
      const std::string node :
      {R"("op": "call_module", "target": "fc", "module": "Linear", "params": {"weight": [8, 8], "bias": [8]}, )",
       R"("op": "call_module", "target": "fc", "module": "Linear", "params": {"weight": [8, 8], "bias": [7, 9]}, )",
       R"("op": "call_module", "target": "n", "module": "RMSNorm", "params": {"weight": [8], "bias": []}, )",
       R"("op": "call_module", "target": "c", "module": "Conv1d", "params": {"weight": [4, 4, 68719476736]}, )",
       R"("op": "call_module", "target": "n", "module": "LayerNorm", "params": {"weight": [8]}, "repr": "LayerNorm", )",
       R"("op": "call_function", "target": "torch.bmm", )",
       R"("op": "call_function", "target": "softmax", "merge": true, )",
       R"("op": "call_method", "target": "transpose", "merge": true, )", R"("op": "call_function", "target": "add", )"})
    texts.push_back(meta + x + R"({"name": "y", "inputs": ["x"], "args": ["x", "1", "1"], )" + node + out + end);
  texts.push_back(meta + x + R"({"name": "s", "op": "call_method", "target": "split", "inputs": ["x"], "merge": true,
      "args": ["x", "4", "2"], "out": [{"shape": [8, 4, 4], "dtype": "torch.float32"}, {"shape": [8, 4, 4],
      "dtype": "torch.float32"}]}, {"name": "y", "op": "call_function", "target": "getitem", "inputs": ["s"], "args":
      ["s", "1"], "out": {"shape": [8, 4, 4], "dtype": "torch.float32"}}, )" +
                  end);
  texts.push_back(R"({"meta": {"mesh": [2], "alpha": [1], "beta": [0.5], "phase": "prefill"}, "nodes": [
      {"name": "x", "op": "placeholder", "inputs": [], "out": {"shape": [8], "dtype": "torch.int64"}, "strategies": [
        {"name": "a", "specs": {"x": ["R"]}, "compute": [1, 1, 2], "comm": [0, 0, 0],
         "mem": {"total": {"activation": 1}}},
        {"name": "b", "specs": {"x": ["S0"]}, "compute": [1, 0, 1], "comm": [0, 0, 0],
         "mem": {"total": {"buffer": 2}}}]},
      {"name": "y", "op": "call_function", "target": "relu", "inputs": ["x", "size"], "merge": true, "out":
        {"shape": [8], "dtype": "torch.bool"}, "strategies": [
        {"name": "a", "specs": {"x": ["R"], "y": ["R"]}, "compute": [1, 1, 2], "comm": [0, 0, 0], "mem": {"total": {}}},
        {"name": "b", "specs": {"x": ["S0"], "y": ["S0"]}, "compute": [1, 1, 2], "comm": [0, 0, 0],
         "mem": {"total": {"temp": 3}}}]},
      {"name": "out", "op": "output", "inputs": ["y"], "out": null, "strategies": [
        {"name": "a", "specs": {"y": ["R"]}, "compute": [0, 0, 0], "comm": [0, 0, 0], "mem": {"total": {}}}]}],
      "solution": {"objective": 3}})");
  texts.push_back(R"({"problem": {"s_len": [2, 1, 2], "s_follow": [-1, -1, 0], "alias": {"2": 0},
      "compute": [1, 2, 3, 4, 5], "comm": [0, 0, 0, 0, 0], "mem": [1, 2, 3, 4, 5], "edges": [[0, 1], [1, 2]],
      "reshard": [0, 1, 2, 3]}})");
  return texts;
}

}  // namespace seqtile::testing

// planner/solver/live_spans.cpp -- see live_spans.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/live_spans.h"

#include <algorithm>

#include "planner/graph/node_view.h"
#include "planner/strategies/calibrated_strategies.h"

namespace seqtile::planner {
namespace {

/// By node: the last node that reads it or a view of it. A node without readers is its own.
std::vector<int> last_readers(const Graph& graph) {
  std::vector<int> last;
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) last.push_back(node);
  for (size_t node = graph.nodes.size(); node-- > 0;)
    for (const int input : graph.nodes[node].inputs) {
      int& of_input = last[static_cast<size_t>(input)];
      of_input = std::max(of_input, is_view(graph.nodes[node]) ? last[node] : static_cast<int>(node));
    }
  return last;
}

}  // namespace

int num_steps(const Graph& graph) { return static_cast<int>(graph.nodes.size()) * (graph.is_training ? 2 : 1); }

std::vector<LiveSpan> live_spans(const Graph& graph) {
  using What = LiveSpan::What;
  const std::vector<int> last = last_readers(graph);
  const std::vector<char> has_gradient = nodes_with_gradients(graph);
  const int steps = num_steps(graph);
  const auto backward = [&](int node) { return steps - 1 - node; };
  std::vector<LiveSpan> spans;
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    const Node& node = graph.nodes[static_cast<size_t>(i)];
    const int reader = last[static_cast<size_t>(i)];
    if (node.op == "get_attr") {
      if (graph.is_training) spans.push_back({What::parameter_gradient, i, backward(reader), steps});
      continue;
    }
    if (!is_view(node)) {
      spans.push_back({What::activation, i, i, graph.is_training ? backward(i) + 1 : reader + 1});
      if (graph.is_training && has_gradient[static_cast<size_t>(i)] && reader != i)
        spans.push_back({What::activation_gradient, i, backward(reader), backward(i) + 1});
    }
    if (graph.is_training && !node.parameters.empty())
      spans.push_back({What::parameter_gradient, i, backward(i), steps});
  }
  return spans;
}

void add_live_spans(const Graph& graph, Problem& problem) {
  problem.num_steps = std::max(num_steps(graph), 1);
  for (const LiveSpan& span : live_spans(graph)) {
    Live live{span.node, span.begin, span.end, {}};
    for (const Strategy& strategy : graph.nodes[static_cast<size_t>(span.node)].strategies)
      live.bytes.push_back(span.what == LiveSpan::What::parameter_gradient ? strategy.gradient : strategy.activation);
    if (std::ranges::any_of(live.bytes, [](double bytes) { return bytes != 0; }))
      problem.live.push_back(std::move(live));
  }
}

}  // namespace seqtile::planner

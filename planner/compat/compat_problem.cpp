// planner/compat/compat_problem.cpp -- see compat_problem.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/compat/compat_problem.h"

#include <algorithm>
#include <map>

#include "planner/compat/reshard_costs.h"

namespace seqtile::planner {
namespace {

constexpr int kShortestRun = 10;

class Merging {
 public:
  explicit Merging(const Graph& graph) : graph_(graph), producers_(graph.nodes.size()), consumers_(graph.nodes.size()) {
    for (const Node& node : graph.nodes) {
      std::vector<double>& costs = problem_.costs.emplace_back();
      std::vector<double>& memory = problem_.memory.emplace_back();
      for (const Strategy& strategy : node.strategies) {
        costs.push_back(strategy.compute + strategy.communication);
        memory.push_back(strategy.memory);
      }
      extra_.emplace_back(costs.size());
    }
    problem_.follows.assign(graph.nodes.size(), -1);
    ReshardCosts costs(graph);
    for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) connect(node, costs);
  }

  Problem run() {
    for (int node = static_cast<int>(graph_.nodes.size()) - 1; node >= 0; --node)
      if (graph_.nodes[static_cast<size_t>(node)].merges) merge(node);
    for (size_t node = 0; node < extra_.size(); ++node)
      for (size_t i = 0; i < extra_[node].size(); ++i) problem_.costs[node][i] += extra_[node][i];
    std::erase_if(problem_.edges, [](const Edge& edge) { return edge.cost.empty(); });
    return std::move(problem_);
  }

 private:
  void connect(int node, ReshardCosts& costs) {
    const std::vector<int>& inputs = graph_.nodes[static_cast<size_t>(node)].inputs;
    for (size_t operand = 0; operand < inputs.size(); ++operand)
      add_edge(inputs[operand], node, costs.between(inputs[operand], node, operand));
    producers_[static_cast<size_t>(node)] = inputs;
  }

  void add_edge(int producer, int consumer, std::vector<double> cost) {
    places_[{producer, consumer}] = problem_.edges.size();
    problem_.edges.push_back({producer, consumer, std::move(cost)});
    consumers_[static_cast<size_t>(producer)].push_back(consumer);
  }

  Edge& edge(int producer, int consumer) { return problem_.edges[places_.at({producer, consumer})]; }

  /// The node's strategy for each strategy of the leader: the cheapest, and the last one of equals.
  std::vector<size_t> cheapest(const Edge& from_leader, size_t count) const {
    std::vector<size_t> chosen;
    for (size_t row = 0; row < from_leader.cost.size(); row += count) {
      size_t best = 0;
      for (size_t i = 0; i < count; ++i)
        if (from_leader.cost[row + i] <= from_leader.cost[row + best]) best = i;
      chosen.push_back(best);
    }
    return chosen;
  }

  void merge(int node) {
    const auto n = static_cast<size_t>(node);
    const int leader = producers_[n].front();
    const auto l = static_cast<size_t>(leader);
    const size_t count = problem_.costs[n].size();
    const Edge& between = edge(leader, node);
    const std::vector<size_t> chosen = cheapest(between, count);
    for (size_t i = 0; i < chosen.size(); ++i)
      extra_[l][i] += between.cost[i * count + chosen[i]] + extra_[n][chosen[i]];
    std::ranges::fill(extra_[n], 0.0);
    problem_.follows[n] = leader;
    for (const int consumer : consumers_[n]) reconnect(node, leader, consumer, chosen);
    for (const int producer : producers_[n]) drop(producer, node);
  }

  /// Connects the consumer to the leader instead of the node, unless an edge connects them already.
  void reconnect(int node, int leader, int consumer, const std::vector<size_t>& chosen) {
    const std::vector<double> old = edge(node, consumer).cost;
    const size_t width = problem_.costs[static_cast<size_t>(consumer)].size();
    if (!places_.contains({leader, consumer})) {
      std::vector<double> cost;
      for (const size_t row : chosen) cost.insert(cost.end(), &old[row * width], &old[row * width] + width);
      add_edge(leader, consumer, std::move(cost));
    }
    drop_edge(node, consumer);
    std::ranges::replace(producers_[static_cast<size_t>(consumer)], node, leader);
  }

  void drop(int producer, int consumer) {
    if (!places_.contains({producer, consumer})) return;
    drop_edge(producer, consumer);
    std::erase(consumers_[static_cast<size_t>(producer)], consumer);
  }
  void drop_edge(int producer, int consumer) {
    edge(producer, consumer).cost.clear();
    places_.erase({producer, consumer});
  }

  const Graph& graph_;
  Problem problem_;
  std::vector<std::vector<double>> extra_;  ///< costs that merged nodes add to their leaders
  std::vector<std::vector<int>> producers_, consumers_;
  std::map<std::pair<int, int>, size_t> places_;  ///< indices of the edges that are left
};

/// Numbers the signatures of the nodes: operator and shapes of the arguments. Equal signatures have equal numbers.
std::vector<int> signatures(const Graph& graph) {
  std::map<std::string, std::string> shapes;
  std::map<std::string, int> numbers;
  std::vector<int> result;
  for (const Node& node : graph.nodes) {
    std::string signature = node.op;
    if (node.op != "get_attr") {
      signature += " " + (node.module.empty() ? node.target : node.module);
      for (const std::string& argument : node.arguments) {
        const auto found = shapes.find(argument);
        signature += " " + (found == shapes.end() ? argument : found->second);
      }
    }
    result.push_back(numbers.try_emplace(signature, static_cast<int>(numbers.size())).first->second);
    std::string& shape = shapes[node.name];
    for (const TensorType& type : node.results) {
      shape += "(";
      for (const int64_t size : type.shape) shape += std::to_string(size) + ",";
      shape += ")";
    }
  }
  return result;
}

/// A signature has the operands' shapes only. The results of products with different weights differ in shape.
bool same_shapes(const Node& a, const Node& b) {
  return std::ranges::equal(a.results, b.results, {}, &TensorType::shape, &TensorType::shape);
}

}  // namespace

std::vector<int> repeated_nodes(const Graph& graph, int least) {
  const std::vector<int> like = signatures(graph);
  const int nodes = static_cast<int>(like.size());
  /// Nodes of one signature. `tried` is the minimum length of the last attempt; a second attempt with it gives the same
  /// result.
  struct Alike {
    std::vector<int> nodes;
    int tried = -1, length = 0;
    bool is_run = false;
  };
  std::vector<Alike> places(like.size());
  for (int node = 0; node < nodes; ++node)
    places[static_cast<size_t>(like[static_cast<size_t>(node)])].nodes.push_back(node);
  int length = least;
  const std::vector<int>* found = nullptr;
  const auto agree = [&](const std::vector<int>& at, int offset) {
    return std::ranges::all_of(at, [&](int start) {
      return start + offset < nodes &&
             like[static_cast<size_t>(start + offset)] == like[static_cast<size_t>(at.back() + offset)];
    });
  };
  for (int node = 0; node < nodes; ++node) {
    Alike& alike = places[static_cast<size_t>(like[static_cast<size_t>(node)])];
    const std::vector<int>& at = alike.nodes;
    if (alike.tried != length) {
      alike.tried = alike.length = length;
      alike.is_run = at.size() >= 2;
      for (int offset = 0; alike.is_run && offset < length; ++offset) alike.is_run = agree(at, offset);
      const int most = nodes - at.back() - length - 1;  // the last node of the graph joins no run
      int more = 0;
      while (alike.is_run && more < most && agree(at, length + more)) ++more;
      alike.length += most < 0 ? most : more;
    }
    if (!alike.is_run) continue;
    found = &at;
    length = alike.length;
  }
  const std::vector<int> starts = found ? *found : std::vector<int>();
  std::vector<int> repeats(like.size(), -1);
  for (size_t run = 1; run < starts.size(); ++run)
    for (int offset = 0; offset < length; ++offset)
      repeats[static_cast<size_t>(starts[run] + offset)] = starts.front() + offset;
  return repeats;
}

Problem compat_problem(const Graph& graph) {
  Problem problem = Merging(graph).run();
  const std::vector<int> repeats = repeated_nodes(graph, kShortestRun);
  // A node after a run's inputs may have other strategies than in the first run.
  const auto repeats_all = [&](size_t node) {
    if (repeats[node] < 0) return false;
    const auto like = static_cast<size_t>(repeats[node]);
    return problem.costs[like].size() == problem.costs[node].size() &&
           same_shapes(graph.nodes[like], graph.nodes[node]);
  };
  for (size_t node = 0; node < repeats.size(); ++node)
    if (problem.follows[node] < 0 && repeats_all(node)) problem.follows[node] = repeats[node];
  return problem;
}

}  // namespace seqtile::planner

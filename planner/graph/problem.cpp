// planner/graph/problem.cpp -- see problem.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "jit/base/counted.h"
#include "seqtile/error.h"

namespace seqtile::planner {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

bool is_finite(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

/// Refuses a node whose chain of `follows` returns to it.
[[noreturn]] void refuse_circle(const Problem& problem, int node) {
  constexpr int kMostNamed = 8;
  std::string circle = std::to_string(node);
  int at = problem.follows[static_cast<size_t>(node)];
  for (int named = 1; at != node && named < kMostNamed; ++named, at = problem.follows[static_cast<size_t>(at)])
    circle += fmt::format(" -> {}", at);
  refuse(
      fmt::format("nodes follow one another in a circle, {} -> {}{}, so that none of them chooses; give one -1 in "
                  "\"s_follow\" and no \"alias\"",
                  circle, at == node ? "" : "... -> ", node));
}

void check_follower(const Problem& problem, int node) {
  const int leader = problem.follows[static_cast<size_t>(node)];
  if (leader >= problem.num_nodes()) refuse(fmt::format("node {} follows node {}, which there is not", node, leader));
  if (leader < 0) return;
  if (problem.costs[static_cast<size_t>(leader)].size() != problem.costs[static_cast<size_t>(node)].size())
    refuse(fmt::format("node {} follows node {}, which has another number of strategies", node, leader));
  int at = leader;
  for (int hops = 0; at >= 0 && at < problem.num_nodes(); at = problem.follows[static_cast<size_t>(at)])
    if (++hops > problem.num_nodes()) refuse_circle(problem, at);
}

void check_live(const Problem& problem, const Live& live) {
  if (live.node < 0 || live.node >= problem.num_nodes())
    refuse(fmt::format("memory of node {}: nodes are 0..{}", live.node, problem.num_nodes() - 1));
  const size_t strategies = problem.costs[static_cast<size_t>(live.node)].size();
  if (live.bytes.size() != strategies)
    refuse(fmt::format("node {} has {} and {} for a while", live.node, counted(strategies, "cost"),
                       counted(live.bytes.size(), "size")));
  if (live.begin < 0 || live.begin >= live.end || live.end > problem.num_steps)
    refuse(fmt::format("node {} holds memory in steps {}..{}, there are {}", live.node, live.begin, live.end,
                       problem.num_steps));
  if (!is_finite(live.bytes)) refuse(fmt::format("a size of node {} is not finite", live.node));
}

}  // namespace

void check(const Problem& problem) {
  const auto nodes = static_cast<size_t>(problem.num_nodes());
  if (nodes == 0) refuse("a problem without nodes");
  if (problem.memory.size() != nodes || problem.follows.size() != nodes)
    refuse(fmt::format("{} with costs, {} with memory, {} that may follow", counted(nodes, "node"),
                       problem.memory.size(), problem.follows.size()));
  for (size_t node = 0; node < nodes; ++node) {
    if (problem.costs[node].empty()) refuse(fmt::format("node {} has no strategy", node));
    if (problem.memory[node].size() != problem.costs[node].size())
      refuse(fmt::format("node {} has {} and {}", node, counted(problem.costs[node].size(), "cost"),
                         counted(problem.memory[node].size(), "size")));
    if (std::ranges::any_of(problem.memory[node], [](double bytes) { return bytes < 0; }))
      refuse(fmt::format("a size of node {} is negative", node));
    if (!is_finite(problem.costs[node]) || !is_finite(problem.memory[node]))
      refuse(fmt::format("a cost or size of node {} is not finite", node));
    check_follower(problem, static_cast<int>(node));
  }
  if (problem.num_steps < 1) refuse(fmt::format("{} steps", problem.num_steps));
  for (const Live& live : problem.live) check_live(problem, live);
  for (const Edge& edge : problem.edges) {
    const int last = problem.num_nodes() - 1;
    if (std::min(edge.producer, edge.consumer) < 0 || std::max(edge.producer, edge.consumer) > last)
      refuse(fmt::format("an edge from {} to {}: nodes are 0..{}", edge.producer, edge.consumer, last));
    const size_t wanted = problem.costs[static_cast<size_t>(edge.producer)].size() *
                          problem.costs[static_cast<size_t>(edge.consumer)].size();
    if (edge.cost.size() != wanted)
      refuse(fmt::format("the edge from {} to {} has {} costs, {} are wanted", edge.producer, edge.consumer,
                         edge.cost.size(), wanted));
    if (!is_finite(edge.cost))
      refuse(fmt::format("a cost of the edge from {} to {} is not finite", edge.producer, edge.consumer));
  }
}

int leader_of(const Problem& problem, int node) {
  while (problem.follows[static_cast<size_t>(node)] >= 0) node = problem.follows[static_cast<size_t>(node)];
  return node;
}

double objective(const Problem& problem, const Choices& choices) {
  double sum = 0;
  for (size_t node = 0; node < choices.size(); ++node) sum += problem.costs[node][static_cast<size_t>(choices[node])];
  for (const Edge& edge : problem.edges) {
    const auto consumer = static_cast<size_t>(edge.consumer);
    sum += edge.cost[static_cast<size_t>(choices[static_cast<size_t>(edge.producer)]) * problem.costs[consumer].size() +
                     static_cast<size_t>(choices[consumer])];
  }
  return sum;
}

std::vector<double> memory_by_step(const Problem& problem, const Choices& choices) {
  const auto choice = [&](size_t node) { return static_cast<size_t>(choices[node]); };
  std::vector<double> bytes(static_cast<size_t>(problem.num_steps) + 1);  // at first the bytes that each step adds
  for (size_t node = 0; node < choices.size(); ++node) bytes[0] += problem.memory[node][choice(node)];
  for (const Live& live : problem.live) {
    const double more = live.bytes[choice(static_cast<size_t>(live.node))];
    bytes[static_cast<size_t>(live.begin)] += more;
    bytes[static_cast<size_t>(live.end)] -= more;
  }
  bytes.pop_back();
  std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
  return bytes;
}

double memory(const Problem& problem, const Choices& choices) {
  return std::ranges::max(memory_by_step(problem, choices));
}

}  // namespace seqtile::planner

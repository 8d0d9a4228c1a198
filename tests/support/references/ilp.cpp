// tests/support/references/ilp.cpp -- see ilp.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/references/ilp.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <vector>

#include "tests/support/temp_folder.h"

namespace seqtile::testing {
namespace {

using planner::Edge;
using planner::Problem;

std::string strategy_name(int leader, size_t strategy) { return fmt::format("x{}_{}", leader, strategy); }

class Program {
 public:
  explicit Program(const Problem& problem) : problem_(problem) {
    for (int node = 0; node < problem.num_nodes(); ++node) {
      const int leader = leader_of(problem, node);
      const auto n = static_cast<size_t>(node);
      costs_[leader].resize(problem.costs[n].size());
      memory_[leader].resize(problem.costs[n].size());
      for (size_t i = 0; i < problem.costs[n].size(); ++i) {
        costs_[leader][i] += problem.costs[n][i];
        memory_[leader][i] += problem.memory[n][i];
      }
    }
    for (const Edge& edge : problem.edges) {
      const int from = leader_of(problem, edge.producer), to = leader_of(problem, edge.consumer);
      if (from != to) continue;
      const size_t count = costs_[from].size();
      for (size_t i = 0; i < count; ++i) costs_[from][i] += edge.cost[i * count + i];
    }
  }

  std::string write(double budget) {
    text_ = "Minimize\n obj:";
    for (const auto& [leader, costs] : costs_)
      for (size_t i = 0; i < costs.size(); ++i) term(costs[i], strategy_name(leader, i));
    each_edge([&](size_t edge, size_t i, size_t j, double cost) { term(cost, fmt::format("e{}_{}_{}", edge, i, j)); });
    text_ += "\nSubject To\n";
    for (const auto& [leader, costs] : costs_) {
      for (size_t i = 0; i < costs.size(); ++i) term(1, strategy_name(leader, i));
      text_ += " = 1\n";
    }
    write_sums();
    for (int step = 0; step < problem_.num_steps && std::isfinite(budget); ++step) write_budget(step, budget);
    text_ += "Binaries\n";
    for (const auto& [leader, costs] : costs_)
      for (size_t i = 0; i < costs.size(); ++i) text_ += " " + strategy_name(leader, i) + "\n";
    return text_ + "End\n";
  }

 private:
  void write_budget(int step, double budget) {
    auto memory = memory_;
    for (const planner::Live& live : problem_.live)
      for (size_t i = 0; i < live.bytes.size() && live.begin <= step && step < live.end; ++i)
        memory[leader_of(problem_, live.node)][i] += live.bytes[i];
    for (const auto& [leader, bytes] : memory)
      for (size_t i = 0; i < bytes.size(); ++i) term(bytes[i], strategy_name(leader, i));
    text_ += fmt::format(" <= {:.17g}\n", budget);
  }

  /// Writes one term a line, because readers of this format limit the length of lines.
  void term(double factor, const std::string& variable) {
    text_ += fmt::format(" {} {:.17g} {}\n", factor < 0 ? "-" : "+", std::abs(factor), variable);
  }

  template <class F>
  void each_edge(const F& f) const {
    for (size_t e = 0; e < problem_.edges.size(); ++e) {
      const Edge& edge = problem_.edges[e];
      if (leader_of(problem_, edge.producer) == leader_of(problem_, edge.consumer)) continue;
      const size_t columns = problem_.costs[static_cast<size_t>(edge.consumer)].size();
      for (size_t at = 0; at < edge.cost.size(); ++at) f(e, at / columns, at % columns, edge.cost[at]);
    }
  }

  /// Writes the sums of each edge: rows are the producer's strategies, columns the consumer's.
  void write_sums() {
    for (const bool by_row : {true, false})
      for (size_t e = 0; e < problem_.edges.size(); ++e) {
        const Edge& edge = problem_.edges[e];
        const int from = leader_of(problem_, edge.producer), to = leader_of(problem_, edge.consumer);
        if (from == to) continue;
        const size_t rows = costs_[from].size(), columns = costs_[to].size();
        for (size_t i = 0; i < (by_row ? rows : columns); ++i) {
          for (size_t j = 0; j < (by_row ? columns : rows); ++j)
            term(1, by_row ? fmt::format("e{}_{}_{}", e, i, j) : fmt::format("e{}_{}_{}", e, j, i));
          term(-1, strategy_name(by_row ? from : to, i));
          text_ += " = 0\n";
        }
      }
  }

  const Problem& problem_;
  std::map<int, std::vector<double>> costs_, memory_;  ///< costs and bytes of strategies, by leader
  std::string text_;
};

/// Reads "  12 x3_1  1  0", a line for each nonzero variable; the first line says how the solver ended.
std::optional<planner::Choices> read_answer(const Problem& problem, const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error("cbc has written no answer");
  if (line.find("nfeasible") != std::string::npos) return std::nullopt;
  if (!line.starts_with("Optimal")) throw std::runtime_error("cbc: " + line);
  std::map<int, int> chosen;
  while (std::getline(file, line)) {
    int leader = 0, strategy = 0;
    double value = 0;
    if (std::sscanf(line.c_str(), " %*d x%d_%d %lf", &leader, &strategy, &value) == 3 && value > 0.5)
      chosen[leader] = strategy;
  }
  planner::Choices choices;
  for (int node = 0; node < problem.num_nodes(); ++node) choices.push_back(chosen.at(leader_of(problem, node)));
  return choices;
}

}  // namespace

bool has_ilp_solver() { return std::system("command -v cbc >/dev/null 2>&1") == 0; }

std::string integer_program(const Problem& problem, double memory_budget) {
  return Program(problem).write(memory_budget);
}

std::optional<planner::Choices> solve_integer_program(const Problem& problem, double memory_budget) {
  const test::TempFolder folder;
  std::ofstream(folder.file("plan.lp")) << integer_program(problem, memory_budget);
  const std::string command = fmt::format("cbc {} ratioGap 0 allowableGap 0 solve solution {} >/dev/null 2>&1",
                                          folder.file("plan.lp"), folder.file("answer"));
  if (std::system(command.c_str()) != 0) throw std::runtime_error("cbc has failed: " + command);
  return read_answer(problem, folder.file("answer"));
}

}  // namespace seqtile::testing

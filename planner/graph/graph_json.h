// planner/graph/graph_json.h -- reads and writes graphs and problems as JSON (docs/plan_format.md).
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "planner/graph/graph.h"
#include "planner/graph/problem.h"

namespace seqtile::planner {

constexpr int kGraphVersion = 2;  ///< version of the format that is written; docs/plan_format.md lists the changes
/// Names in JSON, indexed by Role.
inline constexpr std::string_view kRoles[] = {"parameter", "frozen", "buffer"};

/// The contents of a file. Each part may be missing.
struct PlanFile {
  std::optional<Graph> graph;
  std::optional<Problem> problem;
  std::optional<double> objective;  ///< objective of the plan that is stored with the problem
};

/// Reads a file, plain or compressed.
/// Errors: invalid_argument where it cannot be read, is not JSON, or does not have this format. The message is one line
/// with the file and the place.
PlanFile read_plan_file(const std::string& path);
/// As read_plan_file(), from text. Messages name the file `name`.
PlanFile parse_plan_file(const std::string& text, const std::string& name);

/// The graph without its strategies, as JSON on one line. parse_plan_file() reads the same graph back.
std::string graph_json(const Graph& graph);
/// `text` compressed as gzip does. Requires: `text` has less than 4 GiB.
std::string compressed(const std::string& text);

}  // namespace seqtile::planner

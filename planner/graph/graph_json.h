// planner/graph/graph_json.h -- graphs and problems as JSON, plain or compressed; docs/plan_format.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "planner/graph/graph.h"
#include "planner/graph/problem.h"

namespace seqtile::planner {

constexpr int kGraphVersion = 2;  ///< of the format that is written; docs/plan_format.md says what changed
/// By Role.
inline constexpr std::string_view kRoles[] = {"parameter", "frozen", "buffer"};

/// What a file holds; each part may be missing.
struct PlanFile {
  std::optional<Graph> graph;
  std::optional<Problem> problem;
  std::optional<double> objective;  ///< of the plan that is stored with it
};

/// Errors: invalid_argument (cannot be read, no JSON, not this format): one line that names the file and the place.
PlanFile read_plan_file(const std::string& path);
/// The same of a text. `name` is for messages.
PlanFile parse_plan_file(const std::string& text, const std::string& name);

/// A graph without its strategies, on one line. What parse_plan_file() reads of it is the same graph.
std::string graph_json(const Graph& graph);
/// For gzip. Requires: less than 4 GiB.
std::string compressed(const std::string& text);

}  // namespace seqtile::planner

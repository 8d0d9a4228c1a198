// tools/cli/plan/plan_race.h -- plans of one graph of decoder layers, run on ranks against each other.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads, with one core each. They start a run together; its time is that of the last one to end. In each
// round every plan runs once, in random order, so that what a machine does meanwhile meets all of them.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/layers/planned_model.h"
#include "tools/cli/command.h"

namespace seqtile::cli {

struct RaceOptions {
  int ranks = 2, rounds = 11;
  bool times_steps = false;  ///< besides, in rounds of their own
  std::string cache;         ///< tuning.db; empty: the user's
  /// Of rank 0, between runs: what comes next, and how many of all rounds are done.
  std::function<void(const std::string& activity, int64_t done, int64_t total)> progress;
};

/// A launch of each rank, over all rounds.
struct StepTime {
  std::vector<int> nodes;
  bool is_change = false;
  std::string operation;
  std::vector<double> seconds;  ///< by round
};

struct PlanTimes {
  std::string refusal;          ///< why the plan cannot be run; then there is nothing else
  std::vector<double> seconds;  ///< by round
  std::vector<StepTime> steps;
  double difference = 0;  ///< from the first plan: the largest of any element, results are of order 1
};

/// By plan. Errors: those of PlannedModel but unsupported, and of the first plan all.
std::vector<PlanTimes> race_plans(const Session& session, const models::Model& model, const planner::Graph& graph,
                                  std::span<const planner::Choices> plans, const RaceOptions& options);

}  // namespace seqtile::cli

// tools/cli/plan/plan_race.h -- races plans of one graph of decoder layers on ranks.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads with one core each. They start a run together; the time of the run is the time of the slowest rank.
// Each round runs all plans once, in random order, so that disturbances of the machine hit all plans alike.
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
  bool times_steps = false;  ///< also times single steps, in rounds of their own
  std::string cache;         ///< path of tuning.db; empty: the user's
  /// Called on rank 0 between runs, with the next activity and the number of finished rounds.
  std::function<void(const std::string& activity, int64_t done, int64_t total)> progress;
};

/// The times of one launch on all ranks.
struct StepTime {
  std::vector<int> nodes;
  bool is_change = false;
  std::string operation;
  std::vector<double> seconds;  ///< by round
};

struct PlanTimes {
  std::string refusal;          ///< reason why the plan cannot run; the other fields are then empty
  std::vector<double> seconds;  ///< by round
  std::vector<StepTime> steps;
  double difference = 0;  ///< largest difference of an element from the first plan's result; results are of order 1
};

/// Returns the times by plan. Errors: as PlannedModel, except `unsupported` of any plan but the first.
std::vector<PlanTimes> race_plans(const Session& session, const models::Model& model, const planner::Graph& graph,
                                  std::span<const planner::Choices> plans, const RaceOptions& options);

}  // namespace seqtile::cli

// tools/cli/plan/plan_race.cpp -- see plan_race.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan/plan_race.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "autotune/call/call_values.h"
#include "tools/cli/options.h"
#include "tools/cli/ranks/ranks.h"

namespace seqtile::cli {
namespace {

using Clock = std::chrono::steady_clock;
using models::ModelTensor;
using models::PlannedModel;
using models::PlannedStep;

/// Delay of the common start; a rank needs less time to see that all ranks have come.
constexpr auto kStart = std::chrono::microseconds(300);
constexpr int kWarmups = 2;
constexpr uint64_t kSeed = 1;

/// One rank of the race.
class Runner {
 public:
  Runner(Engine& engine, Fabric& fabric, const RaceOptions& options, std::vector<PlanTimes>& times)
      : engine_(engine), fabric_(fabric), options_(options), times_(times) {}

  void enter(const models::Model& model, const planner::Graph& graph, std::span<const planner::Choices> plans,
             const models::ModelWeights& weights, const Tensor& x) {
    times_.resize(plans.size());
    for (const planner::Choices& choices : plans) {
      const size_t plan = models_.size();
      tell(fmt::format("plan {} of {} is prepared", plan + 1, plans.size()), 0);
      models_.emplace_back();
      try {
        models_.back() = std::make_unique<PlannedModel>(engine_, fabric_, model, graph, choices, weights);
      } catch (const Error& error) {  // all ranks throw the same error
        if (error.code() != ErrorCode::unsupported || plan == 0) throw;
        times_[plan].refusal = error.what();
        continue;
      }
      models_.back()->set_input(x);
      for (const PlannedStep& step : models_.back()->steps())
        times_[plan].steps.push_back({step.nodes, step.is_change, step.operation, {}});
    }
  }

  void compare() {
    for (size_t plan = 0; plan < models_.size(); ++plan) {
      if (!models_[plan]) continue;
      autotune::poison(models_[plan]->result());
      run_together([&] { models_[plan]->run(); });
      models_[plan]->check();
      times_[plan].difference = difference(*models_[plan], *models_.front());
    }
  }

  void race() {
    for (int round = -kWarmups; round < options_.rounds; ++round) {
      tell(fmt::format("round {} of {}", std::max(round, 0) + 1, options_.rounds), std::max(round, 0));
      for (const size_t plan : shuffled()) {
        const double seconds = run_together([&] { models_[plan]->run(); });
        if (round >= 0) times_[plan].seconds.push_back(seconds);
      }
    }
    check();
  }

  void race_steps() {
    for (int round = -1; round < options_.rounds; ++round) {
      tell(fmt::format("round {} of {}, operator by operator", std::max(round, 0) + 1, options_.rounds),
           options_.rounds + std::max(round, 0));
      for (const size_t plan : shuffled())
        for (size_t i = 0; i < models_[plan]->steps().size(); ++i) {
          const PlannedStep& step = models_[plan]->steps()[i];
          const double seconds = run_together([&] { models_[plan]->run_step(step); });
          if (round >= 0) times_[plan].steps[i].seconds.push_back(seconds);
        }
    }
    check();
  }

 private:
  void tell(const std::string& activity, int64_t done) const {
    if (fabric_.rank() == 0 && options_.progress)
      options_.progress(activity, done, options_.rounds * (options_.times_steps ? 2 : 1));
  }

  /// Starts all ranks together. Returns the seconds from the common start to this rank's end.
  double run_together(const std::function<void()>& work) {
    const auto now = std::to_string(Clock::now().time_since_epoch().count());
    Clock::rep last = 0;
    for (const std::string& theirs : fabric_.all_gather(now)) last = std::max<Clock::rep>(last, std::stoll(theirs));
    const Clock::time_point start{Clock::duration(last) + kStart};
    while (Clock::now() < start) std::this_thread::yield();
    work();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  /// The plans that can run, in the same random order on all ranks.
  std::vector<size_t> shuffled() {
    std::vector<size_t> order;
    for (size_t plan = 0; plan < models_.size(); ++plan)
      if (models_[plan]) order.push_back(plan);
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

  static double difference(const PlannedModel& model, const PlannedModel& whole) {
    autotune::Difference worst;
    for (int64_t row = 0; row < model.result().sizes[0]; ++row)
      worst.add(autotune::compare(read_row(model.result(), row), read_row(whole.result(), model.position_of(row)),
                                  {1, 0}));  // the tolerance is the unit of the difference
    return worst.tolerances;
  }

  void check() const {
    for (const auto& model : models_)
      if (model) model->check();
  }

  Engine& engine_;
  Fabric& fabric_;
  const RaceOptions& options_;
  std::vector<PlanTimes>& times_;
  std::vector<std::unique_ptr<PlannedModel>> models_;  ///< null: a refused plan
  std::mt19937 random_{11};
};

void take_slower(std::vector<double>& seconds, const std::vector<double>& theirs) {
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = std::max(seconds[i], theirs[i]);
}

/// The times of the slowest rank in each round.
std::vector<PlanTimes> of_all_ranks(std::vector<std::vector<PlanTimes>> by_rank) {
  std::vector<PlanTimes> result = std::move(by_rank.front());
  for (size_t rank = 1; rank < by_rank.size(); ++rank)
    for (size_t plan = 0; plan < result.size(); ++plan) {
      const PlanTimes& theirs = by_rank[rank][plan];
      take_slower(result[plan].seconds, theirs.seconds);
      result[plan].difference = std::max(result[plan].difference, theirs.difference);
      for (size_t i = 0; i < result[plan].steps.size(); ++i)
        take_slower(result[plan].steps[i].seconds, theirs.steps[i].seconds);
    }
  return result;
}

}  // namespace

std::vector<PlanTimes> race_plans(const Session& session, const models::Model& model, const planner::Graph& graph,
                                  std::span<const planner::Choices> plans, const RaceOptions& options) {
  const models::ModelWeights weights = models::random_weights(graph, model.dtype, kSeed);
  const std::vector<int64_t>& shape = graph.nodes.front().results.front().shape;
  const ModelTensor x(model.dtype, shape[1], shape[2]);
  fill_normal(x.tensor(), 0, 1, kSeed + weights.size());
  std::vector<std::vector<PlanTimes>> by_rank(static_cast<size_t>(options.ranks));
  on_every_rank({options.ranks, "threads", nullptr}, 1, [&](Fabric& fabric) {
    const auto engine = Engine::open({.threads = 1, .cache = options.cache}, session.registry, fabric);
    Runner runner(*engine, fabric, options, by_rank[static_cast<size_t>(fabric.rank())]);
    runner.enter(model, graph, plans, weights, x.tensor());
    runner.compare();
    runner.race();
    if (options.times_steps) runner.race_steps();
  });
  return of_all_ranks(std::move(by_rank));
}

}  // namespace seqtile::cli

// tests/models/planned_model_test.cpp -- decoder layers by every plan, against the same layers in f64.
// SPDX-License-Identifier: Apache-2.0
#include "models/layers/planned_model.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "autotune/call/call_values.h"
#include "models/file/model_file.h"
#include "models/layers/model_graph.h"
#include "models/layers/model_plans.h"
#include "planner/solver/calibrated_problem.h"
#include "planner/solver/solver.h"
#include "planner/strategies/calibration.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/ranks/ranks.h"
#include "tests/support/temp_folder.h"

namespace seqtile::testing {
namespace {

using namespace kernels;
using namespace models;

constexpr int64_t kLength = 13, kLayers = 2;  // uneven rows on two ranks and on three

Model block(int64_t kv_heads) {
  const int64_t heads = 2 * kv_heads, head_dim = 16;
  Model model{.type = "llama",
              .hidden_size = heads * head_dim,
              .intermediate_size = 48,
              .layers = kLayers,
              .heads = heads,
              .kv_heads = kv_heads,
              .head_dim = head_dim,
              .activation = "silu",
              .norm_eps = 1e-5};
  model.set_kind({.rope = {.rotary_dim = head_dim}});
  return model;
}

// --- the same layers in f64

using Rows = std::vector<std::vector<double>>;

Rows rows_of(const Tensor& tensor) {
  Rows rows;
  for (int64_t i = 0; i < tensor.sizes[0]; ++i) rows.push_back(read_row(tensor, i));
  return rows;
}

class Reference {
 public:
  Reference(const Model& model, const ModelWeights& weights) : model_(model), weights_(weights) {}

  Rows run(Rows x) const {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string path = "model.layers." + std::to_string(layer) + ".";
      const Rows in = norm(x, path + "input_layernorm");
      const Rows q = rotated(product(in, path + "self_attn.q_proj")),
                 k = rotated(product(in, path + "self_attn.k_proj")), v = product(in, path + "self_attn.v_proj");
      x = sum(x, product(attention(q, k, v), path + "self_attn.o_proj"));
      const Rows both = product(norm(x, path + "post_attention_layernorm"), path + "mlp.gate_up_proj");
      x = sum(x, product(gated(both), path + "mlp.down_proj"));
    }
    return norm(x, "model.norm");
  }

 private:
  Rows weight(const std::string& path) const { return rows_of(weights_.at(path + ".weight").tensor()); }

  Rows norm(const Rows& x, const std::string& path) const {
    const Rows w = weight(path);
    Rows y = x;
    for (auto& row : y) {
      double squares = 0;
      for (const double value : row) squares += value * value;
      const double scale = 1 / std::sqrt(squares / static_cast<double>(row.size()) + model_.norm_eps);
      for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * w[0][i];
    }
    return y;
  }

  Rows product(const Rows& x, const std::string& path) const {
    const Rows w = weight(path);
    Rows y(x.size(), std::vector<double>(w.size()));
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t n = 0; n < w.size(); ++n)
        for (size_t k = 0; k < w[n].size(); ++k) y[i][n] += x[i][k] * w[n][k];
    return y;
  }

  static Rows sum(const Rows& a, const Rows& b) {
    Rows y = a;
    for (size_t i = 0; i < y.size(); ++i)
      for (size_t j = 0; j < y[i].size(); ++j) y[i][j] += b[i][j];
    return y;
  }

  static Rows gated(const Rows& both) {
    Rows y;
    for (const auto& row : both) {
      const size_t n = row.size() / 2;
      auto& to = y.emplace_back(n);
      for (size_t i = 0; i < n; ++i) to[i] = row[i] / (1 + std::exp(-row[i])) * row[n + i];
    }
    return y;
  }

  Rows rotated(const Rows& x) const {
    const auto d = static_cast<size_t>(model_.head_dim), half = d / 2;
    Rows y = x;
    for (size_t position = 0; position < x.size(); ++position)
      for (size_t head = 0; head < x[position].size(); head += d)
        for (size_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(position) *
                               std::pow(10000.0, -2 * static_cast<double>(i) / static_cast<double>(d)),
                       a = x[position][head + i], b = x[position][head + half + i];
          y[position][head + i] = a * std::cos(angle) - b * std::sin(angle);
          y[position][head + half + i] = b * std::cos(angle) + a * std::sin(angle);
        }
    return y;
  }

  Rows attention(const Rows& q, const Rows& k, const Rows& v) const {
    const auto d = static_cast<size_t>(model_.head_dim), group = static_cast<size_t>(model_.heads / model_.kv_heads);
    Rows y(q.size(), std::vector<double>(q[0].size()));
    for (size_t i = 0; i < q.size(); ++i)
      for (size_t head = 0; head < q[0].size() / d; ++head) {
        const size_t at = head * d, from = head / group * d;
        double total = 0;
        for (size_t key = 0; key <= i; ++key) {
          double score = 0;
          for (size_t c = 0; c < d; ++c) score += q[i][at + c] * k[key][from + c];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(d)));
          total += weight;
          for (size_t c = 0; c < d; ++c) y[i][at + c] += weight * v[key][from + c];
        }
        for (size_t c = 0; c < d; ++c) y[i][at + c] /= total;
      }
    return y;
  }

  const Model& model_;
  const ModelWeights& weights_;
};

// --- plans

struct PlannedBlock {
  planner::Graph graph;
  planner::Problem problem;
};

PlannedBlock priced(const Model& model, int ranks, int64_t length, const planner::Calibration& calibration) {
  PlannedBlock block;
  block.graph =
      model_graph(model, {.mesh = {1, {ranks}, {}, {}}, .length = length, .is_training = false, .is_block = true});
  planner::apply(calibration, block.graph.mesh);
  const planner::CalibratedCosts costs = planner::costs_of(calibration, false);
  planner::ReshardTables paths(block.graph.mesh);
  const planner::CalibratedStrategies strategies = planner::generate_calibrated_strategies(block.graph, costs, paths);
  block.problem = planner::calibrated_problem(block.graph, strategies, costs, paths);
  return block;
}

planner::Choices named(const PlannedBlock& block, ModelPlan plan) {
  const planner::Allowed allowed = allowed_strategies(block.graph, plan);
  return planner::unrestricted(allowed, planner::solve(planner::restricted(block.problem, allowed)).choices);
}

int count_of(const PlannedModel& model, const std::string& operation) {
  int count = 0;
  for (const PlannedStep& step : model.steps()) count += step.operation == operation;
  return count;
}

/// Operations that mark each plan, and their number on each rank.
std::vector<std::pair<std::string, int>> marks_of(ModelPlan plan) {
  switch (plan) {
    case ModelPlan::replicated: return {{"linear", 8}, {"all_reduce", 0}, {"attention_forward", 2}};
    case ModelPlan::tensor: return {{"linear", 8}, {"all_reduce", 4}, {"attention_forward", 2}};
    case ModelPlan::tensor_sequence:
      return {{"linear", 0}, {"fused_allgather_and_linear", 4}, {"fused_linear_and_reducescatter", 4}};
    case ModelPlan::context: return {{"linear", 8}, {"context_attention_forward", 2}, {"all_reduce", 0}};
  }
  return {};
}

class Home {
 public:
  const autotune::Registry registry = make_registry();
  EngineOptions options() const { return {.threads = 1, .cache = folder_.file("tuning.db"), .artifacts = artifacts_}; }

 private:
  test::TempFolder folder_;
  const std::string artifacts_ = testing::shared_artifacts();  // set before the ranks' threads start
};

void check_none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == "");
}

/// The largest difference of an element in the rank's part; results are of order 1.
double worst_difference(const PlannedModel& model, const Rows& wanted) {
  autotune::Difference worst;
  for (int64_t row = 0; row < model.result().sizes[0]; ++row)
    worst.add(autotune::compare(read_row(model.result(), row), wanted[static_cast<size_t>(model.position_of(row))],
                                {1, 0}));  // the tolerance is the unit of the difference
  return worst.tolerances;
}

}  // namespace

TEST_CASE("planned model: every named plan computes the layers, by the operations that it says", "[kernels][plan]") {
  const Home home;
  for (const int ranks : {2, 3}) {
    const Model model = block(ranks);
    const PlannedBlock planned = priced(model, ranks, kLength, {});
    const ModelWeights weights = random_weights(planned.graph, DType::f32, 1);
    const ModelTensor x(DType::f32, kLength, model.hidden_size);
    fill_normal(x.tensor(), 0, 1, 99);
    const Rows wanted = Reference(model, weights).run(rows_of(x.tensor()));
    std::mutex mutex;
    check_none(on_ranks("threads", ranks, [&](Fabric& fabric) {
      const auto engine = Engine::open(home.options(), home.registry, fabric);
      for (const ModelPlan plan : kModelPlans) {
        PlannedModel own(*engine, fabric, model, planned.graph, named(planned, plan), weights);
        own.set_input(x.tensor());
        for (int call = 0; call < 2; ++call) own.run();
        own.check();
        const std::lock_guard lock(mutex);
        INFO(plan_name(plan) << " on rank " << fabric.rank() << " of " << ranks);
        CHECK(worst_difference(own, wanted) < 1e-5);
        for (const auto& [operation, count] : marks_of(plan)) {
          INFO(operation);
          CHECK(count_of(own, operation) == count);
        }
      }
    }));
  }
}

TEST_CASE("planned model: plans that change layouts between operators compute the same", "[kernels][plan]") {
  const Home home;
  const Model model = block(2);
  const PlannedBlock planned = priced(model, 2, kLength, {});
  const ModelWeights weights = random_weights(planned.graph, DType::f32, 1);
  const ModelTensor x(DType::f32, kLength, model.hidden_size);
  fill_normal(x.tensor(), 0, 1, 99);
  const Rows wanted = Reference(model, weights).run(rows_of(x.tensor()));
  // The strategies of plan `first` before node `from` and of plan `then` from it on. Layouts change at the node.
  const auto mixed = [&](ModelPlan first, ModelPlan then, const std::string& from) {
    planner::Allowed allowed = allowed_strategies(planned.graph, first);
    const planner::Allowed others = allowed_strategies(planned.graph, then);
    bool is_behind = false;
    for (size_t node = 0; node < allowed.size(); ++node) {
      is_behind = is_behind || planned.graph.nodes[node].name == from;
      if (is_behind) allowed[node] = others[node];
    }
    return planner::unrestricted(allowed, planner::solve(planner::restricted(planned.problem, allowed)).choices);
  };
  struct Change {
    ModelPlan first, then;
    std::string from, operation;
  };
  const std::vector<Change> changes = {
      {ModelPlan::context, ModelPlan::replicated, "model_layers_0_add_mlp", "all_gather"},
      {ModelPlan::tensor, ModelPlan::tensor_sequence, "model_layers_0_add_attention", "reduce_scatter"},
      {ModelPlan::tensor_sequence, ModelPlan::context, "model_layers_0_self_attn_o_proj", "all_to_all"},
      {ModelPlan::replicated, ModelPlan::tensor_sequence, "model_layers_0_add_mlp", "fused_allgather_and_linear"}};
  std::mutex mutex;
  check_none(on_ranks("threads", 2, [&](Fabric& fabric) {
    const auto engine = Engine::open(home.options(), home.registry, fabric);
    for (const Change& change : changes) {
      PlannedModel own(*engine, fabric, model, planned.graph, mixed(change.first, change.then, change.from), weights);
      own.set_input(x.tensor());
      own.run();
      own.check();
      const std::lock_guard lock(mutex);
      INFO(plan_name(change.first) << ", then " << plan_name(change.then));
      CHECK(worst_difference(own, wanted) < 1e-5);
      CHECK(count_of(own, change.operation) > 0);
    }
  }));
}

TEST_CASE("planned model: named plans are legal, and none is predicted to beat the planner's own", "[kernels][plan]") {
  const Model model = load_model(SEQTILE_SOURCE_DIR "/examples/models/llama-3-8b.json");
  planner::Calibration slow;  // two cores that share memory
  slow.alpha = {3e-6}, slow.beta = {3e-10}, slow.device = {1e11, 1e10, 2e-6};
  for (const planner::Calibration& calibration : {planner::Calibration{}, slow})
    for (const int ranks : {2, 4, 8}) {
      const PlannedBlock planned = priced(model, ranks, 1024, calibration);
      const double best = planner::solve(planned.problem).objective;
      std::vector<double> costs;
      for (const ModelPlan plan : kModelPlans) {
        costs.push_back(planner::objective(planned.problem, named(planned, plan)));
        INFO(ranks << " ranks, " << plan_name(plan));
        CHECK(costs.back() >= best * (1 - 1e-12));
      }
      CHECK(costs[0] > 1.5 * *std::ranges::min_element(costs));  // sharing the work pays off
    }
}

TEST_CASE("planned model: what cannot be shared or run is one line", "[kernels][plan]") {
  using Catch::Contains;
  const PlannedBlock uneven = priced(block(2), 3, kLength, {});
  CHECK_THROWS_WITH(allowed_strategies(uneven.graph, ModelPlan::tensor),
                    Contains("tensor parallel over 3 ranks: ") && Contains("ranks must divide heads"));

  const Home home;
  Model model = block(2);
  const PlannedBlock planned = priced(model, 2, kLength, {});
  const ModelWeights weights = random_weights(planned.graph, DType::f32, 1);
  const planner::Choices whole = named(planned, ModelPlan::replicated);
  const auto refusal = [&](const Model& with, const PlannedBlock& block, int ranks) {
    const std::vector<std::string> errors = on_ranks("threads", ranks, [&](Fabric& fabric) {
      const auto engine = Engine::open(home.options(), home.registry, fabric);
      PlannedModel(*engine, fabric, with, block.graph, whole, weights);
    });
    return errors.front();
  };
  model.soft_cap = 30;
  CHECK_THAT(refusal(model, planned, 2), Contains("model_layers_0_self_attn_attention (whole): attention in a window"));
  Model normed = block(2);
  normed.head_norm = HeadNorm::each_head;
  CHECK_THAT(refusal(normed, planned, 2), Contains("llama model: no kernel over planned ranks for norms of queries"));
  CHECK_THAT(refusal(block(2), planned, 3), Contains("3 ranks: the graph must be decoder layers"));
  CHECK_THAT(refusal(block(2), priced(block(2), 2, 3, {}), 2), Contains("length 3 on 2 ranks"));
}

TEST_CASE("planned model: what one rank cannot compile is thrown on all, which then make another", "[kernels][plan]") {
  const Home home;
  const Model model = block(2);
  const PlannedBlock planned = priced(model, 2, kLength, {});
  const ModelWeights weights = random_weights(planned.graph, DType::f32, 1);
  const planner::Choices choices = named(planned, ModelPlan::tensor);
  autotune::Registry fewer;
  for (const auto& op : home.registry.ops())
    if (op->name != "act_and_mul") fewer.add(*op);
  for (int lacking = 0; lacking < 2; ++lacking)
    check_none(on_ranks("threads", 2, [&](Fabric& fabric) {
      const auto make = [&](const autotune::Registry& registry) {
        const auto engine = Engine::open(home.options(), registry, fabric);
        PlannedModel(*engine, fabric, model, planned.graph, choices, weights);
      };
      std::string problem;
      try {
        make(fabric.rank() == lacking ? fewer : home.registry);
      } catch (const Error& error) {
        problem = error.what();
      }
      if (!problem.starts_with("rank " + std::to_string(lacking) + ": ") ||
          problem.find("act_and_mul") == std::string::npos)
        throw Error(ErrorCode::wrong_result, "another problem: " + problem);
      make(home.registry);
    }));
}

}  // namespace seqtile::testing

// models/layers/planned_model.cpp -- see planned_model.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/layers/planned_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <type_traits>
#include <utility>

#include "jit/fabric/core/agreement.h"
#include "kernels/seqpar/exchange/channel_args.h"
#include "kernels/seqpar/prepare.h"
#include "models/layers/plan_shares.h"
#include "planner/graph/node_view.h"
#include "seqtile/error.h"
#include "seqtile/model.h"
#include "seqtile/ops/attention.h"
#include "seqtile/ops/collectives.h"
#include "seqtile/ops/linear.h"
#include "seqtile/ops/ranks.h"
#include "seqtile/ops/rows.h"
#include "seqtile/seqpar.h"

namespace seqtile::models {
using namespace kernels;

namespace {

struct Value {
  Share share = Share::whole;
  Tensor tensor{};  ///< [rows, columns]
};

std::byte* at(const Tensor& tensor, int64_t row, int64_t column) {
  return static_cast<std::byte*>(tensor.data) +
         dtype_bytes(tensor.dtype) * (row * tensor.strides[0] + column * tensor.strides[1]);
}

Tensor rows_of(const Tensor& tensor, int64_t first, int64_t count) {
  return make_tensor(at(tensor, first, 0), tensor.dtype, {count, tensor.sizes[1]});
}

/// Copies columns of `from`, from (row, column) on, to the rows of `to`.
void copy_rows(const Tensor& from, int64_t row, int64_t column, const Tensor& to) {
  const auto bytes = static_cast<size_t>(to.sizes[1] * dtype_bytes(to.dtype));
  for (int64_t i = 0; i < to.sizes[0]; ++i) std::memcpy(at(to, i, 0), at(from, row + i, column), bytes);
}

Tensor as_heads(const Tensor& tensor, int64_t head_dim) {
  return make_tensor(tensor.data, tensor.dtype, {tensor.sizes[0], tensor.sizes[1] / head_dim, head_dim});
}

Tensor as_list(const Tensor& tensor) { return make_tensor(tensor.data, tensor.dtype, {tensor.sizes[1]}); }

}  // namespace

/// Walks the graph once and makes values and steps; then prepares the steps on a channel.
class PlannedModelMaker : PlanShares {
 public:
  PlannedModelMaker(Engine& engine, Fabric& fabric, const Model& model, const planner::Graph& graph,
                    const planner::Choices& choices, const ModelWeights& weights, PlannedModel& made)
      : PlanShares(graph, choices, fabric.rank(), fabric.world_size()),
        engine_(engine),
        fabric_(fabric),
        model_(model),
        weights_(weights),
        made_(made),
        values_(graph.nodes.size()) {}

  void run() {
    check_served();
    made_.rank_ = rank_;
    made_.world_size_ = ranks_;
    made_.length_ = length_;
    made_.layout_ = layout_;
    for (int node = 0; node < static_cast<int>(graph_.nodes.size()); ++node) add(node);
    prepare();
  }

 private:
  /// Refuses models that the graph describes but the steps below cannot compute.
  void check_served() const {
    const auto refuse_model = [&](bool is_so, const char* what) {
      if (is_so)
        throw Error(ErrorCode::unsupported,
                    fmt::format("{} model: no kernel over planned ranks for {}", model_.type, what));
    };
    refuse_model(model_.head_norm != HeadNorm::none, "norms of queries and keys (head_norm)");
    refuse_model(model_.norm != Norm::rms, "layer norms (norm)");
    refuse_model(model_.norm_place != NormPlace::before, "norms of results (norm_place)");
    refuse_model(model_.kinds.size() > 1, "layers of several kinds (layer_types)");
    refuse_model(!model_.is_gated, "a feed-forward part without a gate");
  }

  Value& value_of(int node) { return values_[static_cast<size_t>(node)]; }

  Tensor allocate(int64_t rows, int64_t columns, DType dtype) {
    return made_.memory_.emplace_back(dtype, rows, columns).tensor();
  }
  Value make_value(int node, Share share) {
    const planner::Shape& shape = shape_of(node);
    int64_t columns = std::accumulate(shape.begin() + 2, shape.end(), int64_t{1}, std::multiplies());
    if (share == Share::columns) columns = own_part(node, columns);
    return {share, allocate(own_rows(share), columns, model_.dtype)};
  }
  const Value& make_result(int node) { return value_of(node) = make_value(node, result_share(node)); }

  template <class Op>
  void add_step(std::vector<int> nodes, const Op& op, const typename Op::Args& args, bool is_change = false) {
    PlannedStep& step = made_.steps_.emplace_back(PlannedStep{.nodes = std::move(nodes), .is_change = is_change});
    step.operation = Op::kName;
    const Call call = [&] {
      if constexpr (requires { op.ranks; }) {
        Op on_ranks = op;
        on_ranks.ranks = seqpar::ranks_of(fabric_);
        step.communicates = true;
        step.workload = workload_of(on_ranks);
        step.shares = Op::kShares;
        return seqpar::pack_rows(on_ranks, args, length_);
      } else {
        step.workload = op.workload();
        return pack(op, args);
      }
    }();
    step.tensors.assign(call.tensors().begin(), call.tensors().end());
    step.length = call.length;
  }

  /// An operand in the layout that its consumer wants. Each layout of a value is made once.
  Value bring(int consumer, size_t operand) {
    const int producer = node_at(consumer).inputs[operand];
    const Share wanted = operand_share(consumer, operand);
    const Value have = value_of(producer);
    if (have.share == wanted) return have;
    const auto [place, is_new] = changed_.try_emplace({producer, wanted});
    if (is_new) place->second = change(consumer, producer, have, wanted);
    return place->second;
  }

  Value change(int consumer, int producer, const Value& have, Share wanted) {
    if (have.share == Share::whole && wanted == Share::rows)
      return {wanted, rows_of(have.tensor, first_row(), own_rows(wanted))};
    const Value to = make_value(producer, wanted);
    const int64_t n = to.tensor.sizes[1];
    const seqpar::CollectiveTensors<Tensor> args{have.tensor, to.tensor};
    const auto is = [&](Share from, Share into) { return have.share == from && wanted == into; };
    if (is(Share::sums, Share::whole)) add_step({consumer}, seqpar::AllReduce{n, model_.dtype}, args, true);
    else if (is(Share::sums, Share::rows)) add_step({consumer}, seqpar::ReduceScatter{n, model_.dtype}, args, true);
    else if (is(Share::rows, Share::whole)) add_step({consumer}, seqpar::AllGather{n, model_.dtype}, args, true);
    else if (is(Share::rows, Share::columns) || is(Share::columns, Share::rows))
      add_step({consumer}, exchange(have, to), args, true);
    else refuse(consumer, fmt::format("no change of layout from {} to {}", share_name(have.share), share_name(wanted)));
    return to;
  }

  seqpar::AllToAll exchange(const Value& from, const Value& to) const {
    const bool to_heads = to.share == Share::columns;
    return {.heads = ranks_,
            .head_dim = (to_heads ? to : from).tensor.sizes[1],
            .to_heads = to_heads,
            .dtype = model_.dtype};
  }

  int64_t first_row() const { return rank_ * length_ / ranks_; }

  void add(int node) {
    const planner::Node& at = node_at(node);
    const std::string name = planner::operator_name(at);
    if (at.op == "placeholder") return add_input(node);
    if (at.op == "output") return add_output(node);
    if (planner::is_view(at)) return add_view(node);
    if (is_linear(at)) return add_linears(node);
    if (is_norm(at)) return add_norm(node);
    if (name == "add") return add_sum(node);
    if (name == "rotary") return;  // done by the attention that reads it
    if (name == "attention") return add_attention(node);
    if (name.ends_with("_and_mul")) return add_gate(node);
    refuse(node, "no kernel for this operator");
  }

  void add_input(int node) {
    made_.input_ = make_result(node).tensor;
    made_.has_input_rows_ = value_of(node).share == Share::rows;
  }

  void add_output(int node) {
    const Value result = bring(node, 0);
    if (result.share == Share::columns) refuse(node, "results in parts of columns");
    made_.result_ = result.tensor;
    made_.has_result_rows_ = result.share == Share::rows;
  }

  void add_view(int node) {
    value_of(node) = bring(node, 0);
    if (value_of(node).share != result_share(node)) refuse(node, "a view that changes what is cut");
  }

  void add_norm(int node) {
    if (value_of(node).tensor.data) return;  // done by the sum before it
    const Value x = bring(node, 0), y = make_result(node);
    if (x.share != y.share) refuse(node, "rows in parts");
    add_step({node}, norm_op(false), {.x = x.tensor, .weight = norm_weight(node), .y = y.tensor});
  }

  /// The kernel of a sum also normalises, so the norm must be the next node.
  void add_sum(int node) {
    const int norm = node + 1;
    if (norm >= static_cast<int>(graph_.nodes.size()) || !is_norm(node_at(norm)) ||
        node_at(norm).inputs.front() != node || result_share(norm) != result_share(node) ||
        operand_share(norm, 0) != result_share(node))
      refuse(node, "no norm of the same layout follows, and no kernel only adds");
    const Value x = bring(node, 1), residual = bring(node, 0), sum = make_result(node), y = make_result(norm);
    add_step(
        {node, norm}, norm_op(true),
        {.x = x.tensor, .residual = residual.tensor, .weight = norm_weight(norm), .y = y.tensor, .sum = sum.tensor});
  }

  RmsNorm norm_op(bool residual) const {
    return {.n = model_.hidden_size,
            .eps = model_.norm_eps,
            .residual = residual,
            .weight_offset = model_.norm_weight_offset,
            .dtype = model_.dtype};
  }
  Tensor norm_weight(int node) const { return as_list(weights_.at(node_at(node).target + ".weight").tensor()); }

  void add_linears(int node) {
    if (value_of(node).tensor.data) return;  // done by its first sibling
    std::vector<int> siblings;
    for (int other = node; other < static_cast<int>(graph_.nodes.size()); ++other)
      if (is_linear(node_at(other)) && node_at(other).inputs.front() == node_at(node).inputs.front())
        siblings.push_back(other);
    if (siblings.size() > 3) refuse(node, "more than three products of one input");
    const Value x = bring(node, 0);
    Tensor w[3], y[3];
    for (size_t i = 0; i < siblings.size(); ++i) {
      if (node_at(siblings[i]).parameters.contains("bias")) refuse(siblings[i], "a bias");
      w[i] = weight(siblings[i]);
      y[i] = make_result(siblings[i]).tensor;
    }
    const auto columns = [&](size_t i) { return i < siblings.size() ? y[i].sizes[1] : 0; };
    const Share from = x.share, to = value_of(node).share;
    if (from == Share::columns && to == Share::rows) return add_scattered(node, x.tensor, w[0], y[0]);
    if (from == Share::rows && to == Share::columns)
      return add_step(
          siblings,
          seqpar::FusedAllgatherAndLinear{
              {.n = columns(0), .n2 = columns(1), .n3 = columns(2), .k = x.tensor.sizes[1], .dtype = model_.dtype}},
          {.x = x.tensor, .w = w[0], .w2 = w[1], .w3 = w[2], .y = y[0], .y2 = y[1], .y3 = y[2]});
    add_step(siblings,
             Linear{.n = columns(0), .n2 = columns(1), .n3 = columns(2), .k = x.tensor.sizes[1], .dtype = model_.dtype},
             {.x = x.tensor, .w = w[0], .w2 = w[1], .w3 = w[2], .y = y[0], .y2 = y[1], .y3 = y[2]});
  }

  void add_scattered(int node, const Tensor& x, const Tensor& w, const Tensor& y) {
    add_step({node},
             seqpar::FusedLinearAndReducescatter{.linear = {.n = y.sizes[1], .k = x.sizes[1], .dtype = model_.dtype},
                                                 .transport = model_.dtype},
             {.x = x, .w = w, .y = y});
  }

  /// This rank's share of a weight: its rows are columns of the result. A rank has the same columns of a gate and of
  /// the values that it multiplies.
  Tensor weight(int node) {
    const Tensor whole = weights_.at(node_at(node).target + ".weight").tensor();
    const int64_t n = whole.sizes[0], k = whole.sizes[1];
    if (operand_share(node, 0) == Share::columns) {
      const int64_t part = own_part(node, k);
      const Tensor own = allocate(n, part, model_.dtype);
      copy_rows(whole, 0, rank_ * part, own);
      return own;
    }
    if (result_share(node) != Share::columns) return whole;
    const int64_t part = own_part(node, n);
    if (!is_gated(node)) return rows_of(whole, rank_ * part, part);
    const int64_t half = own_part(node, n / 2);
    const Tensor own = allocate(2 * half, k, model_.dtype);
    copy_rows(whole, rank_ * half, 0, rows_of(own, 0, half));
    copy_rows(whole, n / 2 + rank_ * half, 0, rows_of(own, half, half));
    return own;
  }

  bool is_gated(int node) const {
    return std::ranges::any_of(graph_.nodes, [&](const planner::Node& reader) {
      return planner::operator_name(reader).ends_with("_and_mul") && reader.inputs.front() == node;
    });
  }

  void add_gate(int node) {
    const Value x = bring(node, 0), y = make_result(node);
    if (x.share != y.share) refuse(node, "no kernel for this cut");
    const std::string name = planner::operator_name(node_at(node));
    const auto known = std::ranges::find(kActivationNames, name.substr(0, name.rfind("_and_mul")));
    if (known == kActivationNames.end()) refuse(node, "no kernel for this operator");
    const auto activation = static_cast<Activation>(known - kActivationNames.begin());
    add_step({node}, ActAndMul{.n = y.tensor.sizes[1], .dtype = model_.dtype, .activation = activation},
             {.x = x.tensor, .y = y.tensor});
  }

  void add_attention(int node) {
    if (model_.soft_cap != 0 || node_at(node).arguments.size() > node_at(node).inputs.size())
      refuse(node, "attention in a window, or capped");
    add_rotary(node);
    const Value q = bring(node, 0), k = bring(node, 1), v = bring(node, 2), out = make_result(node);
    if (q.share != out.share || k.share != out.share || v.share != out.share) refuse(node, "no kernel for this cut");
    const int64_t head_dim = shape_of(node)[3], heads = heads_of(node, q.share),
                  kv_heads = heads_of(node_at(node).inputs[1], k.share);
    if (q.share == Share::rows) {
      if (!strategy_of(node).name.ends_with("with gathered keys")) refuse(node, "no kernel for this cut");
      return add_step({node},
                      seqpar::ContextAttentionForward{.heads = heads,
                                                      .kv_heads = kv_heads,
                                                      .head_dim = head_dim,
                                                      .layout = layout_,
                                                      .scale = model_.attention_scale,
                                                      .dtype = model_.dtype},
                      {.q = q.tensor, .k = k.tensor, .v = v.tensor, .out = out.tensor});
    }
    const Tensor q_start = numbers({0, static_cast<int32_t>(length_)}), kv_start = numbers({0}),
                 kv_length = numbers({static_cast<int32_t>(length_)});
    add_step({node},
             AttentionForward{.heads = heads,
                              .kv_heads = kv_heads,
                              .head_dim = head_dim,
                              .scale = model_.attention_scale,
                              .dtype = model_.dtype},
             {as_heads(q.tensor, head_dim), as_heads(k.tensor, head_dim), as_heads(v.tensor, head_dim), q_start,
              kv_start, kv_length, as_heads(out.tensor, head_dim), allocate(length_, heads, DType::f32), length_});
  }

  /// Rotates queries and keys in place.
  void add_rotary(int attention) {
    const int of_q = node_at(attention).inputs[0], of_k = node_at(attention).inputs[1];
    for (const int node : {of_q, of_k}) {
      if (planner::operator_name(node_at(node)) != "rotary")
        refuse(attention, "queries or keys without rotary embedding");
      value_of(node) = bring(node, 0);
    }
    const Value &q = value_of(of_q), &k = value_of(of_k);
    if (q.share != k.share || q.share != result_share(of_q)) refuse(of_q, "queries and keys in different layouts");
    Rope rope = rope_of(model_, model_.kinds.front());
    rope.heads = heads_of(of_q, q.share);
    rope.kv_heads = heads_of(of_k, k.share);
    rope.dtype = model_.dtype;
    const Tensor queries = as_heads(q.tensor, rope.head_dim), keys = as_heads(k.tensor, rope.head_dim);
    const Tensor table = allocate(kRopeTableRows, rope.rotary_dim / 2, DType::i32);
    models::fill_rope_table(model_.kinds.front().rope, length_, table);
    add_step(
        {of_q, of_k}, rope,
        {.q = queries, .k = keys, .positions = positions(q.share), .table = table, .q_out = queries, .k_out = keys});
  }

  Tensor numbers(const std::vector<int32_t>& values) {
    const Tensor tensor = allocate(1, static_cast<int64_t>(values.size()), DType::i32);
    std::memcpy(tensor.data, values.data(), values.size() * sizeof(int32_t));
    return as_list(tensor);
  }
  Tensor positions(Share share) {
    std::vector<int32_t> values(static_cast<size_t>(own_rows(share)));
    if (share == Share::rows) seqpar::fill_positions(layout_, rank_, length_, ranks_, values);
    else std::iota(values.begin(), values.end(), 0);
    return numbers(values);
  }

  /// Rank 0 compiles first; the other ranks then find the binaries in the store. An error of one rank is thrown on all
  /// ranks, so that they stay in step.
  void compile() {
    if (rank_ > 0) fabric_.all_gather("");
    const auto problem = fabric::problem_in([&] {
      for (const PlannedStep& step : made_.steps_) engine_.prepare(step.workload);
    });
    if (rank_ == 0) fabric_.all_gather("");
    fabric::agree(fabric_, "a planned model", {}, problem);
  }

  /// Prepares the steps in the same order on every rank, because preparing is collective.
  void prepare() {
    compile();
    if (std::ranges::any_of(made_.steps_, &PlannedStep::communicates))
      made_.channel_ = std::make_unique<Channel>(fabric_, length_);
    std::map<std::string, const PlannedStep*> first;  // by operation and workload
    for (PlannedStep& step : made_.steps_) {
      const auto [place, is_new] = first.try_emplace(step.operation + step.workload.json(), &step);
      if (!is_new) {
        step.op_id = place->second->op_id;
        step.handle = place->second->handle;
      } else if (step.communicates) {
        step.op_id = made_.channel_->add_operation(step.operation);
        step.handle = seqpar::prepare_on_all(engine_, step.workload, step.shares, *made_.channel_, step.op_id);
      } else {
        step.handle = engine_.prepare(step.workload);
      }
    }
    for (PlannedStep& step : made_.steps_) {  // preparing may have given the channel other memory
      if (!step.communicates) continue;
      for (const Tensor& tensor : made_.channel_->tensors()) step.tensors.push_back(tensor);
    }
  }

  Engine& engine_;
  Fabric& fabric_;
  const Model& model_;
  const ModelWeights& weights_;
  PlannedModel& made_;
  std::vector<Value> values_;  ///< by node
  std::map<std::pair<int, Share>, Value> changed_;
};

PlannedModel::PlannedModel(Engine& engine, Fabric& fabric, const Model& model, const planner::Graph& graph,
                           const planner::Choices& choices, const ModelWeights& weights) {
  PlannedModelMaker(engine, fabric, model, graph, choices, weights, *this).run();
}

namespace {

int64_t position(bool has_rows, seqpar::RowLayout layout, int rank, int64_t row, int64_t length, int world_size) {
  return has_rows ? seqpar::position_of_row(layout, rank, row, length, world_size) : row;
}

}  // namespace

void PlannedModel::set_input(const Tensor& x) {
  for (int64_t row = 0; row < input_.sizes[0]; ++row)
    copy_rows(x, position(has_input_rows_, layout_, rank_, row, length_, world_size_), 0, rows_of(input_, row, 1));
}

int64_t PlannedModel::position_of(int64_t row) const {
  return position(has_result_rows_, layout_, rank_, row, length_, world_size_);
}

void PlannedModel::run_step(const PlannedStep& step) const {
  if (step.communicates) step.handle(step.tensors, step.length, {&step.op_id, 1});
  else step.handle(step.tensors, step.length);
}

void PlannedModel::run() const {
  for (const PlannedStep& step : steps_) run_step(step);
}

void PlannedModel::check() const {
  if (channel_) channel_->check();
}

}  // namespace seqtile::models

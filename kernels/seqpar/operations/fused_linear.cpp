// kernels/seqpar/operations/fused_linear.cpp -- see fused_linear.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/operations/fused_linear.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "jit/base/cdiv.h"
#include "jit/base/error.h"
#include "kernels/linear/linear_reference.h"
#include "kernels/op/row_kernel.h"
#include "kernels/op/typed_op.h"
#include "kernels/seqpar/exchange/fused_op.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "kernels/seqpar/patterns/allgather_linear.h"
#include "kernels/seqpar/patterns/linear_reduce.h"
#include "kernels/seqpar/patterns/product_tiles.h"
#include "kernels/seqpar/rank_call.h"

namespace seqtile::kernels::seqpar {

using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::Workload;
using linear_op::Tile;

namespace {

constexpr const char *kGather = "fused_allgather_and_linear", *kScatter = "fused_linear_and_reducescatter",
                     *kAllReduce = "linear_and_allreduce";

/// The product that every rank computes.
Linear product_of(const Workload& w) { return op_of<Linear>(w); }

bool is_gather(const Workload& w) { return w.operation == kGather; }
bool is_all_reduce(const Workload& w) { return w.operation == kAllReduce; }

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  read_rank_fields(reader);
  const auto product = read_fields<Linear>(reader);
  if (is_gather(given)) return reader.finish();
  reader.choice("transport", {"f32", "bf16", "f16"});
  reader.flag("norm");
  reader.number("eps", 1e-5, 0, 1);
  Workload result = reader.finish();
  if (product.n2) reader.refuse("n2", "needs to be 0: sums over ranks have one weight, or a gated pair");
  return result;
}

DType transport_of(const Workload& w) { return parse_dtype(w.fields.get_string("transport")).value(); }

NormEpilogue norm_of(const Workload& w) { return {w.fields.get_int("norm") != 0, w.fields.get_double("eps", 0)}; }

PartialShape partials_of(const Workload& w, const Config& c) {
  return partial_products(product_of(w), Tile::from(c), transport_of(w), norm_of(w));
}

/// The schema of linear, its sequence dimension cut for some tensors, the norm's tensors, and the channel.
Schema schema_of(const Workload& w) {
  Schema schema = kernels::schema_of(product_of(w)).schema;
  const char* rows = is_all_reduce(w) ? "length" : "own_rows";
  for (autotune::ArgSpec& arg : schema.args)
    if (is_gather(w) ? arg.name == "x" : arg.name == "residual" || arg.name == "y") arg.dims[0] = rows;
  if (!is_gather(w) && norm_of(w).is_there) {
    const int64_t n = w.fields.get_int("n");
    schema.args.push_back({"norm_weight", ArgRole::weight, w.dtype, {n}});
    schema.args.push_back({"normed", ArgRole::output, w.dtype, {rows, n}});
  }
  if (!is_all_reduce(w)) schema.symbols.push_back("own_rows");
  add_channel_args(schema);
  return schema;
}

int64_t most_rows_of_rank(const Workload& w, int64_t length) { return cdiv(length, world_size_of(w)); }

/// Tiles for so many rows of one rank, or of all.
std::vector<Tile> tiles_for(const Workload& w, int64_t rows, const Target& target) {
  const Linear product = product_of(w);
  const DType sent = is_gather(w) ? w.dtype : transport_of(w);
  const DType widest = dtype_bytes(sent) > dtype_bytes(w.dtype) ? sent : w.dtype;
  const bool keeps_residual = !is_gather(w) && product.residual && w.dtype == DType::f32;
  return with_room(product.tiles(w.threads, rows, portable(target), widest), product, keeps_residual);
}

/// A GPU computes whole tiles, those of each rank; in one shot those of all rows.
double predict_us(const Workload& w, const Config& config, int64_t length, const Target& target) {
  const Tile tile = Tile::from(config);
  if (target.is_gpu() && reduce_form(config) != ReduceForm::one_shot)
    length = world_size_of(w) * round_up(most_rows_of_rank(w, length), tile.block_m);
  return product_of(w).predict_us(tile, w.threads, length, portable(target));
}

/// One shot where the rows are few enough for it, first.
std::vector<std::string> reductions(const Workload& w, int64_t length) {
  const int64_t columns = w.fields.get_int("n") * (w.fields.get_int("gated") + 1);
  if (length <= most_one_shot_rows(transport_of(w), columns)) return {"one_shot", "two_shot"};
  return {"two_shot"};
}

/// Whether tiles may have rows of several ranks. Of more rows each rank fills tiles alone.
bool may_join(const Workload& w, int64_t length) {
  constexpr int64_t kMostRows = 512;
  return has_cpu_ranks(w) && world_size_of(w) > 1 && most_rows_of_rank(w, length) <= kMostRows;
}

/// Of few rows no chunk is complete before all are: then the weights are better read once, for all ranks' rows. A core
/// reads them again for each block of rows, beyond its cache; to a GPU it matters less than sending early.
std::vector<std::string> orders(const Workload& w, int64_t length, const Target& target) {
  const int64_t few_rows = target.is_gpu() ? 256 : 1024;  // of a rank
  if (most_rows_of_rank(w, length) <= few_rows) return {"interleave", "rotate"};
  return {"rotate", "interleave"};
}

Config reduce_config(const Workload& w, const Tile& tile, int64_t chunk_rows, const std::string& reduction,
                     const std::string& order) {
  Config config = tile.config();
  config.set("chunk_rows", round_up(chunk_rows, tile.block_m));
  if (!reduction.empty()) config.set("reduction", reduction);
  if (!order.empty()) config.set("order", order);
  if (order != "rotate" || is_all_reduce(w) || norm_of(w).is_there)
    config.set("sum_rows", std::min<int64_t>(tile.block_m, 8));
  return config;
}

/// Where tiles of one rank's rows follow those of the other chunk by chunk, a chunk is sent when it is complete; else
/// all of them are complete with the last columns, and only sums that go on to others are sent chunk by chunk.
std::vector<int64_t> chunks_of(const std::string& reduction, const std::string& order) {
  if (order == "rotate") return {256, 1024, 64};
  return reduction == "two_shot" ? std::vector<int64_t>{256, 64} : std::vector<int64_t>{256};
}

std::vector<Config> reduce_schedules(const Workload& w, int64_t length, const Tile& tile, const Target& target) {
  std::vector<Config> configs;
  for (const std::string& reduction : is_all_reduce(w) ? reductions(w, length) : std::vector<std::string>{""})
    for (const std::string& order : reduction == "one_shot" ? std::vector<std::string>{""} : orders(w, length, target))
      for (const int64_t chunk_rows : chunks_of(reduction, order))
        if (const Config config = reduce_config(w, tile, chunk_rows, reduction, order);
            std::ranges::find(configs, config) == configs.end())
          configs.push_back(config);
  return configs;
}

std::vector<Config> schedules_of(const Workload& w, int64_t length, const Tile& tile, const Target& target) {
  if (is_gather(w)) return gather_schedules(tile.config(), target, world_size_of(w), w.threads);
  return reduce_schedules(w, length, tile, target);
}

std::vector<Config> tile_configs(const Workload& w, int64_t length, const Target& target) {
  return configs_of(
      w.operation, target, tiles_for(w, most_rows_of_rank(w, length), target),
      [&](const Config& config) { return predict_us(w, config, length, target); },
      [&](const Tile& tile) { return schedules_of(w, length, tile, target); });
}

/// The tiles that linear has for the rows of all ranks. All chunks are complete with the last tile.
std::vector<Config> joined_configs(const Workload& w, int64_t length, const Target& target) {
  std::vector<Config> configs;
  if (!may_join(w, length) || target.is_gpu()) return configs;
  for (const Tile& tile : tiles_for(w, length, target))
    configs.push_back(is_gather(w) ? joined_schedule(tile.config(), push_programs(target, w.threads)[0])
                                   : reduce_config(w, tile, 256, is_all_reduce(w) ? "two_shot" : "", "join"));
  return configs;
}

autotune::ConfigSpace space_of(const Workload& w, int64_t length, const Target& target) {
  autotune::ConfigSpace space;
  for (Config& config : tile_configs(w, length, target)) space.add(std::move(config));
  for (Config& config : joined_configs(w, length, target)) space.add(std::move(config));
  return space;
}

Config default_of(const Workload& w, int64_t length, const Target& target) {
  return tile_configs(w, length, target).front();
}

autotune::OpDef::Tolerance tolerance_of(const Workload& w) {
  const int64_t num_sums = is_gather(w) ? 1 : world_size_of(w);
  autotune::OpDef::Tolerance result = tolerance(w.dtype, w.fields.get_int("k") * num_sums);
  const Linear s = product_of(w);
  if (s.tf32) result.absolute += kTf32Error * std::sqrt(static_cast<double>(num_sums));
  // Each partial sum is rounded, as are a gated pair's factors. They are normal with deviation 1; half of the spacing
  // of numbers below 4 in magnitude is one epsilon.
  if (!is_gather(w) && transport_of(w) != DType::f32)
    result.absolute +=
        storage_epsilon(transport_of(w)) * static_cast<double>(world_size_of(w) * (1 + w.fields.get_int("gated")));
  result.absolute *= std::max(1.0, std::abs(s.scale));
  if (is_gather(w)) return result;
  // The norm is that of y as it is stored.
  if (norm_of(w).is_there && w.dtype != DType::f32) result.relative += 0.75 * storage_epsilon(w.dtype);
  return result;
}

/// The exchange of a call on one process, with its presets.
ExchangeShape preset_exchange(const Workload& w, int64_t length) {
  ExchangeShape shape = linear_exchange(w);
  shape.presets_joined = is_gather(w) && may_join(w, length);
  return shape;
}

/// The parts that all three operations have in common.
autotune::OpDef base(const char* name, const char* summary) {
  autotune::OpDef op;
  op.version = 8;
  op.name = name;
  op.summary = summary;
  op.normalize = normalize;
  op.schema = schema_of;
  op.symbols = [](const Workload& w, int64_t length) {
    return symbols_of(w, length, !is_all_reduce(w), preset_exchange(w, length));
  };
  add_rank_call(op);
  op.predict_us = predict_us;
  op.config_space = space_of;
  op.default_config = default_of;
  op.fill = [](const Problem& p, size_t arg, uint64_t seed) {
    const Workload& w = *p.workload;
    return fill_channel_arg(p, arg, preset_exchange(w, p.symbols[0]), longest_rank(w), seed);
  };
  op.tolerance = [](const Workload& w, std::span<const int64_t>) { return tolerance_of(w); };
  op.cost = [](const Workload& w, std::span<const int64_t> symbols) { return cost_of(product_of(w), symbols[0]); };
  return op;
}

/// The parts that the operations that sum up have in common.
autotune::OpDef reduce_base(const char* name, const char* summary) {
  autotune::OpDef op = base(name, summary);
  op.version = 9;
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) {
    build_linear_reduce(b, product_of(w), Tile::from(c), ReduceSchedule::from(c), reduce_form(c), world_size_of(w),
                        transport_of(w), identity_of(w, c), norm_of(w));
  };
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    return {reduce_programs(partials_of(w, c), ReduceSchedule::from(c), reduce_form(c), world_size_of(w)), {}, {}};
  };
  op.workspaces = [](const Workload& w, const Config& c) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, num_counters(ReduceSchedule::from(c), reduce_form(c), world_size_of(w))}};
  };
  return op;
}

void gather_reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  const Linear s = product_of(w);
  std::vector<std::vector<double>> x;
  for (const int64_t row : rows) x.push_back(gathered_row(p, linear_exchange(w), p.tensors[0], row));
  const auto t = tensors_of(s, p.tensors);
  linear_op::reference_epilogue(s, t, rows, linear_op::reference_products(s, t, x), outputs);
}

/// The norm of outputs[0], row by row.
std::vector<double> reference_norm(const Problem& p, const std::vector<double>& y) {
  const auto& args = p.schema->args;
  const auto weight_arg = std::ranges::find(args, "norm_weight", &autotune::ArgSpec::name) - args.begin();
  const std::vector<double> weight = read_row(p.tensors[static_cast<size_t>(weight_arg)], 0);
  std::vector<double> normed;
  for (size_t row = 0; row < y.size(); row += weight.size()) {
    double squares = 0;
    for (size_t i = 0; i < weight.size(); ++i) squares += y[row + i] * y[row + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + norm_of(*p.workload).eps);
    for (size_t i = 0; i < weight.size(); ++i) normed.push_back(y[row + i] * scale * weight[i]);
  }
  return normed;
}

/// `rows` are those of y; `global` says which row of all ranks' rows such a row is.
void reduce_reference(const Problem& p, std::span<const int64_t> rows, int64_t first_of_y,
                      std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  const Linear s = product_of(w);
  const ExchangeShape exchange = linear_exchange(w);
  const int64_t first_own = first_row(longest_rank(w), p.symbols[0], world_size_of(w));
  std::vector<std::vector<double>> x;
  for (const int64_t row : rows) x.push_back(read_row(p.tensors[0], first_of_y + row));
  const auto t = tensors_of(s, p.tensors);
  auto sums = linear_op::reference_products(s, t, x);
  for (size_t r = 0; r < rows.size(); ++r)
    for (int source = 0; source < longest_rank(w) && first_of_y + rows[r] >= first_own; ++source) {
      const std::vector<double> partial = staged_row(p, exchange, 0, source, first_of_y + rows[r] - first_own);
      for (size_t e = 0; e < partial.size(); ++e) sums[e / s.n][r * s.n + e % s.n] += partial[e];
    }
  linear_op::reference_epilogue(s, t, rows, std::move(sums), outputs);
  if (norm_of(w).is_there) outputs.push_back(reference_norm(p, outputs[0]));
}

/// The result where all products are zero.
std::vector<double> idle_row(const Problem& p, int64_t row) {
  const Linear s = product_of(*p.workload);
  std::vector<std::vector<double>> zeros(static_cast<size_t>(s.num_weights())), outputs;
  for (auto& of_weight : zeros) of_weight.assign(static_cast<size_t>(s.n), 0.0);
  linear_op::reference_epilogue(s, tensors_of(s, p.tensors), {&row, 1}, std::move(zeros), outputs);
  return outputs[0];
}

/// The fields of an operation that sums up, from its argument struct.
template <class Op>
Workload reduce_workload(const char* name, const Op& op, const Ranks& ranks) {
  Workload w = Linear{.n = op.n,
                      .k = op.k,
                      .bias = op.bias,
                      .activation = op.activation,
                      .residual = op.residual,
                      .dtype = op.dtype,
                      .scale = op.scale}
                   .workload();
  w.operation = name;
  ranks.add_to(w.fields);
  w.fields.set("transport", std::string(dtype_name(op.transport)));
  w.fields.set("norm", int64_t{op.norm});
  w.fields.set("eps", op.eps);
  return w;
}

}  // namespace

ExchangeShape linear_exchange(const Workload& w, int64_t chunk_rows) {
  const Linear s = product_of(w);
  if (is_gather(w)) return gather_shape(s, world_size_of(w), 0, chunk_rows);
  const PartialShape partials{0, 0, s.n, s.weights_per_loop(), transport_of(w), s.dtype};
  return reduce_shape(partials, is_all_reduce(w) ? ReduceForm::two_shot : ReduceForm::scatter, world_size_of(w), 0,
                      chunk_rows);
}

Workload FusedAllgatherAndLinear::workload(const Ranks& ranks) const {
  Workload w = Linear{.n = n,
                      .n2 = n2,
                      .n3 = n3,
                      .k = k,
                      .bias = bias,
                      .activation = activation,
                      .gated = gated,
                      .dtype = dtype,
                      .scale = scale,
                      .soft_cap = soft_cap}
                   .workload();
  w.operation = kGather;
  ranks.add_to(w.fields);
  return w;
}

Workload FusedLinearAndReducescatter::workload(const Ranks& ranks) const {
  return reduce_workload(kScatter, *this, ranks);
}

Workload LinearAndAllreduce::workload(const Ranks& ranks) const { return reduce_workload(kAllReduce, *this, ranks); }

autotune::OpDef fused_allgather_and_linear() {
  autotune::OpDef op = base(kGather, "gather(x) w^T with linear's epilogue, in one launch of each rank");
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) {
    build_allgather_linear(b, product_of(w), Tile::from(c), GatherSchedule::from(c), world_size_of(w),
                           identity_of(w, c));
  };
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    return {gather_programs(product_of(w), Tile::from(c), GatherSchedule::from(c), world_size_of(w)), {}, {}};
  };
  op.workspaces = [](const Workload&, const Config&) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, {1}}};
  };
  op.reference = gather_reference;
  return op;
}

autotune::OpDef fused_linear_and_reducescatter() {
  autotune::OpDef op = reduce_base(kScatter, "own rows of the sum over ranks of x w^T, in one launch of each");
  op.reference = [](const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
    const Workload& w = *p.workload;
    reduce_reference(p, rows, first_row(longest_rank(w), p.symbols[0], world_size_of(w)), outputs);
  };
  return op;
}

autotune::OpDef linear_and_allreduce() {
  autotune::OpDef op = reduce_base(kAllReduce, "the sum over ranks of x w^T on every rank, in one launch of each");
  op.fill = [](const Problem& p, size_t arg, uint64_t seed) {
    return fill_all_reduce_arg(p, arg, linear_exchange(*p.workload), seed,
                               [&](int64_t row) { return idle_row(p, row); });
  };
  op.reference = [](const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
    reduce_reference(p, rows, 0, outputs);
  };
  return op;
}

}  // namespace seqtile::kernels::seqpar

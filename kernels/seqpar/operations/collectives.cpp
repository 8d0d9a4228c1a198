// kernels/seqpar/operations/collectives.cpp -- see collectives.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/operations/collectives.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "jit/abi/channel_block.h"
#include "jit/base/error.h"
#include "kernels/op/row_kernel.h"
#include "kernels/op/tensor_values.h"
#include "kernels/op/tolerance.h"
#include "kernels/seqpar/exchange/fused_op.h"
#include "kernels/seqpar/exchange/heads.h"
#include "kernels/seqpar/exchange/reduction.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "kernels/seqpar/rank_call.h"

namespace seqtile::kernels::seqpar {

using autotune::ArgRole;
using autotune::Config;
using autotune::Dim;
using autotune::Problem;
using autotune::Schema;
using autotune::Workload;

namespace {

bool is_sum(const Workload& w) { return w.operation == "reduce_scatter" || w.operation == "all_reduce"; }
bool is_all_to_all(const Workload& w) { return w.operation == "all_to_all"; }
bool is_broadcast(const Workload& w) { return w.operation == "broadcast"; }

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  read_rank_fields(reader);
  if (is_all_to_all(given)) {
    reader.required("heads", 1, kMaxHeads);
    reader.required("head_dim", 1, kMaxFeatures / kMaxHeads);
    reader.choice("direction", {"to_heads", "to_sequence"});
  } else {
    reader.required("n", 1, kMaxFeatures);
  }
  if (is_broadcast(given)) {
    const int64_t root = reader.integer("root", 0, 0, channel::kMaxRanks - 1);
    if (root >= given.fields.get_int("world_size")) reader.refuse("root", "needs to be a rank, below world_size");
  }
  return reader.finish();
}

// --- all-to-all: who has which columns

bool to_heads(const Workload& w) { return w.fields.get_string("direction") == "to_heads"; }

// --- shapes

Schema schema_of(const Workload& w) {
  Schema schema;
  const bool has_cut_x = w.operation == "all_gather" || (is_all_to_all(w) && to_heads(w));
  const bool has_cut_y = w.operation == "reduce_scatter" || (is_all_to_all(w) && !to_heads(w));
  Dim x_columns = 0, y_columns = 0;
  if (is_all_to_all(w)) {
    const Heads heads(w);
    const Dim own = heads.own_columns();
    x_columns = to_heads(w) ? Dim(heads.all_columns()) : own;
    y_columns = to_heads(w) ? own : Dim(heads.all_columns());
  } else {
    x_columns = y_columns = Dim(w.fields.get_int("n"));
  }
  schema.args.push_back({"x", ArgRole::input, w.dtype, {has_cut_x ? "own_rows" : "length", x_columns}});
  schema.args.push_back({"y", ArgRole::output, w.dtype, {has_cut_y ? "own_rows" : "length", y_columns}});
  if (w.operation == "all_gather" || is_broadcast(w)) schema.args.back().in_place = {"x"};
  if (has_cut_x || has_cut_y) schema.symbols.push_back("own_rows");
  if (is_all_to_all(w) && !Heads(w).is_even()) schema.symbols.push_back("own_columns");
  add_channel_args(schema);
  return schema;
}

std::vector<int64_t> symbols(const Workload& w, int64_t length) {
  std::vector<int64_t> values{length};
  for (const std::string& symbol : schema_of(w).symbols) {
    if (symbol == "own_rows") values.push_back(own_rows(w, length));
    if (symbol == "own_columns") values.push_back(Heads(w).columns(longest_rank(w)));
  }
  add_channel_symbols(values, collective_exchange(w), length);
  return values;
}

PartialShape partials_of(const Workload& w) {
  const int64_t n = w.fields.get_int("n");
  const CopyTile tile = copy_tile(n);
  return {tile.rows, (n + tile.columns - 1) / tile.columns, n, 1, w.dtype, w.dtype};
}

TransferShape transfer_shape(const Workload& w, const Config& c, int64_t identity) {
  const TransferSchedule schedule = TransferSchedule::from(c);
  if (schedule.way == Transfer::pull && is_all_to_all(w))
    throw Error(ErrorCode::invalid_argument, "transfer = pull: all_to_all gives every rank other rows; leave it out");
  ExchangeShape exchange = with_transfer(collective_exchange(w, schedule.chunk_rows), schedule.way);
  exchange.identity = identity;
  return {exchange, is_broadcast(w)};
}

// --- configurations

constexpr int64_t kChunkBytes[] = {256 << 10, 64 << 10, 1 << 20}, kSmallestChunkBytes = 64 << 10;

/// A chunk's rows; a multiple of what is copied at once.
int64_t chunk_rows_of(const Workload& w, int64_t bytes) {
  const int64_t columns = is_all_to_all(w) ? Heads(w).most_columns() : w.fields.get_int("n");
  const int64_t rows = std::max<int64_t>(bytes / (columns * dtype_bytes(w.dtype)), 1);
  return std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows))), 8, 4096);
}

std::vector<int64_t> chunk_sizes(const Workload& w) {
  std::vector<int64_t> sizes;
  for (const int64_t bytes : kChunkBytes)
    if (const int64_t rows = chunk_rows_of(w, bytes); std::ranges::find(sizes, rows) == sizes.end())
      sizes.push_back(rows);
  return sizes;
}

std::vector<Config> configs_of(const Workload& w, int64_t length, const Target& target) {
  std::vector<std::string> reductions{""};
  if (w.operation == "all_reduce") {
    reductions = {"two_shot"};
    if (length <= most_one_shot_rows(w.dtype, w.fields.get_int("n"))) reductions = {"one_shot", "two_shot"};
  }
  // A few programs for each core, or multiprocessor, are enough to keep memory busy.
  const std::vector<int64_t> push_programs = target.is_gpu() ? std::vector<int64_t>{32, 8, 128}
                                             : w.threads > 1 ? std::vector<int64_t>{w.threads, 1}
                                                             : std::vector<int64_t>{1};
  const bool can_pull = !is_sum(w) && !is_all_to_all(w) && may_pull(target, world_size_of(w));
  std::vector<Config> configs;
  const auto add = [&](const std::string& reduction, bool is_pulled, int64_t chunk_rows, int64_t programs) {
    Config config{{"chunk_rows", chunk_rows}};
    if (is_pulled) config.set("transfer", std::string("pull"));
    if (!is_sum(w)) config.set("push_programs", programs);
    if (w.operation == "all_reduce") config.set("sum_rows", copy_tile(w.fields.get_int("n")).rows);
    if (!reduction.empty()) config.set("reduction", reduction);
    if (target.is_gpu()) config.set("num_warps", int64_t{8});
    configs.push_back(std::move(config));
  };
  for (const std::string& reduction : reductions)
    for (const bool is_pulled : can_pull ? std::vector{false, true} : std::vector{false})
      for (const int64_t chunk_rows : chunk_sizes(w))
        for (const int64_t programs : is_sum(w) ? std::vector<int64_t>{0} : push_programs)
          add(reduction, is_pulled, chunk_rows, programs);
  return configs;
}

double predict_us(const Workload& w, const Config& config, int64_t length, const Target& target) {
  const std::vector<Config> configs = configs_of(w, length, target);
  return static_cast<double>(std::ranges::find(configs, config) - configs.begin());
}

// --- kernels

void build_sum(KernelBuilder& b, const Workload& w, const Config& c) {
  const int64_t n = w.fields.get_int("n");
  const ReduceForm form = reduce_form(c);
  Var x = b.view("x", w.dtype, {kDynamic, n}), y = b.view("y", w.dtype, {kDynamic, n});
  const ChannelViews channel = declare_channel(b);
  const auto rows_of = [&](Var view, Var first, Var end) { return b.slice(view, {first, 0}, {end, n}); };
  ReduceBody body;
  body.partial = [&](Var first, Var end, Var row, Var column_block) {
    const CopyTile tile = copy_tile(n);
    Var column = column_block * tile.columns;
    return ReduceBody::Tile{column, {b.load(rows_of(x, first, end), {row, column}, {tile.rows, tile.columns})}};
  };
  body.result = [&](Var, Var, Var, Var, std::vector<Var> sums) { return to_storage(b, sums[0], w.dtype); };
  body.outputs = [&](Var first, Var end) {
    return std::vector{rows_of(y, form == ReduceForm::scatter ? b.constant(DType::i64, int64_t{0}) : first, end)};
  };
  build_reduction(b, partials_of(w), ReduceSchedule::from(c), form, world_size_of(w), identity_of(w, c), channel,
                  b.size(x, 0), body);
}

void build_move(KernelBuilder& b, const Workload& w, const Config& c) {
  const int64_t n = w.fields.get_int("n");
  Var x = b.view("x", w.dtype, {kDynamic, n}), y = b.view("y", w.dtype, {kDynamic, n});
  const ChannelViews channel = declare_channel(b);
  TransferBody body;
  body.output = [&](Exchange&) { return y; };
  body.given = [&](Exchange& ex, Var) { return b.slice(x, {0, 0}, {ex.segment_rows(0, ex.rank(), ex.rank()), n}); };
  body.place = [&](Exchange& ex, Var source) {
    Var first = is_broadcast(w) ? b.constant(DType::i64, int64_t{0}) : ex.first_row(source);
    return b.slice(y, {first, 0}, {ex.segment_rows(0, ex.rank(), source), n});
  };
  build_transfer(b, transfer_shape(w, c, identity_of(w, c)), TransferSchedule::from(c), channel, b.size(y, 0), body);
}

void build_all_to_all(KernelBuilder& b, const Workload& w, const Config& c) {
  const Heads heads(w);
  const int64_t all = heads.all_columns(), own = heads.is_even() ? heads.most_columns() : kDynamic;
  const bool by_heads = to_heads(w);
  Var x = b.view("x", w.dtype, {kDynamic, by_heads ? all : own}),
      y = b.view("y", w.dtype, {kDynamic, by_heads ? own : all});
  const ChannelViews channel = declare_channel(b);
  /// In the tensor of all columns those of `rank`'s heads, in the other one the rows of `rank`.
  const auto columns_of = [&](Var view, Var rank, Var rows) {
    return b.slice(view, {0, heads.first(rank)}, {rows, heads.columns(b, rank)});
  };
  const auto rows_of = [&](Exchange& ex, Var view, Var rank) {
    return b.slice(view, {ex.first_row(rank), 0}, {ex.num_rows(rank), heads.columns(b, ex.rank())});
  };
  TransferBody body;
  body.output = [&](Exchange& ex) { return by_heads ? y : b.slice(y, {0, 0}, {ex.num_rows(ex.rank()), all}); };
  body.given = [&](Exchange& ex, Var peer) {
    return by_heads ? columns_of(x, peer, ex.num_rows(ex.rank())) : rows_of(ex, x, peer);
  };
  body.place = [&](Exchange& ex, Var source) {
    return by_heads ? rows_of(ex, y, source) : columns_of(y, source, ex.num_rows(ex.rank()));
  };
  build_transfer(b, transfer_shape(w, c, identity_of(w, c)), TransferSchedule::from(c), channel,
                 b.size(by_heads ? y : x, 0), body);
}

// --- references

void sum_reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  const ExchangeShape exchange = collective_exchange(w);
  const int64_t first_own = first_row(longest_rank(w), p.symbols[0], world_size_of(w));
  const int64_t first_of_y = w.operation == "reduce_scatter" ? first_own : 0;
  outputs.assign(1, {});
  for (const int64_t row : rows) {
    std::vector<double> sum = read_row(p.tensors[0], first_of_y + row);
    for (int source = 0; source < longest_rank(w) && first_of_y + row >= first_own; ++source) {
      const std::vector<double> partial = staged_row(p, exchange, 0, source, first_of_y + row - first_own);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += partial[i];
    }
    outputs[0].insert(outputs[0].end(), sum.begin(), sum.end());
  }
}

/// Row `row` of what the longest rank gets from `source`, its own part included.
std::vector<double> moved_row(const Problem& p, int source, int64_t row) {
  const Workload& w = *p.workload;
  const int self = longest_rank(w);
  if (source != self) {
    std::vector<double> staged = staged_row(p, collective_exchange(w), 0, source, row);
    if (is_all_to_all(w)) staged.resize(static_cast<size_t>(Heads(w).columns(to_heads(w) ? self : source)));
    return staged;
  }
  if (!is_all_to_all(w)) return read_row(p.tensors[0], row);
  const Heads heads(w);
  const bool by_heads = to_heads(w);
  const auto x = read_row(p.tensors[0], by_heads ? row : row + first_row(self, p.symbols[0], world_size_of(w)));
  const auto first = x.begin() + (by_heads ? heads.first(self) : 0);
  return {first, first + heads.columns(self)};
}

void move_reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  outputs.assign(1, {});
  const auto append = [&](int source, int64_t row) {
    const std::vector<double> values = moved_row(p, source, row);
    outputs[0].insert(outputs[0].end(), values.begin(), values.end());
  };
  for (const int64_t row : rows) {
    if (is_broadcast(w)) {
      append(static_cast<int>(w.fields.get_int("root")), row);
    } else if (is_all_to_all(w) && !to_heads(w)) {
      for (int source = 0; source < world_size_of(w); ++source) append(source, row);
    } else {
      const RowPlace place = place_of_row(row, p.symbols[0], world_size_of(w));
      append(place.rank, place.row);
    }
  }
}

// --- definitions

autotune::OpDef base(const char* name, const char* summary) {
  autotune::OpDef op;
  op.version = 7;
  op.name = name;
  op.summary = summary;
  op.normalize = normalize;
  op.schema = schema_of;
  op.symbols = symbols;
  add_rank_call(op);
  op.predict_us = predict_us;
  op.config_space = [](const Workload& w, int64_t length, const Target& target) {
    autotune::ConfigSpace space;
    for (Config& config : configs_of(w, length, target)) space.add(std::move(config));
    return space;
  };
  op.default_config = [](const Workload& w, int64_t length, const Target& target) {
    return configs_of(w, length, target).front();
  };
  op.fill = [](const Problem& p, size_t arg, uint64_t seed) {
    const Workload& w = *p.workload;
    return fill_channel_arg(p, arg, collective_exchange(w), longest_rank(w), seed);
  };
  op.cost = [](const Workload& w, std::span<const int64_t> symbols) {
    const int64_t n = is_all_to_all(w) ? Heads(w).most_columns() : w.fields.get_int("n");
    const double bytes = static_cast<double>(symbols[0] * n * dtype_bytes(w.dtype));
    return autotune::Cost{is_sum(w) ? static_cast<double>(symbols[0] * n * world_size_of(w)) : 0, bytes, bytes};
  };
  op.tolerance = [](const Workload& w, std::span<const int64_t>) {
    return is_sum(w) ? tolerance(w.dtype, world_size_of(w)) : autotune::OpDef::Tolerance{0, 0};
  };
  return op;
}

autotune::OpDef sum_base(const char* name, const char* summary) {
  autotune::OpDef op = base(name, summary);
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) { build_sum(b, w, c); };
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    return {reduce_programs(partials_of(w), ReduceSchedule::from(c), reduce_form(c), world_size_of(w)), {}, {}};
  };
  op.workspaces = [](const Workload& w, const Config& c) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, num_counters(ReduceSchedule::from(c), reduce_form(c), world_size_of(w))}};
  };
  op.reference = sum_reference;
  return op;
}

autotune::OpDef move_base(const char* name, const char* summary) {
  autotune::OpDef op = base(name, summary);
  op.version = 8;
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) {
    is_all_to_all(w) ? build_all_to_all(b, w, c) : build_move(b, w, c);
  };
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    return {transfer_programs(transfer_shape(w, c, 0), TransferSchedule::from(c)), {}, {}};
  };
  op.workspaces = [](const Workload&, const Config&) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, {1}}};
  };
  op.reference = move_reference;
  return op;
}

Workload workload_of(const char* name, const Collective& c, const Ranks& ranks) {
  Workload w{name, c.dtype, 1, {{"n", c.n}}};
  ranks.add_to(w.fields);
  return w;
}

}  // namespace

ExchangeShape collective_exchange(const Workload& w, int64_t chunk_rows) {
  using Rows = PhaseShape::Rows;
  const int world_size = world_size_of(w);
  if (w.operation == "reduce_scatter")
    return reduce_shape(partials_of(w), ReduceForm::scatter, world_size, 0, chunk_rows);
  if (w.operation == "all_reduce") return reduce_shape(partials_of(w), ReduceForm::two_shot, world_size, 0, chunk_rows);
  PhaseShape phase{Rows::of_source, w.dtype, 0, chunk_rows};
  phase.columns = is_all_to_all(w) ? Heads(w).most_columns() : w.fields.get_int("n");
  if (is_all_to_all(w) && !to_heads(w)) phase.rows = Rows::of_owner;
  if (is_broadcast(w)) {
    phase.rows = Rows::of_root;
    phase.root = static_cast<int>(w.fields.get_int("root"));
  }
  return {world_size, 0, {phase}};
}

ExchangeShape collective_exchange(const Workload& w) {
  return collective_exchange(w, chunk_rows_of(w, kSmallestChunkBytes));
}

Workload AllGather::workload(const Ranks& ranks) const { return workload_of("all_gather", *this, ranks); }
Workload ReduceScatter::workload(const Ranks& ranks) const { return workload_of("reduce_scatter", *this, ranks); }
Workload AllReduce::workload(const Ranks& ranks) const { return workload_of("all_reduce", *this, ranks); }

Workload Broadcast::workload(const Ranks& ranks) const {
  Workload w = workload_of("broadcast", *this, ranks);
  w.fields.set("root", int64_t{root});
  return w;
}

Workload AllToAll::workload(const Ranks& ranks) const {
  return {"all_to_all",
          dtype,
          1,
          {{"heads", heads},
           {"head_dim", head_dim},
           {"direction", std::string(to_heads ? "to_heads" : "to_sequence")},
           {"world_size", int64_t{ranks.world_size}},
           {"fabric", ranks.fabric}}};
}

autotune::OpDef all_gather() { return move_base("all_gather", "the rows of all ranks on every rank"); }
autotune::OpDef all_to_all() { return move_base("all_to_all", "rows of all heads against all rows of some heads"); }
autotune::OpDef broadcast() { return move_base("broadcast", "the root's rows on every rank"); }
autotune::OpDef reduce_scatter() { return sum_base("reduce_scatter", "own rows of the sum over ranks"); }

autotune::OpDef all_reduce() {
  autotune::OpDef op = sum_base("all_reduce", "the sum over ranks on every rank");
  op.fill = [](const Problem& p, size_t arg, uint64_t seed) {
    const auto columns = static_cast<size_t>(p.workload->fields.get_int("n"));
    return fill_all_reduce_arg(p, arg, collective_exchange(*p.workload), seed,
                               [&](int64_t) { return std::vector<double>(columns, 0.0); });
  };
  return op;
}

}  // namespace seqtile::kernels::seqpar

// kernels/seqpar/operations/alltoall_linear.cpp -- see alltoall_linear.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: those that send each rank its rows, this one's own too, chunk by chunk; the tiles of own rows,
// which await the chunks of all ranks; one that awaits the rest.
#include "kernels/seqpar/operations/alltoall_linear.h"

#include <algorithm>

#include <fmt/format.h>

#include "jit/base/error.h"
#include "kernels/linear/linear_reference.h"
#include "kernels/linear/linear_tile.h"
#include "kernels/op/row_kernel.h"
#include "kernels/op/tensor_values.h"
#include "kernels/op/tolerance.h"
#include "kernels/seqpar/exchange/heads.h"
#include "kernels/seqpar/exchange/transfer.h"
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

constexpr const char* kName = "fused_alltoall_and_linear";

/// The product of a rank's rows.
Linear product_of(const Workload& w) {
  return {.n = w.fields.get_int("n"),
          .k = Heads(w).all_columns(),
          .bias = w.fields.get_int("bias") != 0,
          .activation = parse_activation(w.fields.get_string("activation")),
          .residual = w.fields.get_int("residual") != 0,
          .dtype = w.dtype};
}

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  read_rank_fields(reader);
  reader.required("heads", 1, kMaxHeads);
  reader.required("head_dim", 1, kMaxFeatures / kMaxHeads);
  reader.required("n", 1, kMaxFeatures);
  reader.choice("activation", {"none", "silu", "gelu", "gelu_tanh"});
  for (const char* name : {"bias", "residual"}) reader.flag(name);
  return reader.finish();
}

/// The schema of linear, with this rank's columns of x and its rows of everything else.
Schema schema_of(const Workload& w) {
  const Heads heads(w);
  Schema schema = kernels::schema_of(product_of(w)).schema;
  for (autotune::ArgSpec& arg : schema.args)
    if (arg.name == "x") arg.dims[1] = heads.own_columns();
    else if (arg.role != ArgRole::weight) arg.dims[0] = "own_rows";
  schema.symbols.push_back("own_rows");
  if (!heads.is_even()) schema.symbols.push_back("own_columns");
  add_channel_args(schema);
  return schema;
}

std::vector<int64_t> symbols(const Workload& w, int64_t length) {
  std::vector<int64_t> values{length, own_rows(w, length)};
  if (const Heads heads(w); !heads.is_even()) values.push_back(heads.columns(longest_rank(w)));
  add_channel_symbols(values, alltoall_linear_exchange(w), length);
  return values;
}

// --- configurations: linear's tiles for a rank's rows

int64_t rows_of_rank(const Workload& w, int64_t length) {
  return std::max<int64_t>(1, most_rows(RowLayout::contiguous, length, world_size_of(w)));
}

std::vector<Tile> tiles_for(const Workload& w, int64_t length, const Target& target) {
  const Linear product = product_of(w);
  return with_room(product.tiles(w.threads, rows_of_rank(w, length), portable(target)), product, product.residual);
}

double predict_us(const Workload& w, const Config& config, int64_t length, const Target& target) {
  return product_of(w).predict_us(Tile::from(config), w.threads, rows_of_rank(w, length), portable(target));
}

std::vector<Config> tile_configs(const Workload& w, int64_t length, const Target& target) {
  return configs_of(
      w.operation, target, tiles_for(w, length, target),
      [&](const Config& config) { return predict_us(w, config, length, target); },
      [&](const Tile& tile) {
        return transfer_schedules(tile.config(), {"", "serial"}, push_programs(target, w.threads), false);
      });
}

autotune::ConfigSpace space_of(const Workload& w, int64_t length, const Target& target) {
  autotune::ConfigSpace space;
  for (Config& config : tile_configs(w, length, target)) space.add(std::move(config));
  return space;
}

Config default_of(const Workload& w, int64_t length, const Target& target) {
  return tile_configs(w, length, target).front();
}

// --- the kernel

class Builder {
 public:
  Builder(KernelBuilder& b, const Workload& w, const Config& c)
      : b_(b),
        s_(product_of(w)),
        t_(Tile::from(c)),
        heads_(w),
        world_size_(world_size_of(w)),
        schedule_(TransferSchedule::from(c)),
        v_(s_, views_of(s_, b, {.x = own_columns(b, w)})),
        channel_(declare_channel(b)),
        ex_(b, reduce_scatter_protocol(), exchange(w, c), channel_.block, channel_.counters, channel_.number,
            b.size(v_.x, 0)) {}

  void build() {
    Var row_blocks = b_.cdiv(b_.size(v_.x, 0), world_size_ * t_.block_m);
    Var tiles = row_blocks * linear_op::column_blocks(s_, t_.block_n);
    Var id = b_.program_id(0), tile = id - schedule_.push_programs;
    b_.when(
        id < schedule_.push_programs, [&] { ex_.role("produce", [&] { push(id); }); },
        [&] {
          b_.when(
              tile < tiles, [&] { ex_.role("sum", [&] { compute(tile, row_blocks); }); },
              [&] { b_.when(b_.compare(Compare::eq, tile, tiles), [&] { ex_.last_role(); }); });
        });
    ex_.leave({own_rows_of(v_.y[0])});
  }

 private:
  Var own_columns(KernelBuilder& b, const Workload& w) const {
    return b.view("x", w.dtype, {kDynamic, heads_.is_even() ? heads_.most_columns() : kDynamic});
  }

  static ExchangeShape exchange(const Workload& w, const Config& c) {
    ExchangeShape shape = alltoall_linear_exchange(w, c.get_int("chunk_rows"));
    shape.identity = identity_of(w, c);
    return shape;
  }

  Var own_rows_of(Var view) { return b_.slice(view, {0, 0}, {ex_.num_rows(ex_.rank()), s_.n}); }

  void push(Var program) {
    push_rows(b_, ex_, world_size_, program, schedule_, [&](Var peer) {
      Var rows = b_.slice(v_.x, {ex_.first_row(peer), 0}, {ex_.num_rows(peer), heads_.columns(b_, ex_.rank())});
      return std::vector{Part{rows, heads_.first(ex_.rank())}};
    });
  }

  void compute(Var tile, Var row_blocks) {
    // Tiles of one block of columns follow each other: its weights stay in the cache.
    Var row = tile % row_blocks * t_.block_m, column = tile / row_blocks * t_.block_n;
    Var rows = ex_.num_rows(ex_.rank());
    Var first = schedule_.is_serial ? b_.constant(DType::i64, int64_t{0}) : row / schedule_.chunk_rows;
    Var last = b_.cdiv(schedule_.is_serial ? rows : b_.min(row + t_.block_m, rows), schedule_.chunk_rows);
    Var good = b_.for_loop(0, world_size_, 1, {row < rows}, [&](Var i, std::vector<Var> before) {
      return b_.if_then(
          before[0], [&] { return std::vector{ex_.await(0, ex_.peer(i), first, last, tile)}; }, [&] { return before; });
    })[0];
    b_.when(good, [&] {
      linear_op::Operands v = v_;
      v.x = ex_.source(0, ex_.rank(), rows);
      const std::vector<Var> sums = linear_op::multiply(b_, s_, t_, v, row, column);
      for (Var* view : {&v.y[0], &v.residual})
        if (view->value()) *view = own_rows_of(*view);
      linear_op::store_result(b_, s_, v, row, column, sums);
    });
  }

  KernelBuilder& b_;
  const Linear s_;
  const Tile t_;
  const Heads heads_;
  const int world_size_;
  const TransferSchedule schedule_;
  linear_op::Operands v_;
  ChannelViews channel_;
  Exchange ex_;
};

// --- the call that is measured and verified: that of the longest rank

/// All columns of one of its rows.
std::vector<double> whole_row(const Problem& p, int64_t row) {
  const Workload& w = *p.workload;
  const Heads heads(w);
  const int self = longest_rank(w);
  std::vector<double> whole = staged_row(p, alltoall_linear_exchange(w), 0, 0, row);
  std::ranges::copy(read_row(p.tensors[0], first_row(self, p.symbols[0], world_size_of(w)) + row),
                    whole.begin() + heads.first(self));
  return whole;
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Linear s = product_of(*p.workload);
  const auto t = tensors_of(s, p.tensors);
  std::vector<std::vector<double>> x;
  for (const int64_t row : rows) x.push_back(whole_row(p, row));
  linear_op::reference_epilogue(s, t, rows, linear_op::reference_products(s, t, x), outputs);
}

}  // namespace

ExchangeShape alltoall_linear_exchange(const Workload& w, int64_t chunk_rows) {
  PhaseShape phase{PhaseShape::Rows::shared, w.dtype, Heads(w).all_columns(), chunk_rows};
  phase.column_group = Heads(w).head_dim;
  return {world_size_of(w), 0, {phase}};
}

Workload FusedAlltoallAndLinear::workload(const Ranks& ranks) const {
  return {kName,
          dtype,
          1,
          {{"heads", heads},
           {"head_dim", head_dim},
           {"n", n},
           {"bias", int64_t{bias}},
           {"activation", std::string(activation_name(activation))},
           {"residual", int64_t{residual}},
           {"world_size", int64_t{ranks.world_size}},
           {"fabric", ranks.fabric}}};
}

autotune::OpDef fused_alltoall_and_linear() {
  autotune::OpDef op;
  op.version = 5;
  op.name = kName;
  op.summary = "own rows of x w^T from own heads of all rows, in one launch of each rank";
  op.normalize = normalize;
  op.schema = schema_of;
  op.symbols = symbols;
  add_rank_call(op);
  op.config_space = space_of;
  op.default_config = default_of;
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) { Builder(b, w, c).build(); };
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    const Tile t = Tile::from(c);
    return {autotune::SizeExpr{linear_op::column_blocks(product_of(w), t.block_n),
                               {{0, world_size_of(w) * t.block_m}},
                               TransferSchedule::from(c).push_programs + 1},
            {},
            {}};
  };
  op.workspaces = [](const Workload&, const Config&) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, {1}}};
  };
  op.predict_us = predict_us;
  op.fill = [](const Problem& p, size_t arg, uint64_t seed) {
    return fill_channel_arg(p, arg, alltoall_linear_exchange(*p.workload), longest_rank(*p.workload), seed);
  };
  op.reference = reference;
  op.cost = [](const Workload& w, std::span<const int64_t> symbols) {
    return cost_of(product_of(w), own_rows(w, symbols[0]));
  };
  op.tolerance = [](const Workload& w, std::span<const int64_t>) { return tolerance(w.dtype, Heads(w).all_columns()); };
  return op;
}

}  // namespace seqtile::kernels::seqpar

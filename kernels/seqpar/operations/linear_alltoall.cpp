// kernels/seqpar/operations/linear_alltoall.cpp -- see linear_alltoall.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: the tiles of what rank + 1 gets, of what rank + 2 gets, ..., whose last one of a chunk publishes
// it; the own tiles, while those are under way; those that take over what has come; one that awaits the rest. In the
// staging a row of a source has the receiver's columns of queries, keys and values side by side.
#include "kernels/seqpar/operations/linear_alltoall.h"

#include <algorithm>
#include <array>

#include "jit/base/cdiv.h"
#include "kernels/linear/linear_reference.h"
#include "kernels/linear/linear_tile.h"
#include "kernels/op/row_kernel.h"
#include "kernels/op/tensor_values.h"
#include "kernels/op/tolerance.h"
#include "kernels/seqpar/exchange/chunked_tiles.h"
#include "kernels/seqpar/exchange/heads.h"
#include "kernels/seqpar/exchange/program_kinds.h"
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

constexpr const char* kName = "fused_linear_and_alltoall";
constexpr int kNumWeights = 3;  ///< of queries, keys and values

Linear product(const Workload& w, int64_t columns, int64_t kv_columns) {
  return {.n = columns,
          .n2 = kv_columns,
          .n3 = kv_columns,
          .k = w.fields.get_int("k"),
          .bias = w.fields.get_int("bias") != 0,
          .dtype = w.dtype};
}
/// Of all heads, and of those that one rank gets.
Linear whole_product(const Workload& w) {
  const GroupedHeads heads(w);
  return product(w, heads.all_columns(false), heads.all_columns(true));
}
Linear product_of(const Workload& w) {
  const GroupedHeads heads(w);
  return product(w, heads.most_columns(false), heads.most_columns(true));
}

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  read_rank_fields(reader);
  const int64_t heads = reader.required("heads", 1, kMaxHeads), kv_heads = reader.required("kv_heads", 1, kMaxHeads);
  if (heads % kv_heads)
    reader.refuse("kv_heads",
                  "must divide heads (" + std::to_string(heads) + "): equally many query heads share a key head");
  reader.required("head_dim", 1, kMaxFeatures / kMaxHeads);
  reader.required("k", 1, kMaxFeatures);
  reader.flag("bias");
  return reader.finish();
}

const char* columns_symbol(bool of_keys) { return of_keys ? "own_kv_columns" : "own_columns"; }

/// The schema of linear with this rank's rows of x and its heads of the outputs.
Schema schema_of(const Workload& w) {
  const GroupedHeads heads(w);
  Schema schema = kernels::schema_of(whole_product(w)).schema;
  for (autotune::ArgSpec& arg : schema.args) {
    if (arg.name == "x") arg.dims[0] = "own_rows";
    if (arg.role != ArgRole::output) continue;
    const bool of_keys = arg.name != "y";
    arg.dims[1] = heads.is_even(of_keys) ? autotune::Dim(heads.most_columns(of_keys)) : columns_symbol(of_keys);
  }
  schema.symbols.push_back("own_rows");
  for (const bool of_keys : {false, true})
    if (!heads.is_even(of_keys)) schema.symbols.push_back(columns_symbol(of_keys));
  add_channel_args(schema);
  return schema;
}

std::vector<int64_t> symbols(const Workload& w, int64_t length) {
  const GroupedHeads heads(w);
  std::vector<int64_t> values{length, own_rows(w, length)};
  for (const bool of_keys : {false, true})
    if (!heads.is_even(of_keys)) values.push_back(heads.columns(longest_rank(w), of_keys));
  add_channel_symbols(values, linear_alltoall_exchange(w), length);
  return values;
}

// --- configurations: linear's tiles for a rank's rows

int64_t rows_of_rank(const Workload& w, int64_t length) {
  return std::max<int64_t>(1, most_rows(RowLayout::contiguous, length, world_size_of(w)));
}

std::vector<Config> schedules_of(const Tile& tile) {
  std::vector<Config> configs;
  for (const int64_t chunk_rows : {256, 64}) {
    Config config = tile.config();
    config.set("chunk_rows", round_up(chunk_rows, tile.block_m));
    configs.push_back(std::move(config));
  }
  return configs;
}

double predict_us(const Workload& w, const Config& config, int64_t length, const Target& target) {
  return product_of(w).predict_us(Tile::from(config), w.threads, rows_of_rank(w, length), target) * world_size_of(w);
}

/// Where the heads of three outputs go takes registers as well.
std::vector<Tile> tiles_for(const Workload& w, int64_t length, const Target& target) {
  constexpr int64_t kMostValues = 128, kMostColumns = 128, kMostValuesOfF32 = 48;  // values: of a thread
  const Linear product = product_of(w);
  const bool is_f32 = product.dtype == DType::f32;
  std::vector<Tile> tiles = with_room(product.tiles(w.threads, rows_of_rank(w, length), target), product, is_f32);
  std::erase_if(tiles, [&](const Tile& tile) {
    if (!tile.is_of_gpu()) return false;
    const int64_t values = linear_op::values_of_block(product, tile) / tile.threads();
    return is_f32 ? values >= kMostValuesOfF32 : values >= kMostValues && tile.block_n > kMostColumns;
  });
  return tiles;
}

std::vector<Config> tile_configs(const Workload& w, int64_t length, const Target& target) {
  return configs_of(
      w.operation, target, tiles_for(w, length, target),
      [&](const Config& config) { return predict_us(w, config, length, target); }, schedules_of);
}

autotune::ConfigSpace space_of(const Workload& w, int64_t length, const Target& target) {
  autotune::ConfigSpace space;
  for (Config& config : tile_configs(w, length, target)) space.add(std::move(config));
  return space;
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
        v_(operands(b, w)),
        channel_(declare_channel(b)),
        length_(b.size(v_.y[0], 0)),
        ex_(b, gather_protocol(), exchange(w, c), channel_.block, channel_.counters, channel_.number, length_),
        tiles_(t_.block_m, c.get_int("chunk_rows"), b.cdiv(length_, int64_t{world_size_} * t_.block_m)) {}

  void build() {
    own_rows_ = ex_.num_rows(ex_.rank());
    v_.x = b_.slice(v_.x, {0, 0}, {own_rows_, s_.k});
    Var of_a_rank = tiles_.row_blocks * column_blocks();
    const std::array kinds{
        ProgramKind{of_a_rank * int64_t{world_size_ - 1}, [&](Var i) { ex_.role("push", [&] { produce(i); }); }},
        ProgramKind{of_a_rank, [&](Var i) { ex_.role("compute", [&] { compute_own(i); }); }},
        ProgramKind{tiles_.row_blocks * int64_t{world_size_ - 1}, [&](Var i) { ex_.role("use", [&] { receive(i); }); }},
        ProgramKind{1, [&](Var) { finish(); }},
    };
    run_program(b_, b_.program_id(0), kinds);
    ex_.leave(v_.y);
  }

 private:
  static bool of_keys(int weight) { return weight > 0; }

  /// As linear declares them, but for the outputs' columns.
  linear_op::Operands operands(KernelBuilder& b, const Workload& w) {
    const Linear whole = whole_product(w);
    linear_op::Operands v;
    v.x = b.view("x", w.dtype, {kDynamic, whole.k});
    for (int i = 0; i < kNumWeights; ++i)
      v.w.push_back(b.view(linear_op::numbered("w", i), w.dtype, {whole.weight_columns(i), whole.k}));
    for (int i = 0; whole.bias && i < kNumWeights; ++i)
      v.bias.push_back(b.view(linear_op::numbered("bias", i), w.dtype, {whole.weight_columns(i)}));
    for (int i = 0; i < kNumWeights; ++i)
      v.y.push_back(b.view(linear_op::numbered("y", i), w.dtype,
                           {kDynamic, heads_.is_even(of_keys(i)) ? heads_.most_columns(of_keys(i)) : kDynamic}));
    return v;
  }

  static ExchangeShape exchange(const Workload& w, const Config& c) {
    ExchangeShape shape = linear_alltoall_exchange(w, c.get_int("chunk_rows"));
    shape.identity = identity_of(w, c);
    return shape;
  }

  int64_t column_blocks() const { return linear_op::column_blocks(s_, t_.block_n); }

  /// Columns of output `i` in a row of the staging, of which a receiver has the first ones.
  Var staged(Var segment, Var rows, int i, Var columns) {
    int64_t before = 0;
    for (int j = 0; j < i; ++j) before += s_.weight_columns(j);
    return b_.slice(segment, {0, before}, {rows, columns});
  }

  /// The product for the heads of `owner`, but for where it goes.
  linear_op::Operands operands_for(Var owner) {
    linear_op::Operands v = v_;
    for (int i = 0; i < kNumWeights; ++i) {
      const auto at = static_cast<size_t>(i);
      Var first = heads_.first(owner, of_keys(i)), columns = heads_.columns(b_, owner, of_keys(i));
      v.w[at] = b_.slice(v.w[at], {first, 0}, {columns, s_.k});
      if (s_.bias) v.bias[at] = b_.slice(v.bias[at], {first}, {columns});
    }
    return v;
  }

  void compute(linear_op::Operands v, Var row, Var column_block) {
    Var column = v.choose(b_, s_, column_block, t_.block_n);
    linear_op::store_result(b_, s_, v, row, column, linear_op::multiply(b_, s_, t_, v, row, column));
  }

  void produce(Var id) {
    const auto [turn, row, column_block] = tiles_.place_of(b_, id, column_blocks());
    Var owner = ex_.peer(turn);
    b_.when(row < own_rows_, [&, row = row, column_block = column_block] {
      linear_op::Operands v = operands_for(owner);
      Var to = ex_.target(0, owner, own_rows_);
      for (int i = 0; i < kNumWeights; ++i)
        v.y[static_cast<size_t>(i)] = staged(to, own_rows_, i, heads_.columns(b_, owner, of_keys(i)));
      compute(std::move(v), row, column_block);
    });
    Var chunks = ex_.num_chunks(0, owner, ex_.rank());
    tiles_.count(
        b_, ex_, channel_.counters, world_size_, [&](Var per_owner) { return owner * per_owner; }, chunks, row,
        column_blocks(), [&](Var chunk) { ex_.publish(0, owner, chunk); });
  }

  /// The rows of `source` in output `i`.
  Var rows_of(Var source, Var rows, int i) {
    Var columns = heads_.columns(b_, ex_.rank(), of_keys(i));
    return b_.slice(v_.y[static_cast<size_t>(i)], {ex_.first_row(source), 0}, {rows, columns});
  }

  void compute_own(Var id) {
    const auto [turn, row, column_block] = tiles_.place_of(b_, id, column_blocks());
    b_.when(row < own_rows_, [&, row = row, column_block = column_block] {
      linear_op::Operands v = operands_for(ex_.rank());
      for (int i = 0; i < kNumWeights; ++i) v.y[static_cast<size_t>(i)] = rows_of(ex_.rank(), own_rows_, i);
      compute(std::move(v), row, column_block);
    });
  }

  void receive(Var id) {
    Var source = ex_.peer(id / tiles_.row_blocks), first = id % tiles_.row_blocks * t_.block_m;
    Var rows = ex_.num_rows(source), end = b_.min(first + t_.block_m, rows);
    b_.when(first < rows, [&] {
      Var has_come = ex_.await(0, source, first / tiles_.chunk_rows, b_.cdiv(end, tiles_.chunk_rows), id);
      b_.when(has_come, [&] {
        Var from = ex_.source(0, source, rows);
        for (int i = 0; i < kNumWeights; ++i) {
          Var columns = heads_.columns(b_, ex_.rank(), of_keys(i));
          copy_rows(b_, staged(from, rows, i, columns), rows_of(source, rows, i), first, end, columns);
        }
      });
    });
  }

  // A call without rows has no tiles whose chunks could be published.
  void finish() {
    b_.when(length_ <= 0, [&] {
      b_.when(ex_.is_aborted(), nullptr, [&] {
        b_.for_each(0, world_size_ - 1, 1,
                    [&](Var i) { ex_.publish(0, ex_.peer(i), b_.constant(DType::i64, int64_t{0})); });
      });
    });
    ex_.last_role();
  }

  KernelBuilder& b_;
  const Linear s_;
  const Tile t_;
  const GroupedHeads heads_;
  const int world_size_;
  linear_op::Operands v_;
  ChannelViews channel_;
  Var length_;
  Exchange ex_;
  const ChunkedTiles tiles_;
  Var own_rows_;
};

// --- the call that is measured and verified: that of the longest rank

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  const GroupedHeads heads(w);
  const Linear whole = whole_product(w);
  const auto t = tensors_of(whole, p.tensors);
  const std::vector<int64_t> own_columns = product_of(w).columns();
  const int self = longest_rank(w);
  outputs.assign(kNumWeights, {});
  for (const int64_t row : rows) {
    const RowPlace place = place_of_row(row, p.symbols[0], world_size_of(w));
    std::vector<std::vector<double>> all(kNumWeights);
    if (place.rank == self) {
      const std::vector<std::vector<double>> x{read_row(p.tensors[0], place.row)};
      linear_op::reference_epilogue(whole, t, {&row, 1}, linear_op::reference_products(whole, t, x), all);
    }
    int64_t staged = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool of_keys = i > 0;
      int64_t first = heads.first(self, of_keys);
      if (place.rank != self) {
        all[i] = staged_row(p, linear_alltoall_exchange(w), 0, place.rank, place.row);
        first = staged;
      }
      const auto begin = all[i].begin() + first;
      outputs[i].insert(outputs[i].end(), begin, begin + heads.columns(self, of_keys));
      staged += own_columns[i];
    }
  }
}

}  // namespace

ExchangeShape linear_alltoall_exchange(const Workload& w, int64_t chunk_rows) {
  const GroupedHeads heads(w);
  const int64_t columns = heads.most_columns(false) + 2 * heads.most_columns(true);
  return {world_size_of(w), 0, {{PhaseShape::Rows::of_source, w.dtype, columns, chunk_rows}}};
}

Workload FusedLinearAndAlltoall::workload(const Ranks& ranks) const {
  return {kName,
          dtype,
          1,
          {{"heads", heads},
           {"kv_heads", kv_heads},
           {"head_dim", head_dim},
           {"k", k},
           {"bias", int64_t{bias}},
           {"world_size", int64_t{ranks.world_size}},
           {"fabric", ranks.fabric}}};
}

autotune::OpDef fused_linear_and_alltoall() {
  autotune::OpDef op;
  op.name = kName;
  op.version = 4;
  op.summary = "own heads of x w^T for all rows from own rows of x, in one launch of each rank";
  op.normalize = normalize;
  op.schema = schema_of;
  op.symbols = symbols;
  add_rank_call(op);
  op.config_space = space_of;
  op.default_config = [](const Workload& w, int64_t length, const Target& target) {
    return tile_configs(w, length, target).front();
  };
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) { Builder(b, w, c).build(); };
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    const Tile t = Tile::from(c);
    const int64_t ranks = world_size_of(w);
    const int64_t per_block = ranks * linear_op::column_blocks(product_of(w), t.block_n) + ranks - 1;
    return {autotune::SizeExpr{per_block, {{0, ranks * t.block_m}}, 1}, {}, {}};
  };
  op.workspaces = [](const Workload& w, const Config& c) -> std::vector<autotune::Workspace> {
    const int64_t ranks = world_size_of(w);
    return {{"counters", DType::i32, autotune::SizeExpr{ranks, {{0, ranks * c.get_int("chunk_rows")}}, 1}}};
  };
  op.predict_us = predict_us;
  op.fill = [](const Problem& p, size_t arg, uint64_t seed) {
    return fill_channel_arg(p, arg, linear_alltoall_exchange(*p.workload), longest_rank(*p.workload), seed);
  };
  op.reference = reference;
  op.cost = [](const Workload& w, std::span<const int64_t> symbols) {
    return cost_of(whole_product(w), own_rows(w, symbols[0]));
  };
  op.tolerance = [](const Workload& w, std::span<const int64_t>) { return tolerance(w.dtype, w.fields.get_int("k")); };
  return op;
}

}  // namespace seqtile::kernels::seqpar

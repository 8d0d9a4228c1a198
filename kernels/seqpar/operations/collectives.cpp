// kernels/seqpar/operations/collectives.cpp -- see collectives.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/collectives.h"

#include <algorithm>
#include <bit>

#include "jit/base/cdiv.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/rank_problem.h"
#include "kernels/seqpar/exchange/reduction.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using autotune::Problem;

namespace {

using Inputs = CollectiveTensors<Tensor>;
using Rows = CollectiveTensors<std::vector<double>>;

constexpr int64_t kChunkBytes[] = {256 << 10, 64 << 10, 1 << 20}, kSmallestChunkBytes = 64 << 10;

/// A chunk's rows; a multiple of what is copied at once.
template <class Op>
int64_t chunk_rows_of(const Op& op, int64_t bytes) {
  const int64_t rows = std::max<int64_t>(bytes / (op.most_columns() * dtype_bytes(op.dtype)), 1);
  return std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows))), 8, 4096);
}

template <class Op>
std::vector<int64_t> chunk_sizes(const Op& op) {
  std::vector<int64_t> sizes;
  for (const int64_t bytes : kChunkBytes)
    if (const int64_t rows = chunk_rows_of(op, bytes); std::ranges::find(sizes, rows) == sizes.end())
      sizes.push_back(rows);
  return sizes;
}

Config with_warps(Config config, const Target& target) {
  if (target.is_gpu()) config.set("num_warps", int64_t{8});
  return config;
}

void append(std::vector<double>& rows, const std::vector<double>& row) {
  rows.insert(rows.end(), row.begin(), row.end());
}

/// Views of [rows, columns]: the part of x that a rank gets, and the part of y that another rank's rows go to.
TransferBody body_of(const AllGather& op, KernelBuilder& b, Var x, Var y) {
  const auto part = [&b, n = op.n](Exchange& ex, Var view, Operand first, Var source) {
    return b.slice(view, {first, 0}, {ex.segment_rows(0, ex.rank(), source), n});
  };
  return {.given = [=](Exchange& ex, Var) { return part(ex, x, 0, ex.rank()); },
          .place = [=](Exchange& ex, Var source) { return part(ex, y, ex.first_row(source), source); },
          .output = [=](Exchange&) { return y; }};
}

TransferBody body_of(const Broadcast& op, KernelBuilder& b, Var x, Var y) {
  const auto part = [&b, n = op.n](Exchange& ex, Var view, Operand first, Var source) {
    return b.slice(view, {first, 0}, {ex.segment_rows(0, ex.rank(), source), n});
  };
  return {
      .given = [=](Exchange& ex, Var) { return part(ex, x, 0, ex.rank()); },
      .place = [=, &b](Exchange& ex, Var source) { return part(ex, y, b.constant(DType::i64, int64_t{0}), source); },
      .output = [=](Exchange&) { return y; }};
}

TransferBody body_of(const AllToAll& op, KernelBuilder& b, Var x, Var y) {
  const Heads heads = op.cut();
  const bool by_heads = op.to_heads;
  // In the tensor of all columns the columns of `rank`'s heads, in the other tensor the rows of `rank`.
  const auto columns_of = [&b, heads](Var view, Var rank, Var rows) {
    return b.slice(view, {0, heads.first(rank)}, {rows, heads.columns(b, rank)});
  };
  const auto rows_of = [&b, heads](Exchange& ex, Var view, Var rank) {
    return b.slice(view, {ex.first_row(rank), 0}, {ex.num_rows(rank), heads.columns(b, ex.rank())});
  };
  return {
      .given = [=](Exchange& ex,
                   Var peer) { return by_heads ? columns_of(x, peer, ex.num_rows(ex.rank())) : rows_of(ex, x, peer); },
      .place =
          [=](Exchange& ex, Var source) {
            return by_heads ? rows_of(ex, y, source) : columns_of(y, source, ex.num_rows(ex.rank()));
          },
      .output =
          [=, &b](Exchange& ex) {
            return by_heads ? y : b.slice(y, {0, 0}, {ex.num_rows(ex.rank()), heads.all_columns()});
          }};
}

/// The longest rank's row `row` of y. `part(source, row)` is what it has from a rank.
using PartOfRow = std::function<std::vector<double>(int source, int64_t row)>;
std::vector<double> row_of(const AllGather& op, const PartOfRow& part, int64_t row, int64_t length) {
  const RowPlace place = place_of_row(RowLayout::contiguous, row, length, op.ranks.size());
  return part(place.rank, place.row);
}
std::vector<double> row_of(const Broadcast& op, const PartOfRow& part, int64_t row, int64_t) {
  return part(static_cast<int>(op.root), row);
}
std::vector<double> row_of(const AllToAll& op, const PartOfRow& part, int64_t row, int64_t length) {
  if (op.to_heads) {
    const RowPlace place = place_of_row(RowLayout::contiguous, row, length, op.ranks.size());
    return part(place.rank, place.row);
  }
  std::vector<double> whole;
  for (int source = 0; source < op.ranks.size(); ++source) append(whole, part(source, row));
  return whole;
}

/// The part that the longest rank gives itself, from its x.
std::vector<double> own_part(const AllToAll& op, const Tensor& x, int64_t row, int64_t length) {
  const int self = op.ranks.longest();
  const auto whole = read_row(x, op.to_heads ? row : row + op.ranks.first_row(self, length));
  const auto first = whole.begin() + (op.to_heads ? op.cut().first(self) : 0);
  return {first, first + op.cut().columns(self)};
}
std::vector<double> own_part(const auto&, const Tensor& x, int64_t row, int64_t) { return read_row(x, row); }

template <class Op>
struct MoveKernel {
  static constexpr bool kIsAllToAll = std::is_same_v<Op, AllToAll>;
  Op op;

  std::vector<Config> configs(int threads, int64_t, const Target& target) const {
    // A few programs for each core, or multiprocessor, are enough to keep memory busy.
    const std::vector<int64_t> push_programs = target.is_gpu() ? std::vector<int64_t>{32, 8, 128}
                                               : threads > 1   ? std::vector<int64_t>{threads, 1}
                                                               : std::vector<int64_t>{1};
    std::vector<Config> configs;
    for (const bool is_pulled : {false, true}) {
      if (is_pulled && (kIsAllToAll || !may_pull(target, op.ranks.size()))) continue;
      for (const int64_t chunk_rows : chunk_sizes(op))
        for (const int64_t programs : push_programs) {
          Config config{{"chunk_rows", chunk_rows}, {"push_programs", programs}};
          if (is_pulled) config.set("transfer", std::string("pull"));
          configs.push_back(with_warps(std::move(config), target));
        }
    }
    return configs;
  }

  void build(KernelBuilder& b, const Config& c, const Target&, int64_t identity) const {
    const auto v = views_of(op, b);
    const ChannelViews channel = declare_channel(b);
    TransferShape shape = shape_of(c);
    shape.exchange.identity = identity;
    bool has_all_rows_in_x = false;
    if constexpr (kIsAllToAll) has_all_rows_in_x = !op.to_heads;
    build_transfer(b, shape, TransferSchedule::from(c), channel, b.size(has_all_rows_in_x ? v.x : v.y, 0),
                   body_of(op, b, v.x, v.y));
  }

  autotune::SizeExpr programs(const Config& c) const {
    return transfer_programs(shape_of(c), TransferSchedule::from(c));
  }

  void reference(const Problem& p, const Inputs& t, std::span<const int64_t> rows, Rows& out) const {
    const int64_t length = p.symbols[0];
    const PartOfRow part = [&](int source, int64_t row) {
      if (source == op.ranks.longest()) return own_part(op, t.x, row, length);
      std::vector<double> staged = staged_row(p, exchange_of(op), 0, source, row);
      if constexpr (kIsAllToAll)
        staged.resize(static_cast<size_t>(op.cut().columns(op.to_heads ? op.ranks.longest() : source)));
      return staged;
    };
    for (const int64_t row : rows) append(out.y, row_of(op, part, row, length));
  }

  autotune::Cost cost(std::span<const int64_t> symbols) const {
    const auto bytes = static_cast<double>(symbols[0] * op.most_columns() * dtype_bytes(op.dtype));
    return {0, bytes, bytes};
  }
  autotune::OpDef::Tolerance tolerance(int64_t) const { return {0, 0}; }

 private:
  TransferShape shape_of(const Config& c) const {
    const TransferSchedule schedule = TransferSchedule::from(c);
    if (schedule.way == Transfer::pull && kIsAllToAll)
      throw Error(ErrorCode::invalid_argument, "transfer = pull: all_to_all gives every rank other rows; leave it out");
    return {with_transfer(op.exchange(schedule.chunk_rows), schedule.way), std::is_same_v<Op, Broadcast>};
  }
};

template <class Op>
PartialShape partials_of(const Op& op) {
  const CopyTile tile = copy_tile(op.n);
  return {tile.rows, cdiv(op.n, tile.columns), op.n, 1, op.dtype, op.dtype};
}

template <bool has_all_rows>
struct SumKernel {
  SummedRows<has_all_rows> op;

  std::vector<Config> configs(int, int64_t length, const Target& target) const {
    std::vector<std::string> reductions{""};
    if (has_all_rows) reductions = {"two_shot"};
    if (has_all_rows && length <= most_one_shot_rows(op.dtype, op.n)) reductions = {"one_shot", "two_shot"};
    std::vector<Config> configs;
    for (const std::string& reduction : reductions)
      for (const int64_t chunk_rows : chunk_sizes(op)) {
        Config config{{"chunk_rows", chunk_rows}};
        if (has_all_rows) config.set("sum_rows", copy_tile(op.n).rows);
        if (!reduction.empty()) config.set("reduction", reduction);
        configs.push_back(with_warps(std::move(config), target));
      }
    return configs;
  }

  void build(KernelBuilder& b, const Config& c, const Target&, int64_t identity) const {
    const ReduceForm form = reduce_form(c);
    const auto v = views_of(op, b);
    const ChannelViews channel = declare_channel(b);
    const auto rows_of = [&](Var view, Var first, Var end) { return b.slice(view, {first, 0}, {end, op.n}); };
    ReduceBody body;
    body.partial = [&](Var first, Var end, Var row, Var column_block) {
      const CopyTile tile = copy_tile(op.n);
      Var column = column_block * tile.columns;
      return ReduceBody::Tile{column, {b.load(rows_of(v.x, first, end), {row, column}, {tile.rows, tile.columns})}};
    };
    body.result = [&](Var, Var, Var, Var, std::vector<Var> sums) { return to_storage(b, sums[0], op.dtype); };
    body.outputs = [&](Var first, Var end) {
      return std::vector{rows_of(v.y, form == ReduceForm::scatter ? b.constant(DType::i64, int64_t{0}) : first, end)};
    };
    build_reduction(b, partials_of(op), ReduceSchedule::from(c), form, op.ranks.size(), identity, channel,
                    b.size(v.x, 0), body);
  }

  autotune::SizeExpr programs(const Config& c) const {
    return reduce_programs(partials_of(op), ReduceSchedule::from(c), reduce_form(c), op.ranks.size());
  }

  std::vector<autotune::Workspace> workspaces(const Config& c) const {
    return {{"counters", DType::i32, num_counters(ReduceSchedule::from(c), reduce_form(c), op.ranks.size())}};
  }

  bool fill(const Problem& p, size_t arg, uint64_t seed) const {
    const std::vector<double> zeros(static_cast<size_t>(op.n), 0.0);
    return has_all_rows && fill_all_reduce_arg(p, arg, op.ranks, exchange_of(op), seed, [&](int64_t) { return zeros; });
  }

  void reference(const Problem& p, const Inputs& t, std::span<const int64_t> rows, Rows& out) const {
    const int longest = op.ranks.longest();
    const int64_t first_own = op.ranks.first_row(longest, p.symbols[0]), first_of_y = has_all_rows ? 0 : first_own;
    for (const int64_t row : rows) {
      std::vector<double> sum = read_row(t.x, first_of_y + row);
      for (int source = 0; source < longest && first_of_y + row >= first_own; ++source) {
        const std::vector<double> partial = staged_row(p, exchange_of(op), 0, source, first_of_y + row - first_own);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += partial[i];
      }
      append(out.y, sum);
    }
  }

  autotune::Cost cost(std::span<const int64_t> symbols) const {
    const auto elements = static_cast<double>(symbols[0] * op.n);
    const double bytes = elements * static_cast<double>(dtype_bytes(op.dtype));
    return {elements * static_cast<double>(op.ranks.world_size), bytes, bytes};
  }
  autotune::OpDef::Tolerance tolerance(int64_t) const { return kernels::tolerance(op.dtype, op.ranks.world_size); }
};

template <class Op>
ExchangeShape exchange_of_rows(const Op& op, PhaseShape::Rows rows, int64_t chunk_rows) {
  return {op.ranks.size(), 0, {{rows, op.dtype, op.most_columns(), chunk_rows}}};
}

}  // namespace

void AllGather::fields(FieldVisitor& v) {
  ranks.fields(v);
  v.integer("n", n, 1, kMaxFeatures);
}
int64_t AllGather::smallest_chunk() const { return chunk_rows_of(*this, kSmallestChunkBytes); }
ExchangeShape AllGather::exchange(int64_t chunk_rows) const {
  return exchange_of_rows(*this, PhaseShape::Rows::of_source, chunk_rows);
}
const Protocol& AllGather::protocol(const Config& config) { return protocol_of_gather(transfer_of(config)); }

void Broadcast::fields(FieldVisitor& v) {
  ranks.fields(v);
  v.integer("n", n, 1, kMaxFeatures);
  v.integer("root", root, 0, channel::kMaxRanks - 1);
  if (root >= ranks.world_size) v.refuse("root", "needs to be a rank, below world_size");
}
int64_t Broadcast::smallest_chunk() const { return chunk_rows_of(*this, kSmallestChunkBytes); }
ExchangeShape Broadcast::exchange(int64_t chunk_rows) const {
  ExchangeShape shape = exchange_of_rows(*this, PhaseShape::Rows::of_root, chunk_rows);
  shape.phases[0].root = static_cast<int>(root);
  return shape;
}
const Protocol& Broadcast::protocol(const Config& config) { return protocol_of_gather(transfer_of(config)); }

void AllToAll::fields(FieldVisitor& v) {
  static constexpr std::array<std::string_view, 2> kDirections = {"to_sequence", "to_heads"};
  ranks.fields(v);
  v.integer("heads", heads, 1, kMaxHeads);
  v.integer("head_dim", head_dim, 1, kMaxFeatures / kMaxHeads);
  v.choice("direction", to_heads, kDirections);
}
int64_t AllToAll::smallest_chunk() const { return chunk_rows_of(*this, kSmallestChunkBytes); }
ExchangeShape AllToAll::exchange(int64_t chunk_rows) const {
  return exchange_of_rows(*this, to_heads ? PhaseShape::Rows::of_source : PhaseShape::Rows::of_owner, chunk_rows);
}
const Protocol& AllToAll::protocol(const Config&) { return gather_protocol(); }

template <bool has_all_rows>
void SummedRows<has_all_rows>::fields(FieldVisitor& v) {
  ranks.fields(v);
  v.integer("n", n, 1, kMaxFeatures);
}
template <bool has_all_rows>
int64_t SummedRows<has_all_rows>::smallest_chunk() const {
  return chunk_rows_of(*this, kSmallestChunkBytes);
}
template <bool has_all_rows>
ExchangeShape SummedRows<has_all_rows>::exchange(int64_t chunk_rows) const {
  return reduce_shape(partials_of(*this), has_all_rows ? ReduceForm::two_shot : ReduceForm::scatter, ranks.size(), 0,
                      chunk_rows);
}
template <bool has_all_rows>
const Protocol& SummedRows<has_all_rows>::protocol(const Config& config) {
  return protocol_of(reduce_form(config));
}

template struct SummedRows<false>;
template struct SummedRows<true>;

autotune::OpDef all_gather() { return rank_op<MoveKernel<AllGather>>("the rows of all ranks on every rank", 8); }
autotune::OpDef all_to_all() {
  return rank_op<MoveKernel<AllToAll>>("rows of all heads against all rows of some heads", 8);
}
autotune::OpDef broadcast() { return rank_op<MoveKernel<Broadcast>>("the root's rows on every rank", 8); }
autotune::OpDef reduce_scatter() { return rank_op<SumKernel<false>>("own rows of the sum over ranks", 7); }
autotune::OpDef all_reduce() { return rank_op<SumKernel<true>>("the sum over ranks on every rank", 7); }

}  // namespace seqtile::kernels::seqpar

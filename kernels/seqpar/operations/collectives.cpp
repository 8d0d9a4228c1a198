// kernels/seqpar/operations/collectives.cpp -- see seqtile/ops/collectives.h.
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

/// Views of [rows, columns] of a kernel that moves rows: the part of x that a rank gets, the place in y of what comes
/// from a rank, and y as a whole.
template <class Op>
struct Parts {
  KernelBuilder& b;
  Exchange& ex;
  const Op& op;
  Var x, y;

  Var given(Var) { return part(x, 0, ex.rank()); }
  Var place(Var source) {
    if constexpr (std::is_same_v<Op, Broadcast>) return part(y, b.constant(DType::i64, int64_t{0}), source);
    else return part(y, ex.first_row(source), source);
  }
  Var output() { return y; }

 private:
  Var part(Var view, Operand first, Var source) {
    return b.slice(view, {first, 0}, {ex.segment_rows(0, ex.rank(), source), op.n});
  }
};

template <>
struct Parts<AllToAll> {
  KernelBuilder& b;
  Exchange& ex;
  const AllToAll& op;
  Var x, y;
  const Heads heads = op.cut();

  Var given(Var peer) { return op.to_heads ? columns_of(x, peer, ex.num_rows(ex.rank())) : rows_of(x, peer); }
  Var place(Var source) { return op.to_heads ? rows_of(y, source) : columns_of(y, source, ex.num_rows(ex.rank())); }
  Var output() { return op.to_heads ? y : b.slice(y, {0, 0}, {ex.num_rows(ex.rank()), heads.all_columns()}); }

 private:
  /// In the tensor of all columns those of a rank's heads, in the other one the rows of a rank.
  Var columns_of(Var view, Var rank, Var rows) {
    return b.slice(view, {0, heads.first(rank)}, {rows, heads.columns(b, rank)});
  }
  Var rows_of(Var view, Var rank) {
    return b.slice(view, {ex.first_row(rank), 0}, {ex.num_rows(rank), heads.columns(b, ex.rank())});
  }
};

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

  /// Programs: those that send, one for each chunk of each source, and one more.
  void build(KernelBuilder& b, const Config& c, const Target&, const ExchangeShape& exchange) const {
    const auto v = views_of(op, b);
    const TransferSchedule schedule = schedule_of(c);
    const ChannelViews channel = declare_channel(b);
    bool has_all_rows_in_x = false;
    if constexpr (kIsAllToAll) has_all_rows_in_x = !op.to_heads;
    Exchange ex(b, op.protocol(c), exchange, channel, b.size(has_all_rows_in_x ? v.x : v.y, 0));
    Parts<Op> parts{b, ex, op, v.x, v.y};
    Var id = b.program_id(0), use = id - schedule.push_programs, uses = ex.most_chunks(0) * num_sources();
    const auto push = [&] {
      push_rows(b, ex, ex.world_size() - 1, id, schedule,
                [&](Var peer) { return std::vector{Part{parts.given(peer)}}; });
    };
    b.when(
        id < schedule.push_programs, [&] { ex.role("push", push); },
        [&] {
          b.when(
              use < uses, [&] { ex.role("use", [&] { receive(parts, schedule, use); }); },
              [&] { b.when(b.compare(Compare::eq, use, uses), [&] { ex.last_role(); }); });
        });
    ex.leave({parts.output()});
  }

  autotune::SizeExpr programs(const Config& c) const {
    const TransferSchedule schedule = schedule_of(c);
    return {num_sources(), {{0, num_sources() * schedule.chunk_rows}}, schedule.push_programs + 1};
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
  static constexpr bool kIsBroadcast = std::is_same_v<Op, Broadcast>;
  int64_t num_sources() const { return kIsBroadcast ? 1 : op.ranks.world_size; }

  TransferSchedule schedule_of(const Config& c) const {
    const TransferSchedule schedule = TransferSchedule::from(c);
    if (schedule.way == Transfer::pull && kIsAllToAll)
      throw Error(ErrorCode::invalid_argument, "transfer = pull: all_to_all gives every rank other rows; leave it out");
    return schedule;
  }

  void receive(Parts<Op>& parts, const TransferSchedule& schedule, Var use) const {
    KernelBuilder& b = parts.b;
    Exchange& ex = parts.ex;
    const int world_size = ex.world_size();
    Var source, chunk = use;
    if constexpr (kIsBroadcast) {
      source = b.constant(DType::i64, op.root);
    } else {
      source = (ex.rank() + use % world_size) % world_size;
      chunk = use / world_size;
    }
    Var rows = ex.segment_rows(0, ex.rank(), source), first = chunk * schedule.chunk_rows;
    Var end = b.min(first + schedule.chunk_rows, rows), is_own = b.compare(Compare::eq, source, ex.rank());
    b.when(first < rows, [&] {
      b.when(ex.await(0, source, chunk, b.select(is_own, chunk, chunk + 1), use), [&] {
        Var to = parts.place(source), from = ex.source(0, source, rows);
        const auto copy = [&](Var view) { copy_rows(b, view, to, first, end, b.size(to, 1)); };
        const auto keep = [&] {  // own rows are there already where the caller works in place
          Var own = parts.given(ex.rank());
          b.when(b.compare(Compare::ne, b.address(own), b.address(to)), [&] { copy(own); });
        };
        b.when(is_own, keep, [&] { copy(from); });
      });
    });
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

  void build(KernelBuilder& b, const Config& c, const Target&, const ExchangeShape& exchange) const {
    const ReduceForm form = reduce_form(c);
    const auto v = views_of(op, b);
    const ChannelViews channel = declare_channel(b);
    Exchange ex(b, op.protocol(c), exchange, channel, b.size(v.x, 0));
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
    build_reduction(b, ex, partials_of(op), ReduceSchedule::from(c), form, body);
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
    const int64_t first_own = op.ranks.first_row(op.ranks.longest(), p.symbols[0]),
                  first_of_y = has_all_rows ? 0 : first_own;
    for (const int64_t row : rows) {
      std::vector<double> sum = read_row(t.x, first_of_y + row);
      const int64_t own_row = first_of_y + row - first_own;
      if (own_row >= 0) add_staged_rows(sum, p, exchange_of(op), 0, op.ranks, own_row);
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
  return reduce_shape(partials_of(*this), has_all_rows ? ReduceForm::two_shot : ReduceForm::scatter, ranks.size(),
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

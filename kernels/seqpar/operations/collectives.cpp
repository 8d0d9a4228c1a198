// kernels/seqpar/operations/collectives.cpp -- see seqtile/ops/collectives.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/collectives.h"

#include <algorithm>

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

constexpr int64_t kChunkBytes[] = {256 << 10, 64 << 10, 1 << 20};

template <class Op>
std::vector<int64_t> chunk_sizes(const Op& op) {
  std::vector<int64_t> sizes;
  for (const int64_t bytes : kChunkBytes)
    if (const int64_t rows = rows_of_chunk(op.most_columns() * dtype_bytes(op.dtype), bytes);
        std::ranges::find(sizes, rows) == sizes.end())
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

template <class Op>
constexpr bool kIsAllToAll = std::is_same_v<Op, AllToAll>;
template <class Op>
constexpr bool kIsBroadcast = std::is_same_v<Op, Broadcast>;

/// Views of [rows, columns] of a kernel that moves rows: the part of x that a rank gets, the place in y of what comes
/// from a rank, and y as a whole.
template <class Op>
struct Parts {
  KernelBuilder& b;
  Exchange& ex;
  const Op& op;
  Var x, y;

  Var given(Var peer) {
    if constexpr (kIsAllToAll<Op>) return op.to_heads ? columns_of(x, peer) : rows_of(x, peer);
    else return segment_of(x, 0, ex.rank());
  }
  Var place(Var source) {
    if constexpr (kIsAllToAll<Op>) return op.to_heads ? rows_of(y, source) : columns_of(y, source);
    else if constexpr (kIsBroadcast<Op>) return segment_of(y, b.constant(DType::i64, int64_t{0}), source);
    else return segment_of(y, ex.first_row(source), source);
  }
  Var output() {
    if constexpr (kIsAllToAll<Op>)
      if (!op.to_heads) return b.slice(y, {0, 0}, {ex.num_rows(ex.rank()), op.cut().all_columns()});
    return y;
  }

  Var segment_of(Var view, Operand first, Var source) {
    return b.slice(view, {first, 0}, {ex.segment_rows(0, ex.rank(), source), op.n});
  }
  /// In the tensor of all columns those of a rank's heads, in the other one the rows of a rank.
  Var columns_of(Var view, Var rank) {
    Var rows = ex.num_rows(ex.rank());
    return b.slice(view, {0, op.cut().first(rank)}, {rows, op.cut().columns(b, rank)});
  }
  Var rows_of(Var view, Var rank) {
    return b.slice(view, {ex.first_row(rank), 0}, {ex.num_rows(rank), op.cut().columns(b, ex.rank())});
  }
};

template <class Op>
struct MoveKernel {
  Op op;

  std::vector<Config> configs(const Setting& s) const {
    // A few programs for each core, or multiprocessor, are enough to keep memory busy.
    const std::vector<int64_t> counts = s.target.is_gpu() ? std::vector<int64_t>{32, 8, 128} : push_programs(s);
    std::vector<Config> configs;
    for (const bool is_pulled : {false, true}) {
      if (is_pulled && (kIsAllToAll<Op> || !may_pull(s.target, op.ranks.size()))) continue;
      for (const int64_t chunk_rows : chunk_sizes(op))
        for (const int64_t programs : counts) {
          Config config{{"chunk_rows", chunk_rows}, {"push_programs", programs}};
          if (is_pulled) config.set("transfer", std::string("pull"));
          configs.push_back(with_warps(std::move(config), s.target));
        }
    }
    return configs;
  }

  /// Programs: those that send, one for each chunk of each source, and one more.
  void build(const RankBuild<Op>& given) const {
    KernelBuilder& b = given.b;
    const auto v = views_of(op, b);
    const TransferSchedule schedule = schedule_of(given.config);
    Exchange ex = given.exchange_over(has_own_rows() ? v.x : v.y);
    Parts<Op> parts{b, ex, op, v.x, v.y};
    Var id = b.program_id(0), use = id - schedule.push_programs, uses = ex.most_chunks(0) * num_sources();
    const auto push = [&](Var i) {
      push_rows(b, ex, ex.world_size() - 1, i, schedule,
                [&](Var peer) { return std::vector{Part{parts.given(peer)}}; });
    };
    run_program(b, ex, id, {"push", schedule.push_programs, push}, use,
                {"use", uses, [&](Var i) { receive(parts, schedule, i); }});
    ex.leave({parts.output()});
  }

  autotune::SizeExpr programs(const Config& c) const {
    const TransferSchedule schedule = schedule_of(c);
    return {num_sources(), {{0, num_sources() * schedule.chunk_rows}}, schedule.push_programs + 1};
  }

  void reference(const Problem& p, const Inputs& t, std::span<const int64_t> rows, Rows& out) const {
    for (const int64_t row : rows) {
      const RowPlace place = place_of_row(RowLayout::contiguous, row, p.symbols[0], op.ranks.size());
      if constexpr (kIsBroadcast<Op>) append(out.y, part_of(p, t.x, static_cast<int>(op.root), row));
      else if (!has_own_rows()) append(out.y, part_of(p, t.x, place.rank, place.row));
      else
        for (int source = 0; source < op.ranks.size(); ++source) append(out.y, part_of(p, t.x, source, row));
    }
  }

  autotune::Cost cost(std::span<const int64_t> symbols) const {
    const auto bytes = static_cast<double>(symbols[0] * op.most_columns() * dtype_bytes(op.dtype));
    return {0, bytes, bytes};
  }
  autotune::OpDef::Tolerance tolerance(int64_t) const { return {0, 0}; }

 private:
  int64_t num_sources() const { return kIsBroadcast<Op> ? 1 : op.ranks.world_size; }
  /// y has the rank's own rows, and each of them parts from all ranks.
  bool has_own_rows() const {
    if constexpr (kIsAllToAll<Op>) return !op.to_heads;
    else return false;
  }

  /// What the longest rank has from a rank, of row `row`: the part that it gives itself, or what is preset.
  std::vector<double> part_of(const Problem& p, const Tensor& x, int source, int64_t row) const {
    const int self = op.ranks.longest();
    const bool is_own = source == self;
    const int64_t first_own = has_own_rows() ? op.ranks.first_row(self, p.symbols[0]) : 0;
    std::vector<double> part = is_own ? read_row(x, first_own + row) : staged_row(p, exchange_of(op), 0, source, row);
    if constexpr (kIsAllToAll<Op>) {
      const auto first = part.begin() + (is_own && op.to_heads ? op.cut().first(self) : 0);
      return {first, first + op.cut().columns(op.to_heads ? self : source)};
    }
    return part;
  }

  TransferSchedule schedule_of(const Config& c) const {
    const TransferSchedule schedule = TransferSchedule::from(c);
    if (schedule.way == Transfer::pull && kIsAllToAll<Op>)
      throw Error(ErrorCode::invalid_argument, "transfer = pull: all_to_all gives every rank other rows; leave it out");
    return schedule;
  }

  void receive(Parts<Op>& parts, const TransferSchedule& schedule, Var use) const {
    KernelBuilder& b = parts.b;
    Exchange& ex = parts.ex;
    const int world_size = ex.world_size();
    Var source, chunk = use;
    if constexpr (kIsBroadcast<Op>) {
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

template <class Op>
struct SumKernel {
  static constexpr bool kHasAllRows = !Op::kIsScatter;
  Op op;

  std::vector<Config> configs(const Setting& s) const {
    std::vector<std::string> reductions{""};
    if (kHasAllRows) reductions = {"two_shot"};
    if (kHasAllRows && s.length <= most_one_shot_rows(op.dtype, op.n)) reductions = {"one_shot", "two_shot"};
    std::vector<Config> configs;
    for (const std::string& reduction : reductions)
      for (const int64_t chunk_rows : chunk_sizes(op)) {
        Config config{{"chunk_rows", chunk_rows}};
        if (kHasAllRows) config.set("sum_rows", copy_tile(op.n).rows);
        if (!reduction.empty()) config.set("reduction", reduction);
        configs.push_back(with_warps(std::move(config), s.target));
      }
    return configs;
  }

  void build(const RankBuild<Op>& given) const {
    KernelBuilder& b = given.b;
    const ReduceForm form = reduce_form(given.config);
    const auto v = views_of(op, b);
    Exchange ex = given.exchange_over(v.x);
    ReduceBody body;
    body.partial = [&](Var first, Var end, Var row, Var column_block) {
      const CopyTile tile = copy_tile(op.n);
      Var column = column_block * tile.columns;
      return ReduceBody::Tile{column, {b.load(rows_of(b, v.x, first, end), {row, column}, {tile.rows, tile.columns})}};
    };
    body.result = [&](Var, Var, Var, Var, std::vector<Var> sums) { return to_storage(b, sums[0], op.dtype); };
    body.outputs = [&](Var first, Var end) {
      return std::vector{
          rows_of(b, v.y, form == ReduceForm::scatter ? b.constant(DType::i64, int64_t{0}) : first, end)};
    };
    build_reduction(b, ex, partials_of(op), ReduceSchedule::from(given.config), form, body);
  }

  autotune::SizeExpr programs(const Config& c) const {
    return reduce_programs(partials_of(op), ReduceSchedule::from(c), reduce_form(c), op.ranks.size());
  }

  std::vector<autotune::Workspace> workspaces(const Config& c) const {
    return {{"counters", DType::i32, num_counters(ReduceSchedule::from(c), reduce_form(c), op.ranks.size())}};
  }

  bool fill(const Problem& p, size_t arg, uint64_t seed) const {
    const std::vector<double> zeros(static_cast<size_t>(op.n), 0.0);
    return kHasAllRows && fill_all_reduce_arg(p, arg, op.ranks, exchange_of(op), seed, [&](int64_t) { return zeros; });
  }

  void reference(const Problem& p, const Inputs& t, std::span<const int64_t> rows, Rows& out) const {
    const int64_t first_own = op.ranks.first_row(op.ranks.longest(), p.symbols[0]),
                  first_of_y = kHasAllRows ? 0 : first_own;
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

void Broadcast::fields(FieldVisitor& v) {
  ranks.fields(v);
  v.integer("n", n, 1, kMaxFeatures);
  v.integer("root", root, 0, channel::kMaxRanks - 1);
  if (root >= ranks.world_size) v.refuse("root", "needs to be a rank, below world_size");
}
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
ExchangeShape AllToAll::exchange(int64_t chunk_rows) const {
  return exchange_of_rows(*this, to_heads ? PhaseShape::Rows::of_source : PhaseShape::Rows::of_owner, chunk_rows);
}
const Protocol& AllToAll::protocol(const Config&) { return gather_protocol(); }

template <RowCollective kind>
void CollectiveOfRows<kind>::fields(FieldVisitor& v) {
  ranks.fields(v);
  v.integer("n", n, 1, kMaxFeatures);
}
template <RowCollective kind>
ExchangeShape CollectiveOfRows<kind>::exchange(int64_t chunk_rows) const {
  if (kIsGather) return exchange_of_rows(*this, PhaseShape::Rows::of_source, chunk_rows);
  return reduce_shape(partials_of(*this), kIsScatter ? ReduceForm::scatter : ReduceForm::two_shot, ranks.size(),
                      chunk_rows);
}
template <RowCollective kind>
const Protocol& CollectiveOfRows<kind>::protocol(const Config& config) {
  return kIsGather ? protocol_of_gather(transfer_of(config)) : protocol_of(reduce_form(config));
}

template struct CollectiveOfRows<RowCollective::all_gather>;
template struct CollectiveOfRows<RowCollective::reduce_scatter>;
template struct CollectiveOfRows<RowCollective::all_reduce>;

autotune::OpDef all_gather() { return rank_op<MoveKernel<AllGather>>("the rows of all ranks on every rank", 8); }
autotune::OpDef all_to_all() {
  return rank_op<MoveKernel<AllToAll>>("rows of all heads against all rows of some heads", 8);
}
autotune::OpDef broadcast() { return rank_op<MoveKernel<Broadcast>>("the root's rows on every rank", 8); }
autotune::OpDef reduce_scatter() { return rank_op<SumKernel<ReduceScatter>>("own rows of the sum over ranks", 7); }
autotune::OpDef all_reduce() { return rank_op<SumKernel<AllReduce>>("the sum over ranks on every rank", 7); }

}  // namespace seqtile::kernels::seqpar

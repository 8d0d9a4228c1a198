// kernels/seqpar/operations/fused_linear.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/ranks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "jit/base/cdiv.h"
#include "kernels/linear/linear_reference.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/rank_problem.h"
#include "kernels/seqpar/patterns/allgather_linear.h"
#include "kernels/seqpar/patterns/linear_reduce.h"
#include "kernels/seqpar/patterns/product_tiles.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using autotune::Problem;
using linear_op::Tile;

namespace {

/// A tile may have rows of several ranks. Where a rank has more rows, they fill tiles alone.
bool may_join(const Ranks& ranks, int64_t length) {
  constexpr int64_t kMostRows = 512;
  return ranks.are_on_cpus() && ranks.world_size > 1 && ranks.rows_of_rank(length) <= kMostRows;
}

/// A GPU computes whole tiles, each of one rank's rows; in one shot tiles of all rows.
double product_us(const Linear& linear, const Ranks& ranks, const Config& config, const Setting& s) {
  const Tile tile = Tile::from(config);
  int64_t length = s.length;
  if (s.target.is_gpu() && reduce_form(config) != ReduceForm::one_shot)
    length = ranks.world_size * round_up(ranks.rows_of_rank(length), tile.block_m);
  return linear.predict_us(tile, {length, s.threads, portable(s.target)});
}

/// The tiles of a rank's rows, then, for few rows, the tiles that linear has for the rows of all ranks, `joined`.
/// `sent`: the format of what is sent.
template <class Op>
std::vector<Config> product_configs(const Op& op, const Setting& s, DType sent, bool keeps_more,
                                    const Schedules& schedules, const std::function<Config(const Tile&)>& joined) {
  const Linear& linear = op.linear;
  const DType widest = dtype_bytes(sent) > dtype_bytes(linear.dtype) ? sent : linear.dtype;
  const auto tiles = [&](int64_t rows) {
    return with_room(linear.tiles({rows, s.threads, portable(s.target)}, widest), linear, keeps_more);
  };
  std::vector<Config> configs = configs_of(
      std::string(op.kName), s.target, tiles(op.ranks.rows_of_rank(s.length)),
      [&](const Config& config) { return product_us(linear, op.ranks, config, s); }, schedules);
  if (may_join(op.ranks, s.length) && !s.target.is_gpu())
    std::ranges::transform(tiles(s.length), std::back_inserter(configs), joined);
  return configs;
}

struct GatherKernel {
  FusedAllgatherAndLinear op;

  bool joins(int64_t length) const { return may_join(op.ranks, length); }

  std::vector<Config> configs(const Setting& s) const {
    return product_configs(
        op, s, op.linear.dtype, false,
        [&](const Tile& tile) { return gather_schedules(tile.config(), s, op.ranks.size()); },
        [&](const Tile& tile) { return joined_schedule(tile.config(), push_programs(s)[0]); });
  }

  double predict_us(const Config& config, const Setting& s) const { return product_us(op.linear, op.ranks, config, s); }

  void build(const RankBuild<FusedAllgatherAndLinear>& given) const {
    const Config& c = given.config;
    build_allgather_linear(given.b, op.linear, Tile::from(c), GatherSchedule::from(c), given.shape);
  }

  autotune::SizeExpr programs(const Config& c) const {
    return gather_programs(op.linear, Tile::from(c), GatherSchedule::from(c), op.ranks.size());
  }

  void reference(const Problem& p, const Linear::Tensors<Tensor>& t, std::span<const int64_t> rows,
                 Linear::Tensors<std::vector<double>>& out) const {
    std::vector<std::vector<double>> x;
    for (const int64_t row : rows) x.push_back(gathered_row(p, op.ranks, exchange_of(op), t.x, row));
    out = linear_op::reference_epilogue(op.linear, t, rows, linear_op::reference_products(op.linear, t, x));
  }

  autotune::Cost cost(std::span<const int64_t> symbols) const { return cost_of(op.linear, symbols[0]); }
  autotune::OpDef::Tolerance tolerance(int64_t) const { return op.linear.tolerance(); }
};

/// One shot first, where the rows are few enough for it.
std::vector<std::string> reductions(const Linear& linear, DType transport, int64_t length) {
  if (length <= most_one_shot_rows(transport, linear.n * linear.weights_per_loop())) return {"one_shot", "two_shot"};
  return {"two_shot"};
}

/// Of few rows no chunk is complete before all are: then the weights are better read once, for all ranks' rows. A core
/// reads them again for each block of rows, beyond its cache; to a GPU it matters less than sending early.
std::vector<std::string> orders(const Ranks& ranks, int64_t length, const Target& target) {
  const int64_t few_rows = target.is_gpu() ? 256 : 1024;  // of a rank
  if (ranks.rows_of_rank(length) <= few_rows) return {"interleave", "rotate"};
  return {"rotate", "interleave"};
}

/// Tiles of one rank's rows may follow the tiles of another rank's rows chunk by chunk: a chunk is then sent when it is
/// complete. In other orders all chunks are complete with the last columns, and only sums that go on to other ranks are
/// sent chunk by chunk.
std::vector<int64_t> chunks_of(const std::string& reduction, const std::string& order) {
  if (order == "rotate") return {256, 1024, 64};
  return reduction == "two_shot" ? std::vector<int64_t>{256, 64} : std::vector<int64_t>{256};
}

Config reduce_config(const Tile& tile, int64_t chunk_rows, const std::string& reduction, const std::string& order,
                     bool needs_rows) {
  Config config = tile.config();
  config.set("chunk_rows", round_up(chunk_rows, tile.block_m));
  if (!reduction.empty()) config.set("reduction", reduction);
  if (!order.empty()) config.set("order", order);
  if (order != "rotate" || needs_rows) config.set("sum_rows", std::min<int64_t>(tile.block_m, 8));
  return config;
}

/// rms_norm of the rows of y.
std::vector<double> reference_norm(const Tensor& norm_weight, double eps, const std::vector<double>& y) {
  const std::vector<double> weight = read_row(norm_weight, 0);
  std::vector<double> normed;
  for (size_t row = 0; row < y.size(); row += weight.size()) {
    double squares = 0;
    for (size_t i = 0; i < weight.size(); ++i) squares += y[row + i] * y[row + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + eps);
    for (size_t i = 0; i < weight.size(); ++i) normed.push_back(y[row + i] * scale * weight[i]);
  }
  return normed;
}

template <bool has_all_rows>
struct SumKernel {
  using Op = SummedLinear<has_all_rows>;
  Op op;

  /// All chunks of joined tiles are complete with the last tile.
  std::vector<Config> configs(const Setting& s) const {
    return product_configs(
        op, s, op.transport, op.linear.residual && op.linear.dtype == DType::f32,
        [&](const Tile& tile) { return schedules(s.length, tile, s.target); },
        [](const Tile& tile) { return reduce_config(tile, 256, has_all_rows ? "two_shot" : "", "join", true); });
  }

  double predict_us(const Config& config, const Setting& s) const { return product_us(op.linear, op.ranks, config, s); }

  void build(const RankBuild<Op>& given) const {
    const Config& c = given.config;
    build_linear_reduce(given.b, op.linear, Tile::from(c), ReduceSchedule::from(c), reduce_form(c), op.transport,
                        given.shape, {op.norm, op.eps});
  }

  autotune::SizeExpr programs(const Config& c) const {
    return reduce_programs(partial_products(op.linear, Tile::from(c), op.transport, {op.norm, op.eps}),
                           ReduceSchedule::from(c), reduce_form(c), op.ranks.size());
  }

  std::vector<autotune::Workspace> workspaces(const Config& c) const {
    return {{"counters", DType::i32, num_counters(ReduceSchedule::from(c), reduce_form(c), op.ranks.size())}};
  }

  /// An all-reduce in one shot and one in two give the same in a call on one process: only the rank's own rows of x are
  /// not zero, and the other rows have the result of zeros.
  bool fill(const Problem& p, size_t arg, uint64_t seed) const {
    if (!has_all_rows) return false;
    return fill_all_reduce_arg(p, arg, op.ranks, exchange_of(op), seed, [&](int64_t row) {
      const std::vector<double> zeros(static_cast<size_t>(op.linear.n), 0.0);
      const Linear::Tensors<Tensor> t = tensors_of(op, p.tensors).of_linear();
      return linear_op::reference_epilogue(op.linear, t, {&row, 1}, {zeros, zeros}).y;
    });
  }

  void reference(const Problem& p, const typename Op::template Tensors<Tensor>& t, std::span<const int64_t> rows,
                 typename Op::template Tensors<std::vector<double>>& out) const {
    const Linear& s = op.linear;
    const int longest = op.ranks.longest();
    const int64_t first_own = op.ranks.first_row(longest, p.symbols[0]), first_of_y = has_all_rows ? 0 : first_own;
    std::vector<std::vector<double>> x;
    for (const int64_t row : rows) x.push_back(read_row(t.x, first_of_y + row));
    auto sums = linear_op::reference_products(s, t.of_linear(), x);
    for (size_t r = 0; r < rows.size(); ++r)
      for (int source = 0; source < longest && first_of_y + rows[r] >= first_own; ++source) {
        const std::vector<double> partial = staged_row(p, exchange_of(op), 0, source, first_of_y + rows[r] - first_own);
        for (size_t e = 0; e < partial.size(); ++e) sums[e / s.n][r * s.n + e % s.n] += partial[e];
      }
    out.y = linear_op::reference_epilogue(s, t.of_linear(), rows, std::move(sums)).y;
    if (op.norm) out.normed = reference_norm(t.norm_weight, op.eps, out.y);
  }

  autotune::Cost cost(std::span<const int64_t> symbols) const { return cost_of(op.linear, symbols[0]); }

  autotune::OpDef::Tolerance tolerance(int64_t) const {
    const Linear& s = op.linear;
    const auto world_size = static_cast<double>(op.ranks.world_size);
    auto result = kernels::tolerance(s.dtype, s.k * op.ranks.world_size);
    if (s.tf32) result.absolute += kTf32Error * std::sqrt(world_size);
    // Each partial sum is rounded, as are a gated pair's factors. They are normal with deviation 1; half of the spacing
    // of numbers below 4 in magnitude is one epsilon.
    if (op.transport != DType::f32)
      result.absolute += storage_epsilon(op.transport) * world_size * s.weights_per_loop();
    result.absolute *= std::max(1.0, std::abs(s.scale));
    // The norm is that of y as it is stored.
    if (op.norm && s.dtype != DType::f32) result.relative += 0.75 * storage_epsilon(s.dtype);
    return result;
  }

 private:
  std::vector<Config> schedules(int64_t length, const Tile& tile, const Target& target) const {
    std::vector<Config> configs;
    for (const std::string& reduction :
         has_all_rows ? reductions(op.linear, op.transport, length) : std::vector<std::string>{""})
      for (const std::string& order :
           reduction == "one_shot" ? std::vector<std::string>{""} : orders(op.ranks, length, target))
        for (const int64_t chunk_rows : chunks_of(reduction, order))
          if (const Config config = reduce_config(tile, chunk_rows, reduction, order, has_all_rows || op.norm);
              std::ranges::find(configs, config) == configs.end())
            configs.push_back(config);
    return configs;
  }
};

}  // namespace

void FusedAllgatherAndLinear::fields(FieldVisitor& v) {
  ranks.fields(v);
  linear.fields(v);
}

ExchangeShape FusedAllgatherAndLinear::exchange(int64_t chunk_rows) const {
  return gather_shape(linear, ranks.size(), chunk_rows);
}

const Protocol& FusedAllgatherAndLinear::protocol(const Config& config) {
  return protocol_of_gather(transfer_of(config));
}

template <bool has_all_rows>
void SummedLinear<has_all_rows>::fields(FieldVisitor& v) {
  ranks.fields(v);
  linear.fields(v);
  v.storage_type("transport", transport);
  v.flag("norm", norm);
  v.number("eps", eps, 0, 1);
  if (linear.n2) v.refuse("n2", "needs to be 0: sums over ranks have one weight, or a gated pair");
}

template <bool has_all_rows>
ExchangeShape SummedLinear<has_all_rows>::exchange(int64_t chunk_rows) const {
  const PartialShape partials{0, 0, linear.n, linear.weights_per_loop(), transport, linear.dtype};
  return reduce_shape(partials, has_all_rows ? ReduceForm::two_shot : ReduceForm::scatter, ranks.size(), chunk_rows);
}

template <bool has_all_rows>
const Protocol& SummedLinear<has_all_rows>::protocol(const Config& config) {
  return protocol_of(reduce_form(config));
}

template struct SummedLinear<false>;
template struct SummedLinear<true>;

autotune::OpDef fused_allgather_and_linear() {
  return rank_op<GatherKernel>("gather(x) w^T with linear's epilogue, in one launch of each rank", 8);
}
autotune::OpDef fused_linear_and_reducescatter() {
  return rank_op<SumKernel<false>>("own rows of the sum over ranks of x w^T, in one launch of each", 9);
}
autotune::OpDef linear_and_allreduce() {
  return rank_op<SumKernel<true>>("the sum over ranks of x w^T on every rank, in one launch of each", 9);
}

}  // namespace seqtile::kernels::seqpar

// kernels/seqpar/fused_linear.cpp -- see fused_linear.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/fused_linear.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "jit/base/channel_block.h"
#include "jit/base/hash.h"
#include "jit/error.h"
#include "kernels/row_kernel.h"
#include "kernels/seqpar/allgather_linear.h"
#include "kernels/seqpar/linear_reducescatter.h"
#include "kernels/tensor_values.h"
#include "kernels/tolerance.h"
#include "kernels/workload_reader.h"

namespace seqtile::kernels::seqpar {

using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::Workload;
using linear_op::Shape;
using linear_op::Tile;

namespace {

constexpr int64_t kSmallestChunk = 64;  ///< rows; channels have flags for chunks of this size

/// The fields of a fused operation that linear does not have.
constexpr const char* kOwnFields[] = {"world_size", "fabric", "transport"};

/// The product that every rank computes.
Workload product_of(const Workload& w) {
  Workload product{"linear", w.dtype, w.threads, {}};
  for (const auto& [name, value] : w.fields.values())
    if (std::ranges::find(kOwnFields, name) == std::end(kOwnFields)) product.fields.set(name, value);
  return product;
}

Workload normalize(const Workload& given, bool has_transport) {
  static const autotune::OpDef plain = linear();
  Workload own{given.operation, given.dtype, given.threads, {}};
  for (const char* name : kOwnFields)
    if (const auto found = given.fields.values().find(name); found != given.fields.values().end())
      own.fields.set(name, found->second);
  WorkloadReader reader(own);
  reader.required("world_size", 1, channel::kMaxRanks);
  reader.choice("fabric", {"threads", "processes", "sim:sm_80", "sim:sm_90a"});
  if (has_transport) reader.choice("transport", {"f32", "bf16", "f16"});
  own = reader.finish();
  Workload result = plain.normalize(product_of(given));
  result.operation = given.operation;
  for (const auto& [name, value] : own.fields.values()) result.fields.set(name, value);
  return result;
}

int world_size_of(const Workload& w) { return static_cast<int>(w.fields.get_int("world_size")); }

/// The rank with the most rows: whose call is measured.
int longest_rank(const Workload& w) { return world_size_of(w) - 1; }

int64_t first_row(int rank, int64_t length, int world_size) { return rank * length / world_size; }

int64_t own_rows(const Workload& w, int64_t length) {
  const int rank = longest_rank(w), size = world_size_of(w);
  return first_row(rank + 1, length, size) - first_row(rank, length, size);
}

/// A number of the operation and of what its schedule puts on the wire: ranks that differ in it give up.
int64_t identity_of(const Workload& w, int64_t chunk_rows) {
  const std::string text = fmt::format("{} {} {}", w.operation, w.json(), chunk_rows);
  return static_cast<int64_t>(std::stoull(sha256_hex(text).substr(0, 15), nullptr, 16));
}

GatherSchedule gather_schedule(const Config& c) {
  return {c.get_int("chunk_rows"), c.get_int("push_programs"), c.get_string("order") == "interleave"};
}

ReduceSchedule reduce_schedule(const Config& c) { return {c.get_int("chunk_rows"), c.get_int("sum_rows")}; }

DType transport_of(const Workload& w) { return parse_dtype(w.fields.get_string("transport")).value(); }

ExchangeShape gather_exchange(const Workload& w, int64_t chunk_rows) {
  return gather_shape(Shape(product_of(w)), world_size_of(w), identity_of(w, chunk_rows), chunk_rows);
}

ExchangeShape reduce_exchange(const Workload& w, int64_t chunk_rows) {
  return reduce_shape(Shape(product_of(w)), world_size_of(w), identity_of(w, chunk_rows), transport_of(w), chunk_rows);
}

ExchangeShape exchange_of(const Workload& w, int64_t chunk_rows) {
  return w.operation == "fused_allgather_and_linear" ? gather_exchange(w, chunk_rows) : reduce_exchange(w, chunk_rows);
}

/// The schema of linear with the sequence dimension of some tensors cut, and the channel.
Schema schema_with_channel(const Workload& w, const std::function<bool(const autotune::ArgSpec&)>& is_cut) {
  static const autotune::OpDef plain = linear();
  Schema schema = plain.schema(product_of(w));
  for (autotune::ArgSpec& arg : schema.args)
    if (is_cut(arg)) arg.dims[0] = "own_rows";
  schema.symbols.push_back("own_rows");
  add_channel_args(schema);
  return schema;
}

std::vector<int64_t> symbols_of(const Workload& w, int64_t length) {
  std::vector<int64_t> symbols{length, own_rows(w, length)};
  add_channel_symbols(symbols, exchange_of(w, kSmallestChunk), length);
  return symbols;
}

/// Tiles for the rows of one rank, of which a call computes those of all.
std::vector<Tile> tiles_for(const Workload& w, int64_t length, const Target& target) {
  const int64_t rows = (length + world_size_of(w) - 1) / world_size_of(w);
  return linear_op::candidates(Shape(product_of(w)), w.threads, rows, target);
}

double predict_us(const Workload& w, const Config& config, int64_t length, const Target& target) {
  return linear_op::predict_us(Shape(product_of(w)), Tile::from(config), w.threads, length, target);
}

int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

/// Every tile with the first schedule, and the best tile with all of them; best first.
autotune::ConfigSpace space_of(const Workload& w, int64_t length, const Target& target,
                               const std::function<std::vector<Config>(const Tile&)>& schedules) {
  autotune::ConfigSpace space;
  std::vector<Tile> tiles = tiles_for(w, length, target);
  std::ranges::stable_sort(tiles, {}, [&](const Tile& t) { return predict_us(w, t.config(), length, target); });
  for (size_t i = 0; i < tiles.size(); ++i) {
    std::vector<Config> configs = schedules(tiles[i]);
    if (i > 0) configs.resize(1);
    for (Config& config : configs) space.add(std::move(config));
  }
  return space;
}

Config default_of(const Workload& w, int64_t length, const Target& target,
                  const std::function<std::vector<Config>(const Tile&)>& schedules) {
  const std::vector<Tile> tiles = tiles_for(w, length, target);
  if (tiles.empty()) throw Error(ErrorCode::unsupported, fmt::format("{}: no tile fits {}", w.operation, target.name));
  const auto best =
      std::ranges::min(tiles, {}, [&](const Tile& t) { return predict_us(w, t.config(), length, target); });
  return schedules(best).front();
}

std::vector<Config> gather_schedules(const Tile& tile) {
  std::vector<Config> configs;
  for (const char* order : {"rotate", "interleave"})
    for (const int64_t chunk_rows : {256, 64}) {
      Config config = tile.config();
      config.set("chunk_rows", chunk_rows);
      config.set("push_programs", int64_t{1});
      config.set("order", std::string(order));
      configs.push_back(std::move(config));
    }
  return configs;
}

std::vector<Config> reduce_schedules(const Tile& tile) {
  std::vector<Config> configs;
  for (const int64_t chunk_rows : {256, 64}) {
    Config config = tile.config();
    config.set("chunk_rows", round_up(chunk_rows, tile.block_m));
    config.set("sum_rows", std::min<int64_t>(tile.block_m, 8));
    if (configs.empty() || configs.back() != config) configs.push_back(std::move(config));
  }
  return configs;
}

/// What both operations have in common.
autotune::OpDef base(const char* name, const char* summary,
                     const std::function<std::vector<Config>(const Tile&)>& schedules) {
  autotune::OpDef op;
  op.name = name;
  op.summary = summary;
  op.symbols = symbols_of;
  op.predict_us = predict_us;
  op.config_space = [schedules](const Workload& w, int64_t length, const Target& target) {
    return space_of(w, length, target, schedules);
  };
  op.default_config = [schedules](const Workload& w, int64_t length, const Target& target) {
    return default_of(w, length, target, schedules);
  };
  op.fill = [](const Problem& p, size_t arg, uint64_t seed) {
    const Workload& w = *p.workload;
    return fill_channel_arg(p, arg, exchange_of(w, kSmallestChunk), longest_rank(w), seed);
  };
  op.tolerance = [](const Workload& w, std::span<const int64_t>) {
    const bool is_sum = w.fields.contains("transport");
    const int64_t k = w.fields.get_int("k") * (is_sum ? world_size_of(w) : 1);
    autotune::OpDef::Tolerance result = tolerance(w.dtype, k);
    if (is_sum && transport_of(w) != DType::f32)  // each partial sum is rounded
      result.absolute += 0.5 * storage_epsilon(transport_of(w)) * world_size_of(w);
    return result;
  };
  return op;
}

autotune::Cost cost_of(const Workload& w, std::span<const int64_t> symbols) {
  static const autotune::OpDef plain = linear();
  return plain.cost(product_of(w), symbols.first(1));
}

void gather_reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  const Shape s(product_of(w));
  const int64_t length = p.symbols[0];
  std::vector<std::vector<double>> x;
  for (const int64_t row : rows) {
    int source = 0;
    while (row >= first_row(source + 1, length, world_size_of(w))) ++source;
    const int64_t local = row - first_row(source, length, world_size_of(w));
    x.push_back(source == longest_rank(w) ? read_row(p.tensors[0], local)
                                          : staged_row(p, gather_exchange(w, kSmallestChunk), 0, source, local));
  }
  linear_op::reference_epilogue(s, p, rows, linear_op::reference_products(s, p, x), outputs);
}

void reduce_reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  const Shape s(product_of(w));
  std::vector<std::vector<double>> x;
  for (const int64_t row : rows)
    x.push_back(read_row(p.tensors[0], first_row(longest_rank(w), p.symbols[0], world_size_of(w)) + row));
  auto sums = linear_op::reference_products(s, p, x);
  for (size_t r = 0; r < rows.size(); ++r)
    for (int source = 0; source < longest_rank(w); ++source) {
      const std::vector<double> partial = staged_row(p, reduce_exchange(w, kSmallestChunk), 0, source, rows[r]);
      for (size_t e = 0; e < partial.size(); ++e) sums[e / s.n[0]][r * s.n[0] + e % s.n[0]] += partial[e];
    }
  linear_op::reference_epilogue(s, p, rows, std::move(sums), outputs);
}

}  // namespace

ChannelNeeds channel_needs(const Workload& workload, int64_t capacity) {
  return needs_of(exchange_of(workload, kSmallestChunk), capacity);
}

Workload FusedAllgatherAndLinear::workload() const {
  Workload w = Linear{n, n2, n3, k, bias, activation, gated, false, false, 0, dtype, threads}.workload();
  w.operation = "fused_allgather_and_linear";
  w.fields.set("world_size", int64_t{world_size});
  w.fields.set("fabric", fabric);
  return w;
}

Workload FusedLinearAndReducescatter::workload() const {
  Workload w = Linear{n, 0, 0, k, bias, activation, false, residual, false, 0, dtype, threads}.workload();
  w.operation = "fused_linear_and_reducescatter";
  w.fields.set("world_size", int64_t{world_size});
  w.fields.set("fabric", fabric);
  w.fields.set("transport", std::string(dtype_name(transport)));
  return w;
}

autotune::OpDef fused_allgather_and_linear() {
  autotune::OpDef op = base("fused_allgather_and_linear",
                            "gather(x) w^T with linear's epilogue, in one launch of each rank", gather_schedules);
  op.version = 2;
  op.normalize = [](const Workload& w) { return normalize(w, false); };
  op.schema = [](const Workload& w) {
    return schema_with_channel(w, [](const autotune::ArgSpec& arg) { return arg.name == "x"; });
  };
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) {
    const GatherSchedule schedule = gather_schedule(c);
    build_allgather_linear(b, Shape(product_of(w)), Tile::from(c), schedule, world_size_of(w),
                           identity_of(w, schedule.chunk_rows));
  };
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    return {gather_programs(Shape(product_of(w)), Tile::from(c), gather_schedule(c), world_size_of(w)), {}, {}};
  };
  op.workspaces = [](const Workload&, const Config&) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, {1}}};
  };
  op.cost = cost_of;
  op.reference = gather_reference;
  return op;
}

autotune::OpDef fused_linear_and_reducescatter() {
  autotune::OpDef op = base("fused_linear_and_reducescatter",
                            "own rows of the sum over ranks of x w^T, in one launch of each", reduce_schedules);
  op.version = 2;
  op.normalize = [](const Workload& w) { return normalize(w, true); };
  op.schema = [](const Workload& w) {
    return schema_with_channel(w,
                               [](const autotune::ArgSpec& arg) { return arg.name == "residual" || arg.name == "y"; });
  };
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) {
    const ReduceSchedule schedule = reduce_schedule(c);
    build_linear_reducescatter(b, Shape(product_of(w)), Tile::from(c), schedule, world_size_of(w), transport_of(w),
                               identity_of(w, schedule.chunk_rows));
  };
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    return {reduce_programs(Shape(product_of(w)), Tile::from(c), reduce_schedule(c), world_size_of(w)), {}, {}};
  };
  op.workspaces = [](const Workload& w, const Config& c) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, num_counters(reduce_schedule(c), world_size_of(w))}};
  };
  op.cost = cost_of;
  op.reference = reduce_reference;
  return op;
}

}  // namespace seqtile::kernels::seqpar

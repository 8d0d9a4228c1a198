// jit/codegen/nvptx/hopper/tma_plan.cpp -- see tma_plan.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/hopper/tma_plan.h"

#include <algorithm>
#include <optional>

#include "jit/analysis/aliasing.h"

#include <fmt/format.h>

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;

namespace {

constexpr int64_t kGroupRows = 64, kMostRows = 256, kMostColumns = 256, kStep = 16;
constexpr int64_t kTmaAlignment = 16;

/// The origin of a view: its parameters (several if views are selected), and for each dimension of a parameter the
/// view's dimension, or -1 if an index fixes it.
struct Origin {
  std::vector<const ir::Value*> params;
  std::vector<int> dims;
  bool is_whole_rows = true;  ///< no slice cuts the innermost dimension
};

std::optional<Origin> origin_of(const ir::Value* view) {
  const Op* op = view->def;
  if (!op) {
    Origin origin{{view}, {}, true};
    for (int d = 0; d < view->type.rank; ++d) origin.dims.push_back(d);
    return origin;
  }
  if (op->kind == OpKind::select) {
    auto a = origin_of(op->operands[1]);
    const auto b = origin_of(op->operands[2]);
    if (!a || !b || a->dims != b->dims) return std::nullopt;
    a->params.insert(a->params.end(), b->params.begin(), b->params.end());
    a->is_whole_rows &= b->is_whole_rows;
    return a;
  }
  auto origin = origin_of(op->operands[0]);
  if (!origin) return std::nullopt;
  if (op->kind == OpKind::at) {
    const auto axis = static_cast<int>(op->int_attr("axis"));
    for (int& dim : origin->dims)
      if (dim == axis) dim = -1;
      else if (dim > axis) --dim;
  } else if (op->kind == OpKind::slice) {
    const ir::Type &whole = op->operands[0]->type, &part = view->type;
    origin->is_whole_rows &=
        part.shape[part.rank - 1] != ir::kDynamic && part.shape[part.rank - 1] == whole.shape[whole.rank - 1];
  } else {
    return std::nullopt;
  }
  return origin;
}

/// Whether the producer can compute `value` again: scalars and views from parameters, by pure operations and loads of
/// elements, outside of any region.
bool is_recomputable(const ir::Value* value, const ir::Block& body) {
  if (!value->def) return value->block == &body;
  if (value->type.is_tile() || value->def->parent != &body) return false;
  if (value->def->info().effects != ir::OpEffects::pure && value->def->kind != OpKind::load_scalar) return false;
  return std::all_of(value->def->operands.begin(), value->def->operands.end(),
                     [&](const ir::Value* operand) { return is_recomputable(operand, body); });
}

/// Whether `value` is the same in all programs that differ in axis 0 only.
bool is_same_along_rows(const ir::Value* value) {
  if (!value->def) return true;  // a parameter, or the loop's index
  if (value->def->kind == OpKind::program_id && value->def->int_attr("axis") == 0) return false;
  return std::all_of(value->def->operands.begin(), value->def->operands.end(), is_same_along_rows);
}

/// Which streams the blocks of a cluster share; the plan's cluster is 1 where there are none.
void share_streams(const Op& loop, TmaPlan& plan, int cluster) {
  constexpr int64_t kRowsOfAPart = 8;
  for (const codegen::Stream& stream : plan.found.streams) plan.streams.emplace_back().stream = stream;
  if (cluster < 2 || !std::all_of(loop.operands.begin(), loop.operands.begin() + 3, is_same_along_rows)) return;
  for (TmaStream& planned : plan.streams) {
    const Op& load = *planned.stream.load;
    planned.is_shared = load.results[0]->type.shape[0] % (kRowsOfAPart * cluster) == 0 &&
                        std::all_of(load.operands.begin(), load.operands.end(), is_same_along_rows);
    if (planned.is_shared) plan.cluster = cluster;
  }
}

std::string refuse_dot(const Op& dot, int num_warps, const codegen::StreamedLoop& loop) {
  const ir::Type &a = dot.operands[0]->type, &c = dot.results[0]->type;
  if (dtype_bytes(a.dtype) != 2) return fmt::format("wgmma takes no {} operands", dtype_name(a.dtype));
  if (c.shape[0] % (kGroupRows * num_warps / kGroupWarps) != 0)
    return fmt::format("{} rows are not {} for each of {} warp groups", c.shape[0], kGroupRows,
                       num_warps / kGroupWarps);
  if (c.shape[1] % 8 != 0 || c.shape[1] > kMostColumns)
    return fmt::format("{} columns are no multiple of 8 up to {}", c.shape[1], kMostColumns);
  if (a.shape[1] % kStep != 0) return fmt::format("k = {} is no multiple of {}", a.shape[1], kStep);
  const ir::Value* b = codegen::stored_operand(dot, 1);
  if (std::none_of(loop.streams.begin(), loop.streams.end(),
                   [&](const codegen::Stream& s) { return s.load->results[0] == b; }))
    return "operand b is not loaded in the loop";
  return "";
}

/// Fills in panels and maps of a tile of `view`, which moves in boxes of `box_rows`; the reason why TMA cannot move it,
/// or nothing.
std::string plan_tile(const ir::Function& function, const ir::Value* view, const ir::Type& type_of_tile,
                      int64_t box_rows, TmaTile& tile, TmaPlan& plan) {
  const auto origin = origin_of(view);
  if (!origin || !origin->is_whole_rows) return "a view does not have whole rows";
  tile.rows = type_of_tile.shape[0], tile.columns = type_of_tile.shape[1];
  tile.panel_bytes = panel_bytes_of(tile.columns * dtype_bytes(type_of_tile.dtype));
  if (tile.panel_bytes == 0) return fmt::format("rows of {} elements are no panels of 32 bytes", tile.columns);
  if (tile.rows % 8 != 0 || tile.rows > kMostRows) return fmt::format("a copy of {} rows", tile.rows);
  std::vector<TensorMapSpec> maps;
  for (const ir::Value* param : origin->params) {
    const ir::Type& type = param->type;
    if (!type.contiguous || type.alignment < kTmaAlignment) return "rows are not aligned to 16 bytes";
    TensorMapSpec map{0, type.dtype, {}, static_cast<uint32_t>(tile.panel_bytes)};
    for (const ir::Value* other : function.body().arguments) {
      if (other == param) break;
      map.first_slot += static_cast<uint32_t>(ir::num_slots(other->type));
    }
    const int64_t sides[] = {box_rows, tile.panel_bytes / dtype_bytes(type.dtype)};
    for (const int dim : origin->dims) map.box.push_back(dim < 0 ? 1 : static_cast<uint32_t>(sides[dim]));
    maps.push_back(map);
  }
  for (size_t i = 0; i < maps.size(); ++i) {
    const auto known = std::find(plan.maps.begin(), plan.maps.end(), maps[i]);
    tile.maps[origin->params[i]] = static_cast<int>(known - plan.maps.begin());
    if (known == plan.maps.end()) plan.maps.push_back(maps[i]);
  }
  return "";
}

/// Streams that one product reads belong together.
void group_streams(TmaPlan& plan) {
  const auto index_of = [&](const ir::Value* tile) {
    for (size_t i = 0; i < plan.streams.size(); ++i)
      if (plan.streams[i].stream.load->results[0] == tile) return static_cast<int>(i);
    return -1;
  };
  for (size_t i = 0; i < plan.streams.size(); ++i) plan.streams[i].group = static_cast<int>(i);
  for (const Op* op : plan.loop->regions[0]->ops) {
    if (op->kind != OpKind::dot) continue;
    const int a = index_of(codegen::stored_operand(*op, 0)), b = index_of(codegen::stored_operand(*op, 1));
    if (a < 0 || b < 0) continue;
    const int from = plan.streams[static_cast<size_t>(b)].group, to = plan.streams[static_cast<size_t>(a)].group;
    for (TmaStream& stream : plan.streams)
      if (stream.group == from) stream.group = to;
  }
  std::map<int, int> numbers;
  for (TmaStream& stream : plan.streams)
    stream.group = numbers.emplace(stream.group, static_cast<int>(numbers.size())).first->second;
  plan.num_groups = static_cast<int>(numbers.size());
}

std::string plan_loop(const ir::Function& function, const Op& loop, const codegen::Users& users, int num_warps,
                      int cluster, TmaPlan& plan) {
  plan.found = codegen::find_streams(loop, users);
  if (plan.found.streams.empty()) return "no loop streams operands of products";
  for (size_t i = 0; i < 3; ++i)
    if (!is_recomputable(loop.operands[i], function.body())) return "the loop's bounds are not known to the producer";
  const auto is_known = [&](const ir::Value* value) {
    const ir::Block* block = value->def ? value->def->parent : value->block;
    return block == loop.regions[0] || is_recomputable(value, function.body());
  };
  std::vector<const Op*> computed = plan.found.indices;
  for (const codegen::Stream& stream : plan.found.streams) computed.push_back(stream.load);
  for (const Op* op : computed)
    if (!std::all_of(op->operands.begin(), op->operands.end(), is_known))
      return "an address is not known to the producer";
  for (const Op* op : loop.regions[0]->ops) {
    if (op->kind != OpKind::dot) continue;
    if (std::string why = refuse_dot(*op, num_warps, plan.found); !why.empty()) return why;
  }
  share_streams(loop, plan, cluster);
  for (TmaStream& stream : plan.streams) {
    const Op& load = *stream.stream.load;
    const ir::Type& tile = load.results[0]->type;
    const int64_t box_rows = stream.is_shared ? tile.shape[0] / plan.cluster : tile.shape[0];
    if (std::string why = plan_tile(function, load.operands[0], tile, box_rows, stream, plan); !why.empty()) return why;
  }
  plan.loop = &loop;
  group_streams(plan);
  return "";
}

bool has_effect(const ir::Block& block, ir::OpEffects effect);

bool has_effect(const Op& op, ir::OpEffects effect) {
  return op.info().effects == effect || std::any_of(op.regions.begin(), op.regions.end(), [&](const ir::Block* region) {
           return has_effect(*region, effect);
         });
}

bool has_effect(const ir::Block& block, ir::OpEffects effect) {
  return std::any_of(block.ops.begin(), block.ops.end(), [&](const Op* op) { return has_effect(*op, effect); });
}

/// Whether nothing else may write the tensor that `store` writes, nor read it afterwards: TMA's accesses are not in
/// order with the threads'.
bool is_alone(const Op& store, const ir::Block& body) {
  bool is_behind = false;
  for (const Op* op : body.ops) {
    if (op == &store) is_behind = true;
    if (op == &store || !(has_effect(*op, ir::OpEffects::write) || (is_behind && has_effect(*op, ir::OpEffects::read))))
      continue;
    if (!op->regions.empty() || ir::may_share(op->operands[0], store.operands[0])) return false;
  }
  return true;
}

/// Results of 16 bits leave by TMA where it can move them.
void plan_store(const ir::Function& function, TmaPlan& plan) {
  const ir::Block& body = function.body();
  for (const Op* op : body.ops) {
    if (op->kind != OpKind::store) continue;
    const ir::Type& tile = op->operands.back()->type;
    if (dtype_bytes(tile.dtype) != 2 || tile.rank != 2 || !is_alone(*op, body)) continue;
    TmaTile stored;
    if (!plan_tile(function, op->operands[0], tile, tile.shape[0], stored, plan).empty()) continue;
    plan.store = op;
    plan.stored = std::move(stored);
    return;
  }
}

/// Loops in `op`, itself included, whose operands are copied ahead.
int64_t num_streamed_loops(const Op& op, const codegen::Users& users) {
  int64_t count = op.kind == OpKind::for_loop && !codegen::find_streams(op, users).streams.empty() ? 1 : 0;
  for (const ir::Block* region : op.regions)
    for (const Op* each : region->ops) count += num_streamed_loops(*each, users);
  return count;
}

/// Whether one product of the loop is computed from another's result in the same turn, as attention's are.
bool has_chained_products(const Op& loop) {
  const auto& ops = loop.regions[0]->ops;
  return std::any_of(ops.begin(), ops.end(), [&](const Op* first) {
    return first->kind == OpKind::dot && std::any_of(ops.begin(), ops.end(), [&](const Op* second) {
             return second != first && second->kind == OpKind::dot &&
                    codegen::follows_from(second->operands[0], first->results[0]);
           });
  });
}

/// Whether the loop takes the same turns in all programs and nothing else is in its shared memory, into which the next
/// program's operands come while this one goes on: no residents, no other loop's streams, no turn that is left over
/// (overlapped.cpp).
bool is_persistent(const ir::Function& function, const TmaPlan& plan, const codegen::Users& users) {
  const auto is_same = [](const ir::Value* bound) { return !bound->def || bound->def->kind == OpKind::constant; };
  const auto bounds = plan.loop->operands.begin();
  int64_t loops = 0;
  for (const Op* op : function.body().ops) loops += num_streamed_loops(*op, users);
  return plan.found.residents.empty() && loops == 1 && !has_chained_products(*plan.loop) &&
         std::all_of(bounds, bounds + 3, is_same);
}

}  // namespace

int64_t panel_bytes_of(int64_t row_bytes) {
  for (const int64_t bytes : {128, 64, 32})
    if (row_bytes % bytes == 0) return bytes;
  return 0;
}

TmaPlan plan_tma(const ir::Function& function, const Target& target, const codegen::Users& users, int num_warps,
                 int cluster) {
  TmaPlan none;
  if (!target.has_wgmma) none.refusal = target.name + " has no wgmma";
  else if (num_warps != kGroupWarps && num_warps != 2 * kGroupWarps)  // layouts know powers of two, three do not fit
    none.refusal = fmt::format("{} warps are not 1 or 2 warp groups", num_warps);
  else if (has_effect(function.body(), ir::OpEffects::sync)) none.refusal = "the kernel talks to other programs";
  if (!none.refusal.empty()) return none;
  none.refusal = "no loop streams operands of products";
  for (const Op* op : function.body().ops) {
    if (has_effect(*op, ir::OpEffects::write)) break;  // what the producer reads later is not ordered behind it
    if (op->kind != OpKind::for_loop) {
      if (num_streamed_loops(*op, users) == 0) continue;
      none.refusal = "a loop inside of another operation copies ahead";
      break;
    }
    TmaPlan plan;
    plan.refusal = plan_loop(function, *op, users, num_warps, cluster, plan);
    if (plan.refusal.empty()) {
      plan.is_persistent = is_persistent(function, plan, users);
      plan_store(function, plan);
      return plan;
    }
    none.refusal = plan.refusal;
    if (num_streamed_loops(*op, users) > 0) break;  // a producer would copy into the shared memory that it uses
  }
  return none;
}

}  // namespace seqtile::nvptx

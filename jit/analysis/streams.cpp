// jit/analysis/streams.cpp -- see streams.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/analysis/streams.h"

#include "jit/base/forever.h"

#include <algorithm>
#include <unordered_set>

namespace seqtile::codegen {

using ir::Op;
using ir::OpKind;

namespace {

void note_users(const ir::Block& block, Users& users) {
  for (const Op* op : block.ops) {
    for (const ir::Value* operand : op->operands) users[operand].push_back(op);
    for (const ir::Block* region : op->regions) note_users(*region, users);
  }
}

bool is_within(const ir::Block* block, const Op& loop) {
  for (; block && block->parent; block = block->parent->parent)
    if (block->parent == &loop) return true;
  return false;
}

bool is_defined_in(const ir::Value* value, const Op& loop) {
  return is_within(value->def ? value->def->parent : value->block, loop);
}

bool has_effects(const ir::Block& block) {
  return std::any_of(block.ops.begin(), block.ops.end(), [](const Op* op) {
    const auto effects = op->info().effects;
    return effects == ir::OpEffects::write || effects == ir::OpEffects::sync ||
           std::any_of(op->regions.begin(), op->regions.end(), [](const auto* r) { return has_effects(*r); });
  });
}

/// Collects the operations of the body that `value` is computed by; false where one is not pure arithmetic on scalars
/// and views.
bool collect_indices(const ir::Value* value, const Op& loop, std::unordered_set<const Op*>& found) {
  if (!is_defined_in(value, loop)) return true;
  if (!value->def) return value->block == loop.regions[0] && value->index == 0;  // the loop's index
  if (value->type.is_tile() || value->def->info().effects != ir::OpEffects::pure) return false;
  if (value->def->parent != loop.regions[0]) return false;
  found.insert(value->def);
  return std::all_of(value->def->operands.begin(), value->def->operands.end(),
                     [&](const ir::Value* operand) { return collect_indices(operand, loop, found); });
}

/// The product that reads the load first, where products of the same block are all that reads it, in one way.
std::optional<Stream> only_read_by_products(const Op& load, const Users& users) {
  std::optional<Stream> first;
  const auto note = [&](const Op& dot, size_t operand) {
    if (!first) first = Stream{&load, &dot, operand};
    return first->operand == operand && dot.parent == load.parent &&
           is_transposed(dot.operands[operand]) == is_transposed(first->dot->operands[operand]);
  };
  const auto readers = [&](const ir::Value* value) -> const std::vector<const Op*>& {
    static const auto& none = forever(std::vector<const Op*>());
    const auto found = users.find(value);
    return found == users.end() ? none : found->second;
  };
  for (const Op* user : readers(load.results[0])) {
    if (user->kind == OpKind::dot) {
      if (user->operands[2] == load.results[0] || user->operands[0] == user->operands[1]) return std::nullopt;
      if (!note(*user, user->operands[0] == load.results[0] ? 0 : 1)) return std::nullopt;
    } else if (user->kind == OpKind::trans && is_transposed(user->results[0])) {
      const ir::Value* turned = user->results[0];
      for (const Op* dot : readers(turned))
        if (dot->kind != OpKind::dot || dot->operands[2] == turned || dot->operands[0] == dot->operands[1] ||
            !note(*dot, dot->operands[0] == turned ? 0 : 1))
          return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return first;
}

void find_residents(const Op& loop, StreamedLoop& found) {
  for (const Op* op : loop.regions[0]->ops) {
    if (op->kind != OpKind::dot) continue;
    for (const size_t operand : {size_t{0}, size_t{1}}) {
      const ir::Value* tile = stored_operand(*op, operand);
      const bool is_known = std::any_of(found.residents.begin(), found.residents.end(),
                                        [&](const Stream& s) { return s.load->results[0] == tile; });
      if (tile->def && !is_defined_in(tile, loop) && !is_known && tile->def->results.size() == 1)
        found.residents.push_back({tile->def, op, operand});
    }
  }
}

}  // namespace

bool is_zero(const ir::Value* tile) {
  if (!tile->def || tile->def->kind != OpKind::full) return false;
  const Op* scalar = tile->def->operands[0]->def;
  return scalar && scalar->kind == OpKind::constant && scalar->float_attr("value", 1) == 0;
}

bool follows_from(const ir::Value* tile, const ir::Value* source) {
  std::unordered_set<const ir::Value*> seen;
  std::vector<const ir::Value*> open = {tile};
  while (!open.empty()) {
    const ir::Value* value = open.back();
    open.pop_back();
    if (value == source) return true;
    if (!value->def || !seen.insert(value).second) continue;
    const auto group = value->def->info().group;
    if (group != ir::OpGroup::unary && group != ir::OpGroup::binary) continue;
    for (const ir::Value* operand : value->def->operands)
      if (operand->type.is_tile()) open.push_back(operand);
  }
  return false;
}

Users users_of(const ir::Function& function) {
  Users users;
  note_users(function.body(), users);
  return users;
}

bool is_transposed(const ir::Value* tile) {
  if (!tile->def || tile->def->kind != OpKind::trans) return false;
  return std::get<std::vector<int64_t>>(tile->def->attributes.at("perm")) == std::vector<int64_t>{1, 0};
}

const ir::Value* stored_operand(const Op& dot, size_t operand) {
  const ir::Value* tile = dot.operands[operand];
  return is_transposed(tile) ? tile->def->operands[0] : tile;
}

StreamedLoop find_streams(const Op& loop, const Users& users) {
  StreamedLoop found{&loop, {}, {}, {}};
  const ir::Block& body = *loop.regions[0];
  if (loop.kind != OpKind::for_loop || has_effects(body)) return found;
  std::unordered_set<const Op*> indices;
  for (const Op* op : body.ops) {
    if (op->kind != OpKind::load || op->float_attr("fill") != 0 || op->results[0]->type.rank != 2) continue;
    const auto stream = only_read_by_products(*op, users);
    const bool is_early = std::all_of(op->operands.begin(), op->operands.end(), [&](const ir::Value* operand) {
      return collect_indices(operand, loop, indices);
    });
    if (stream && is_early) found.streams.push_back(*stream);
  }
  if (found.streams.empty()) return found;
  for (const Op* op : body.ops)
    if (indices.contains(op)) found.indices.push_back(op);
  find_residents(loop, found);
  return found;
}

}  // namespace seqtile::codegen

// jit/codegen/cpu/aliasing.cpp -- tensors that are updated in place: what a store may change before it is read.
// SPDX-License-Identifier: Apache-2.0
//
// Tensors of one call overlap only as the same tensor. Most kernels that work in place read each row before they write
// it; loads for which that does not hold are copied to the arena before the group that stores.
#include <algorithm>
#include <set>

#include "jit/analysis/aliasing.h"
#include "jit/codegen/cpu/program.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpKind;

namespace {

bool is_lazy(const Op& op) {
  const auto group = op.info().group;
  return op.info().effects == ir::OpEffects::pure && group != ir::OpGroup::reduce && group != ir::OpGroup::dot &&
         group != ir::OpGroup::control;
}

bool is_inside(const Op* op, const ir::Block* block) {
  for (const ir::Block* b = op->parent; b; b = b->parent ? b->parent->parent : nullptr)
    if (b == block) return true;
  return false;
}

// Whether `store` may change elements of `load` before they are read, when both go over the same rows in step.
bool overtakes(const Op& store, const Op& load, bool is_moved) {
  const ir::Overlap how = ir::overlap(ir::region_of(load), ir::region_of(store));
  if (how == ir::Overlap::none) return false;
  return is_moved || how == ir::Overlap::some || load.results[0]->type.rank != store.operands.back()->type.rank;
}

}  // namespace

bool Program::has_later_use(const ir::Value* value) const {
  const auto is_used_by = [&](const Op& user, const ir::Value* used) {
    if (position_.at(&user) >= position_.at(current_) + is_after_current_) return true;
    return std::any_of(scope_.begin(), scope_.end(), [&](const ir::Block* block) {  // the next turn of a loop around us
      const bool loops = block->parent && block->parent->kind != OpKind::if_then;
      return loops && is_inside(&user, block) && used->def && !is_inside(used->def, block);
    });
  };
  std::vector<const ir::Value*> open{value};
  std::set<const ir::Value*> seen{value};
  while (!open.empty()) {
    const ir::Value* used = open.back();
    open.pop_back();
    const auto users = users_.find(used);
    if (users == users_.end()) continue;
    for (const Op* user : users->second) {
      if (!is_lazy(*user) && is_used_by(*user, used)) return true;
      if (!is_lazy(*user)) continue;
      for (const ir::Value* result : user->results)
        if (seen.insert(result).second) open.push_back(result);
    }
  }
  return false;
}

// Loads of `value` whose memory a store of the group may change before they are read.
void Program::collect_overtaken(const ir::Value* value, bool is_moved, std::set<const Op*>& loads) const {
  if (!value->type.is_tile() || buffers_.count(value) || !value->def) return;
  const Op& op = *value->def;
  if (op.info().group == ir::OpGroup::reduce) return;
  if (op.kind == OpKind::load)
    for (const Root& root : pending_)
      if (root.kind == Root::Kind::store && overtakes(*root.op, op, is_moved)) loads.insert(&op);
  is_moved |= op.kind == OpKind::trans || op.kind == OpKind::reshape || op.kind == OpKind::concat;
  for (const ir::Value* operand : tile_operands(op)) collect_overtaken(operand, is_moved, loads);
}

// Loads whose memory this group may store to before they are read, in it or after it, are copied first.
void Program::protect_loads() {
  std::vector<const ir::Value*> stored;
  for (const Root& root : pending_)
    if (root.kind == Root::Kind::store) stored.push_back(root.op->operands[0]);
  if (stored.empty()) return;
  const auto may_alias = [&](const ir::Value* view) {
    return std::any_of(stored.begin(), stored.end(), [&](const ir::Value* s) { return ir::may_share(view, s); });
  };
  std::set<const Op*> overtaken;
  for (const Root& root : pending_) collect_overtaken(root.value, false, overtaken);
  std::vector<Root> early;
  for (const ir::Block* block : scope_)
    for (const Op* op : block->ops) {
      if (position_.at(op) >= position_.at(current_)) break;
      if (!is_read(*op) || buffers_.count(op->results[0]) || !may_alias(op->operands[0])) continue;
      if (overtaken.count(op) || has_later_use(op->results[0]))
        early.push_back({Root::Kind::materialise, op, op->results[0], reserve_tile(op->results[0]->type)});
    }
  if (early.empty()) return;
  std::vector<Root> later;
  later.swap(pending_);
  const std::vector<int64_t> outer = pending_outer_;
  for (Root& root : early) {
    pending_outer_ = outer_dims(root.value->type);
    pending_ = {root};
    emit_group();
    buffers_[root.value] = root.buffer;
  }
  pending_.swap(later);
  pending_outer_ = outer;
}

}  // namespace seqtile::cpu

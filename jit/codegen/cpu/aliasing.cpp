// jit/codegen/cpu/aliasing.cpp -- tensors that are updated in place: what a store may change before it is read.
// SPDX-License-Identifier: Apache-2.0
//
// Tensors of one call overlap only as the same tensor. Most kernels that work in place read each row before they write
// it; loads for which that does not hold are copied to the arena before the group that stores.
#include <algorithm>
#include <set>

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

const ir::Value* parameter_of(const ir::Value* view) {
  while (view->def && !view->def->operands.empty() && view->def->kind == OpKind::slice) view = view->def->operands[0];
  return view;
}

// Tensors of one call overlap only as the same tensor, which has the same sizes.
bool may_be_same(const ir::Value* a, const ir::Value* b) {
  const ir::Type &x = parameter_of(a)->type, &y = parameter_of(b)->type;
  if ((x.noalias && y.noalias) || x.dtype != y.dtype || x.rank != y.rank) return false;
  for (int d = 0; d < x.rank; ++d)
    if (x.shape[d] != ir::kDynamic && y.shape[d] != ir::kDynamic && x.shape[d] != y.shape[d]) return false;
  return true;
}

bool is_same_window(const ir::Value* a, const ir::Value* b) {
  if (a == b || (!a->def && !b->def)) return true;
  if (!a->def || !b->def || a->def->kind != OpKind::slice || b->def->kind != OpKind::slice) return false;
  const auto &x = a->def->operands, &y = b->def->operands;
  return a->type.shape == b->type.shape && std::equal(x.begin() + 1, x.end(), y.begin() + 1, y.end()) &&
         is_same_window(x[0], y[0]);
}

// Whether `store` may change elements of `load` before they are read, when both go over the same rows in step.
bool overtakes(const Op& store, const Op& load, bool is_moved) {
  const ir::Value *to = store.operands[0], *from = load.operands[0];
  if (!may_be_same(from, to)) return false;
  if (!is_same_window(from, to)) return true;
  const ir::Type &read = load.results[0]->type, &written = store.operands.back()->type;
  if (read.rank != written.rank) return true;
  bool is_same_place = true;
  for (int d = 0; d < read.rank; ++d) {
    const ir::Value *a = load.operands[static_cast<size_t>(1 + d)], *b = store.operands[static_cast<size_t>(1 + d)];
    const auto x = constant_int(a), y = constant_int(b);
    if (x && y && (*x + read.shape[d] <= *y || *y + written.shape[d] <= *x)) return false;
    is_same_place &= (a == b || (x && y && *x == *y)) && read.shape[d] == written.shape[d];
  }
  return is_moved || !is_same_place;
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
    return std::any_of(stored.begin(), stored.end(), [&](const ir::Value* s) { return may_be_same(view, s); });
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

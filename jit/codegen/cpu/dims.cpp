// jit/codegen/cpu/dims.cpp -- see dims.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/dims.h"

#include "jit/base/forever.h"

#include <numeric>

namespace seqtile::cpu {

using ir::Op;
using ir::OpGroup;
using ir::OpKind;
using ir::Value;

DimClasses::DimClasses(const ir::Function& function) {
  visit(function.body());
  std::map<int, DimClass> merged;
  for (auto& [id, info] : classes_) {
    int root = id;
    while (parent_[root] != root) root = parent_[root];
    DimClass& target = merged[root];
    target.whole |= info.whole;
    target.stores.insert(target.stores.end(), info.stores.begin(), info.stores.end());
  }
  classes_ = std::move(merged);
}

int DimClasses::node(const Key& key) {
  const auto [it, added] = nodes_.try_emplace(key, static_cast<int>(parent_.size()));
  if (added) parent_.push_back(it->second);
  return it->second;
}

int DimClasses::find(const Key& key) const {
  const auto it = nodes_.find(key);
  if (it == nodes_.end()) return -1;
  int id = it->second;
  while (parent_[id] != id) id = parent_[id] = parent_[parent_[id]];
  return id;
}

const DimClass& DimClasses::of(const Value* tile, int dim) const {
  static const DimClass& kNone = forever(DimClass{true, {}});
  const int id = find({tile, dim});
  const auto it = classes_.find(id);
  return it == classes_.end() ? kNone : it->second;
}

void DimClasses::join(const Value* a, int dim_a, const Value* b, int dim_b) {
  node({a, dim_a}), node({b, dim_b});
  parent_[find({a, dim_a})] = find({b, dim_b});
}

void DimClasses::join_all(const Value* a, const Value* b) {
  if (!a->type.is_tile() || !b->type.is_tile()) return;
  for (int d = 0; d < a->type.rank; ++d)
    if (a->type.shape[d] == b->type.shape[d]) join(a, d, b, d);
}

void DimClasses::mark_whole(const Value* tile, int dim) { classes_[node({tile, dim})].whole = true; }

void DimClasses::visit(const ir::Block& block) {
  for (const Op* op : block.ops) visit(*op);
}

void DimClasses::visit(const Op& op) {
  switch (op.info().group) {
    case OpGroup::unary:
    case OpGroup::binary:
      for (const Value* operand : op.operands) join_all(operand, op.results[0]);
      break;
    case OpGroup::create:
      for (const Value* operand : op.operands) join_all(operand, op.results[0]);
      break;
    case OpGroup::shape: visit_shape(op); break;
    case OpGroup::reduce: {
      const int axis = static_cast<int>(op.int_attr("axis"));
      const Value* tile = op.operands[0];
      mark_whole(tile, axis);
      // Prefix sums, and what is reduced over another axis than the last, are computed as a whole.
      if (op.kind != OpKind::reduce || axis + 1 != tile->type.rank)
        for (int d = 0; d < tile->type.rank; ++d) mark_whole(tile, d);
      for (const Value* result : op.results)
        for (int d = 0, r = 0; d < tile->type.rank; ++d) {
          if (op.kind == OpKind::scan) join(tile, d, result, d);
          else if (d != axis) join(tile, d, result, r++);
        }
      break;
    }
    case OpGroup::dot: {
      const Value *a = op.operands[0], *b = op.operands[1], *c = op.operands[2];
      join_all(c, op.results[0]);
      join(a, 0, c, 0), join(b, 1, c, 1), join(a, 1, b, 0);
      mark_whole(a, 1);
      break;
    }
    case OpGroup::memory: visit_memory(op); break;
    case OpGroup::control: visit_control(op); break;
    case OpGroup::sync:
    case OpGroup::debug: break;
  }
}

void DimClasses::visit_shape(const Op& op) {
  const Value *from = op.operands[0], *to = op.results[0];
  const int rank = from->type.rank;
  switch (op.kind) {
    case OpKind::expand:
      for (int d = 0, r = 0; d < rank; ++d, ++r) {
        if (r == op.int_attr("axis")) ++r;
        join(from, d, to, r);
      }
      break;
    case OpKind::broadcast: join_all(from, to); break;
    case OpKind::trans: {
      const auto& perm = std::get<std::vector<int64_t>>(op.attributes.at("perm"));
      for (int d = 0; d < rank; ++d) join(from, static_cast<int>(perm[d]), to, d);
      break;
    }
    case OpKind::reshape:
      for (int d = 0; d < rank; ++d) mark_whole(from, d);
      break;
    default:  // split, join, concat change the last dimension only
      for (const Value* operand : op.operands) {
        for (const Value* result : op.results)
          for (int d = 0; d + 1 < rank; ++d) join(operand, d, result, d);
        mark_whole(operand, rank - 1);
      }
  }
}

void DimClasses::visit_memory(const Op& op) {
  if (op.kind == OpKind::store || op.kind == OpKind::store_add) {
    const Value *view = op.operands[0], *tile = op.operands.back();
    for (int d = 0; d < tile->type.rank; ++d)
      classes_[node({tile, d})].stores.push_back({view, d, op.operands[1 + d], tile->type.shape[d]});
  } else if (op.kind == OpKind::scatter) {
    const Value *view = op.operands[0], *rows = op.operands[1], *tile = op.operands[3];
    join(rows, 0, tile, 0);
    mark_whole(tile, 0);
    classes_[node({tile, 1})].stores.push_back({view, 1, op.operands[2], tile->type.shape[1]});
  } else if (op.kind == OpKind::gather) {
    join(op.operands[1], 0, op.results[0], 0);
  }
}

void DimClasses::visit_control(const Op& op) {
  const auto tie = [&](const std::vector<Value*>& values, size_t skip, const std::vector<Value*>& others) {
    for (size_t i = 0; i < others.size(); ++i) join_all(values[skip + i], others[i]);
  };
  for (const ir::Block* region : op.regions) visit(*region);
  if (op.kind == OpKind::for_loop) {
    tie(op.operands, 3, op.results);
    tie(op.regions[0]->arguments, 1, op.results);
    tie(op.regions[0]->yielded(), 0, op.results);
  } else if (op.kind == OpKind::if_then) {
    for (const ir::Block* region : op.regions) tie(region->yielded(), 0, op.results);
  } else if (op.kind == OpKind::while_loop) {
    tie(op.operands, 0, op.results);
    for (const ir::Block* region : op.regions) tie(region->arguments, 0, op.results);
    tie(op.regions[0]->yielded(), 1, op.results);
    tie(op.regions[1]->yielded(), 0, op.results);
  }
}

std::optional<int64_t> constant_int(const Value* scalar) {
  if (!scalar->def || scalar->def->kind != OpKind::constant || !is_integer(scalar->type.dtype)) return std::nullopt;
  return scalar->def->int_attr("value");
}

int64_t known_divisor(const Value* scalar) {
  const Op* op = scalar->def;
  if (!op) {  // a loop's induction variable is lo plus multiples of step
    const Op* loop = scalar->block ? scalar->block->parent : nullptr;
    if (!loop || loop->kind != OpKind::for_loop || scalar->index != 0) return 1;
    return std::gcd(known_divisor(loop->operands[0]), known_divisor(loop->operands[2]));
  }
  switch (op->kind) {
    case OpKind::constant: return std::abs(op->int_attr("value", 1));
    case OpKind::add:
    case OpKind::sub:
    case OpKind::min:
    case OpKind::max: return std::gcd(known_divisor(op->operands[0]), known_divisor(op->operands[1]));
    case OpKind::select: return std::gcd(known_divisor(op->operands[1]), known_divisor(op->operands[2]));
    case OpKind::mul: {
      const int64_t a = known_divisor(op->operands[0]), b = known_divisor(op->operands[1]);
      return a > (int64_t{1} << 30) || b > (int64_t{1} << 30) ? std::max(a, b) : a * b;
    }
    case OpKind::size: {
      const int64_t size = op->operands[0]->type.shape[op->int_attr("axis")];
      return size == ir::kDynamic ? 1 : size;
    }
    default: return 1;
  }
}

bool is_same_scalar(const Value* a, const Value* b) {
  return a == b || (constant_int(a) && constant_int(a) == constant_int(b));
}

namespace {

// `condition` is a >= b, or where it does not hold.
bool is_at_least(const Value* condition, bool holds, const Value* a, const Value* b) {
  const Op* cmp = condition->def;
  if (!cmp || cmp->kind != OpKind::cmp || !is_same_scalar(cmp->operands[0], a) || !is_same_scalar(cmp->operands[1], b))
    return false;
  const std::string_view predicate = cmp->string_attr("predicate");
  return holds ? predicate == "ge" || predicate == "gt" || predicate == "eq" : predicate == "lt";
}

// Some branch around `block` is taken only where a >= b, as of programs that are numbered behind others.
bool is_where_no_less(const ir::Block* block, const Value* a, const Value* b) {
  for (; block && block->parent; block = block->parent->parent) {
    const Op& op = *block->parent;
    if (op.kind == OpKind::if_then && is_at_least(op.operands[0], block == op.regions[0], a, b)) return true;
  }
  return false;
}

}  // namespace

bool is_never_negative(const Value* scalar, const ir::Block* where) {
  const Op* op = scalar->def;
  if (!op) {  // a loop counts up from lo
    const Op* loop = scalar->block ? scalar->block->parent : nullptr;
    return loop && loop->kind == OpKind::for_loop && scalar->index == 0 && is_never_negative(loop->operands[0], where);
  }
  const auto is = [&](size_t operand) { return is_never_negative(op->operands[operand], where); };
  switch (op->kind) {
    case OpKind::constant: return is_integer(scalar->type.dtype) && op->int_attr("value") >= 0;
    case OpKind::program_id:
    case OpKind::num_programs:
    case OpKind::size: return true;
    case OpKind::max: return is(0) || is(1);
    case OpKind::rem: return is(0);  // it has the dividend's sign
    case OpKind::add:
    case OpKind::mul:
    case OpKind::div:
    case OpKind::min: return is(0) && is(1);
    case OpKind::sub: return is_where_no_less(where, op->operands[0], op->operands[1]);
    case OpKind::select: {
      const Op* taken = op->operands[1]->def;
      const bool is_difference = taken && taken->kind == OpKind::sub &&
                                 is_at_least(op->operands[0], true, taken->operands[0], taken->operands[1]);
      return (is_difference || is(1)) && is(2);
    }
    default: return false;
  }
}

bool in_range(const Value* offset, int64_t extent, int64_t size) {
  if (size == ir::kDynamic) return false;
  if (const auto value = constant_int(offset)) return *value >= 0 && *value + extent <= size;
  const Op* loop = !offset->def && offset->block ? offset->block->parent : nullptr;
  if (!loop || loop->kind != OpKind::for_loop || offset->index != 0) return false;
  const auto lo = constant_int(loop->operands[0]), hi = constant_int(loop->operands[1]);
  if (!lo || !hi || *lo < 0 || *hi > size) return false;
  return size % extent == 0 && known_divisor(offset) % extent == 0;
}

bool is_read(const ir::Op& op) { return op.kind == ir::OpKind::load || op.kind == ir::OpKind::gather; }

std::vector<const ir::Value*> tile_operands(const ir::Op& op) {
  std::vector<const ir::Value*> tiles;
  if (op.kind == ir::OpKind::load) return tiles;
  for (const ir::Value* operand : op.operands)
    if (operand->type.is_tile()) tiles.push_back(operand);
  return tiles;
}

std::vector<int64_t> outer_dims(const ir::Type& type) {
  return {type.shape.begin(), type.shape.begin() + std::max(0, type.rank - 1)};
}

}  // namespace seqtile::cpu

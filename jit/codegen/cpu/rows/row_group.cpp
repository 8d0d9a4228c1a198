// jit/codegen/cpu/rows/row_group.cpp -- roots that share their outer dimensions share one loop over rows.
// SPDX-License-Identifier: Apache-2.0
//
// A row is passed over once a *level*: level 0 holds what depends on memory alone, level n + 1 what depends on a
// reduction of level n. For y = x / sum(x * x):
//
//   for each row r:  level 0: for c: acc += x[r, c] * x[r, c]      -> s[r]
//                    level 1: for c: y[r, c] = x[r, c] / s[r]
//
// A value that two levels compute is kept in a one-row buffer when it is worth it, and always when a store of the group
// could change the memory that it was read from.
#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "jit/base/assert.h"
#include "jit/codegen/cpu/program.h"
#include "jit/codegen/cpu/rows/reductions.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int64_t kReduceUnroll = 4, kStoreUnroll = 2;

bool is_trivial(const ir::Value* value) {
  const Op& op = *value->def;
  if (op.kind == OpKind::cast) return !op.operands[0]->def || is_trivial(op.operands[0]);
  const auto group = op.info().group;
  return is_read(op) || group == ir::OpGroup::create || group == ir::OpGroup::shape;
}

}  // namespace

bool Program::is_visible(const ir::Value* value) const {
  const ir::Block* block = value->def ? value->def->parent : value->block;
  return std::find(scope_.begin(), scope_.end(), block) != scope_.end();
}

bool Program::is_limited(const ir::Value* tile, int dim) const {
  const DimClass& info = dims_.of(tile, dim);
  if (info.whole || info.stores.empty()) return false;
  for (const StoreBound& bound : info.stores) {
    if (in_range(bound.offset, bound.extent, bound.view->type.shape[bound.axis])) return false;
    if (!is_visible(bound.view) || !is_visible(bound.offset)) return false;
    if (!views_.count(bound.view) || !scalars_.count(bound.offset)) return false;
  }
  return true;
}

Limit Program::limit(const ir::Value* tile, int dim) {
  const int64_t extent = tile->type.shape[dim];
  if (!is_limited(tile, dim)) return {e_.i64(extent), extent};
  Limit result{nullptr, extent};
  for (const StoreBound& bound : dims_.of(tile, dim).stores) {
    const int64_t size = bound.view->type.shape[bound.axis];
    Value* left = e_.b.CreateSub(views_.at(bound.view).sizes[bound.axis], scalars_.at(bound.offset));
    Value* count = e_.max_i64(e_.i64(0), e_.min_i64(left, e_.i64(extent)));
    result.count = result.count ? e_.max_i64(result.count, count) : count;
    result.divisor = std::gcd(result.divisor, std::gcd(known_divisor(bound.offset), size == ir::kDynamic ? 1 : size));
  }
  return result;
}

// Level of `value`: one more than the deepest pending reduction that it reads at its own row; kNotAligned where it
// reads one at another row, or memory that a pending store may have changed.
int Program::level_of(const ir::Value* value, const std::vector<int>& map) {
  constexpr int kNotAligned = -1;
  if (!value->type.is_tile()) return 0;
  for (const Root& root : pending_) {
    const bool is_result = root.kind == Root::Kind::reduce && root.op->results[0] == value;
    const bool is_copy = root.kind == Root::Kind::materialise && root.value == value;
    if (!is_result && !is_copy) continue;
    for (size_t d = 0; d < map.size(); ++d)
      if (map[d] != static_cast<int>(d)) return kNotAligned;
    return is_result ? root.level + 1 : root.level;
  }
  if (buffers_.count(value) || !value->def) return 0;
  const Op& op = *value->def;
  if (is_read(op))
    for (const Root& root : pending_)
      if (root.kind == Root::Kind::store && position_.at(root.op) < position_.at(&op)) return kNotAligned;
  int level = 0;
  for (const ir::Value* operand : tile_operands(op)) {
    std::vector<int> inner = map;
    if (op.kind == OpKind::expand) inner.erase(inner.begin() + op.int_attr("axis"));
    if (op.kind == OpKind::trans) {
      const auto& perm = std::get<std::vector<int64_t>>(op.attributes.at("perm"));
      for (size_t d = 0; d < perm.size(); ++d) inner[perm[d]] = map[d];
    }
    if (op.kind == OpKind::reshape) inner.assign(operand->type.rank, kNotAligned);
    if (op.kind == OpKind::gather) inner = {map[0]};
    const int operand_level = level_of(operand, inner);
    if (operand_level == kNotAligned) return kNotAligned;
    level = std::max(level, operand_level);
  }
  return level;
}

// Loops of a group run as far as its stores need, and checks are left out where a tile's own bound says so: both hold
// for all roots only when they have the same bounds.
bool Program::has_bounds_of_group(const ir::Value* tile) const {
  const ir::Value* other = pending_[0].value;
  for (int d = 0; d < tile->type.rank; ++d) {
    if (d + 1 == tile->type.rank && tile->type.shape[d] != other->type.shape[d])
      continue;  // columns loop by themselves
    if (&dims_.of(tile, d) != &dims_.of(other, d) && (is_limited(tile, d) || is_limited(other, d))) return false;
  }
  return true;
}

void Program::add_root(Root root) {
  const std::vector<int64_t> outer = outer_dims(root.value->type);
  std::vector<int> map(root.value->type.rank);
  for (size_t d = 0; d < map.size(); ++d) map[d] = static_cast<int>(d);
  if (!pending_.empty() && (outer != pending_outer_ || !has_bounds_of_group(root.value))) flush();
  root.level = level_of(root.value, map);
  if (root.level < 0) {
    flush();
    root.level = level_of(root.value, map);
    SEQTILE_ASSERT(root.level == 0);
  }
  if (root.in_place)
    for (const Root& other : pending_) root.level = std::max(root.level, other.level);
  pending_outer_ = outer;
  pending_.push_back(std::move(root));
}

// Values that two levels compute get a buffer of one row, written by the first level that needs them.
void Program::add_shared_rows() {
  std::map<const ir::Value*, int> first_level;
  std::set<const ir::Value*> shared;
  int store_level = 1 << 20, last_level = 0;
  for (const Root& root : pending_) {
    if (root.kind == Root::Kind::store) store_level = std::min(store_level, root.level);
    last_level = std::max(last_level, root.level);
  }
  const ir::Type* row_type = nullptr;
  const auto visit = [&](const auto& self, const ir::Value* value, int level) -> void {
    if (!value->type.is_tile() || buffers_.count(value) || !value->def || shared.count(value)) return;
    if (value->def->info().group == ir::OpGroup::reduce) return;
    const bool full_row = value->type.rank == row_type->rank && value->type.shape == row_type->shape;
    if (const auto it = first_level.find(value); it != first_level.end() && it->second < level) {
      if (full_row && (!is_trivial(value) || store_level < level)) {
        shared.insert(value);
        return;
      }
    } else {
      first_level.emplace(value, level);
    }
    for (const ir::Value* operand : tile_operands(*value->def)) self(self, operand, level);
  };
  for (int level = 0; level <= last_level; ++level)
    for (const Root& root : pending_)
      if (root.level == level) {
        row_type = &root.value->type;
        visit(visit, root.value, level);
      }
  for (const ir::Value* value : shared) {
    Buffer buffer = reserve_row(value->type);
    pending_.push_back({Root::Kind::materialise, nullptr, value, buffer, first_level.at(value)});
    pending_.back().is_private = true;
  }
}

void Program::flush() {
  if (pending_.empty()) return;
  protect_loads();
  add_shared_rows();
  emit_group();
  for (const Root& root : pending_) {
    if (root.kind == Root::Kind::reduce) buffers_[root.op->results[0]] = root.buffer;
    if (root.kind == Root::Kind::materialise && !root.is_private) buffers_[root.value] = root.buffer;
  }
  pending_.clear();
}

bool Program::stores_one_range() {
  const Op* first = pending_[0].op;
  bool is_checked = false;
  for (const Root& root : pending_) {
    if (root.kind != Root::Kind::store) return false;
    const ir::Value* view = root.op->operands[0];
    for (size_t d = 0; d < pending_outer_.size(); ++d) {
      const ir::Value* offset = root.op->operands[1 + d];
      if (offset != first->operands[1 + d] || views_.at(view).sizes[d] != views_.at(first->operands[0]).sizes[d])
        return false;
      is_checked |= needs_check(*root.op, static_cast<int>(d));
    }
  }
  return is_checked;
}

// By the loop over an outer dimension of the group: as far as some root goes, or what is in the range of its stores.
Program::Range Program::rows_to_visit(int dim) {
  Value* count = nullptr;
  for (const Root& root : pending_) {
    Value* own = limit(root.value, dim).count;
    count = count ? e_.max_i64(count, own) : own;
  }
  if (!has_own_rows_) return {e_.i64(0), count};
  const Op& store = *pending_[0].op;
  const size_t axis = static_cast<size_t>(dim);
  Value* offset = scalars_.at(store.operands[1 + axis]);
  Value* left = e_.b.CreateSub(views_.at(store.operands[0]).sizes[axis], offset);
  return {e_.max_i64(e_.i64(0), e_.b.CreateNeg(offset)), e_.min_i64(count, left)};
}

void Program::emit_group() {
  has_own_rows_ = stores_one_range();
  std::vector<Range> ranges;
  for (size_t d = 0; d < pending_outer_.size(); ++d) ranges.push_back(rows_to_visit(static_cast<int>(d)));
  std::vector<Value*> outer;
  const auto loops = [&](const auto& self, size_t d) -> void {
    if (d == ranges.size()) return emit_rows(outer);
    e_.loop(ranges[d].first, ranges[d].end, 1, [&](Value* i) {
      outer.push_back(i);
      self(self, d + 1);
      outer.pop_back();
    });
  };
  Value* streams = streams_past_caches();
  is_row_kernel_ = streams != nullptr;
  if (!streams) return loops(loops, 0);
  e_.if_then(streams, [&] {
    is_streaming_ = true;
    loops(loops, 0);
    is_streaming_ = false;
    e_.stream_fence();
  });
  e_.if_then(e_.b.CreateNot(streams), [&] { loops(loops, 0); });
}

void Program::emit_rows(const std::vector<Value*>& outer) {
  row_memo_.clear();
  first_reads_.clear();
  int last_level = 0;
  for (const Root& root : pending_) last_level = std::max(last_level, root.level);
  std::vector<const ir::Value*> readable;  // buffers that later levels of this row may read
  for (int level = 0; level <= last_level; ++level) {
    level_ = level;
    std::map<int64_t, std::vector<Root*>> by_columns;
    for (Root& root : pending_)
      if (root.level == level) by_columns[root.value->type.shape[root.value->type.rank - 1]].push_back(&root);
    for (auto& [columns, roots] : by_columns) emit_columns(roots, outer);
    for (Root& root : pending_) {
      if (root.level != level || root.kind == Root::Kind::store) continue;
      const ir::Value* value = root.kind == Root::Kind::reduce ? root.op->results[0] : root.value;
      if (buffers_.emplace(value, root.buffer).second) readable.push_back(value);
    }
  }
  for (const ir::Value* value : readable) buffers_.erase(value);
  hoist_block_ = nullptr;
  level_ = step_ = 0;
}

void Program::start_hoist_block() {
  auto* next = llvm::BasicBlock::Create(e_.context, "row", e_.b.GetInsertBlock()->getParent());
  hoist_block_ = e_.b.GetInsertBlock();
  e_.b.CreateBr(next);
  e_.b.SetInsertPoint(next);
}

void Program::emit_columns(const std::vector<Root*>& roots, const std::vector<Value*>& outer) {
  const int rank = roots[0]->value->type.rank;
  const int64_t columns = roots[0]->value->type.shape[rank - 1];
  const int width = static_cast<int>(std::min<int64_t>(e_.lanes, std::bit_ceil(static_cast<uint64_t>(columns))));
  Limit widest{nullptr, columns};
  bool reduces = false;
  for (const Root* root : roots) {
    const Limit own = limit(root->value, rank - 1);
    widest.count = widest.count ? e_.max_i64(widest.count, own.count) : own.count;
    widest.divisor = std::gcd(widest.divisor, own.divisor);
    reduces |= root->kind == Root::Kind::reduce;
  }
  start_hoist_block();
  const int64_t wanted = reduces ? kReduceUnroll : is_row_kernel_ ? kStoreUnroll : 1;
  const int64_t unroll = columns >= wanted * width ? wanted : 1;
  std::vector<Value*> partial;  // unroll accumulators of every reduction, in order
  for (const Root* root : roots) {
    if (root->kind != Root::Kind::reduce) continue;
    const DType dtype = accumulator_dtype(root->value->type.dtype);
    Value* init = e_.splat(identity(e_, root->op->string_attr("kind"), dtype), width);
    partial.insert(partial.end(), static_cast<size_t>(unroll), init);
  }
  const auto pass = [&](Value* lo, Value* hi, int64_t steps) {
    partial = e_.loop(lo, hi, e_.i64(steps * width), partial, [&](Value* c, std::vector<Value*> carried) {
      for (int64_t u = 0; u < steps; ++u) {
        const Index index = column_index(outer, e_.b.CreateAdd(c, e_.i64(u * width)), width);
        step_ = static_cast<int>(u);
        emit_step(roots, index, carried, static_cast<int>(unroll), static_cast<int>(u));
        if (level_ == 1) fetch_next_row(*roots[0]->value, index);
      }
      return carried;
    });
  };
  const auto round_down = [&](int64_t multiple) { return e_.b.CreateAnd(widest.count, e_.i64(-multiple)); };
  Value* done = e_.i64(0);
  if (unroll > 1) pass(done, round_down(unroll * width), unroll), done = round_down(unroll * width);
  if (unroll == 1 || widest.divisor % (unroll * width) != 0) pass(done, round_down(width), 1);
  step_ = 0;
  if (widest.divisor % width != 0) emit_tail(roots, outer, round_down(width), widest.count, width, partial, unroll);
  finish_reductions(roots, outer, partial, unroll);
}

Index Program::column_index(const std::vector<Value*>& outer, Value* column, int width) const {
  Index index{width, {}, nullptr};
  for (Value* i : outer) index.axes.push_back({i});
  index.axes.push_back({column, true});  // also where one lane is left: the column changes inside the loop
  return index;
}

// The last, partial vector: a loop of at most one iteration, so that the accumulators are carried like everywhere else.
void Program::emit_tail(const std::vector<Root*>& roots, const std::vector<Value*>& outer, Value* first, Value* count,
                        int width, std::vector<Value*>& partial, int64_t unroll) {
  partial = e_.loop(first, count, e_.i64(width), partial, [&](Value* c, std::vector<Value*> carried) {
    Index index = column_index(outer, c, width);
    index.mask = e_.lanes_below(e_.b.CreateSub(count, c), width);
    emit_step(roots, index, carried, static_cast<int>(unroll), 0);
    return carried;
  });
}

// One vector of columns of every root: all values first, then the writes, so that in-place updates read before they
// write.
void Program::emit_step(const std::vector<Root*>& roots, const Index& index, std::vector<Value*>& carried, int unroll,
                        int which) {
  memo_.clear();
  std::vector<Value*> values;
  for (const Root* root : roots) values.push_back(eval(root->value, index));
  size_t reduction = 0;
  for (size_t i = 0; i < roots.size(); ++i) {
    const Root& root = *roots[i];
    if (root.kind == Root::Kind::store) {
      Index shifted = index;
      Axis& last = shifted.axes.back();
      if (root.shift) last.base = e_.b.CreateAdd(last.base, e_.i64(root.shift));
      write_view(*root.op, e_.convert(values[i], root.value->type.dtype, root.op->operands[0]->type.dtype), shifted);
    } else if (root.kind == Root::Kind::materialise) {
      write_buffer(root.buffer, e_.convert(values[i], root.value->type.dtype, root.buffer.dtype), index);
    } else {
      const DType dtype = root.value->type.dtype, wide = accumulator_dtype(dtype);
      const auto kind = root.op->string_attr("kind");
      Value* value = e_.splat(e_.convert(values[i], dtype, wide), index.lanes);
      if (index.mask) value = e_.b.CreateSelect(index.mask, value, e_.splat(identity(e_, kind, wide), index.lanes));
      Value*& accumulator = carried[reduction++ * static_cast<size_t>(unroll) + static_cast<size_t>(which)];
      accumulator = combine(e_, kind, wide, accumulator, value);
    }
  }
}

}  // namespace seqtile::cpu

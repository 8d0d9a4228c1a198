// jit/analysis/aliasing.cpp -- see aliasing.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/analysis/aliasing.h"

#include <algorithm>
#include <cstdlib>

#include "jit/ir/infer.h"

namespace seqtile::ir {
namespace {

bool is_part(const Value* view) {
  return view->def && (view->def->kind == OpKind::slice || view->def->kind == OpKind::at);
}

/// Adds a value to a position; sums and differences of constants are taken apart.
void add_term(Interval& interval, const Value* value) {
  while (value->def && (value->def->kind == OpKind::add || value->def->kind == OpKind::sub)) {
    const auto& operands = value->def->operands;
    const bool adds = value->def->kind == OpKind::add;
    if (const auto right = constant_value(operands[1])) {
      interval.constant += adds ? *right : -*right;
      value = operands[0];
    } else if (const auto left = constant_value(operands[0]); left && adds) {
      interval.constant += *left;
      value = operands[1];
    } else {
      break;
    }
  }
  if (const auto constant = constant_value(value)) interval.constant += *constant;
  else interval.terms.insert(std::upper_bound(interval.terms.begin(), interval.terms.end(), value), value);
}

/// A view's dimensions as positions of its base.
struct Window {
  Region region;
  std::vector<size_t> open;  ///< the base's dimension of each dimension of the view: those that no `at` has fixed
};

Window window_of(const Value* view) {
  if (!is_part(view)) {
    Window whole{{view, std::vector<Interval>(static_cast<size_t>(view->type.rank))}, {}};
    for (size_t d = 0; d < whole.region.dims.size(); ++d) whole.open.push_back(d);
    return whole;
  }
  const auto& operands = view->def->operands;
  Window window = window_of(operands[0]);
  if (view->def->kind == OpKind::at) {
    const auto axis = window.open.begin() + view->def->int_attr("axis");
    add_term(window.region.dims[*axis], operands[1]);
    window.open.erase(axis);
  } else {
    for (size_t d = 0; d < window.open.size(); ++d) add_term(window.region.dims[window.open[d]], operands[1 + d]);
  }
  return window;
}

/// Apart by their constants, where everything else is equal.
bool is_apart(const Interval& a, const Interval& b) {
  return a.constant + a.extent <= b.constant || b.constant + b.extent <= a.constant;
}

bool is_comparable(const Interval& a, const Interval& b) { return a.is_known && b.is_known && a.terms == b.terms; }

bool have_same_positions(const Value* a, const Value* b) {
  const auto is_parameter = [](const Value* base) { return !base->def; };
  return a == b || (is_parameter(a) && is_parameter(b));
}

bool is_placed(const Value* base) { return base->def && base->def->kind == OpKind::view_at; }

/// The parameters and placed views behind a base.
void collect_roots(const Value* view, std::vector<const Value*>& roots) {
  const Value* base = base_of(view);
  if (!base->def || is_placed(base)) return roots.push_back(base);
  collect_roots(base->def->operands[1], roots);
  collect_roots(base->def->operands[2], roots);
}

bool may_be_same(const Type& x, const Type& y) {
  if ((x.noalias && y.noalias) || x.dtype != y.dtype || x.rank != y.rank) return false;
  for (int d = 0; d < x.rank; ++d)
    if (x.shape[d] != kDynamic && y.shape[d] != kDynamic && x.shape[d] != y.shape[d]) return false;
  return true;
}

bool is_inside(const Block* block, const Op& loop) {
  for (; block; block = block->parent ? block->parent->parent : nullptr)
    if (block->parent == &loop) return true;
  return false;
}

}  // namespace

const Value* base_of(const Value* view) {
  while (is_part(view)) view = view->def->operands[0];
  return view;
}

bool may_share(const Value* a, const Value* b) {
  std::vector<const Value*> left, right;
  collect_roots(a, left), collect_roots(b, right);
  return std::any_of(left.begin(), left.end(), [&](const Value* x) {
    return std::any_of(right.begin(), right.end(), [&](const Value* y) {
      return x == y || is_placed(x) || is_placed(y) || may_be_same(x->type, y->type);
    });
  });
}

Region region_of(const Op& op) {
  Window window = window_of(op.operands[0]);
  auto& dims = window.region.dims;
  const bool has_rows = op.kind == OpKind::gather || op.kind == OpKind::scatter;
  const Type& touched = op.results.empty() ? op.operands.back()->type : op.results[0]->type;
  for (size_t d = 0; d < window.open.size(); ++d) {
    Interval& interval = dims[window.open[d]];
    if (has_rows && d == 0) interval.is_known = false;
    else add_term(interval, op.operands[1 + d]);  // the column of a gather stands where other offsets do
    if (touched.is_tile()) interval.extent = touched.shape[d];
  }
  return std::move(window.region);
}

Overlap overlap(const Region& a, const Region& b) {
  if (!may_share(a.base, b.base)) return Overlap::none;
  if (!have_same_positions(a.base, b.base)) return Overlap::some;
  bool is_same = true;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    const Interval &x = a.dims[d], &y = b.dims[d];
    if (is_comparable(x, y) && is_apart(x, y)) return Overlap::none;
    is_same &= is_comparable(x, y) && x.constant == y.constant && x.extent == y.extent;
  }
  return is_same ? Overlap::same : Overlap::some;
}

bool overlaps_across(const Region& a, const Region& b, const Op& loop) {
  if (!may_share(a.base, b.base)) return false;
  if (!have_same_positions(a.base, b.base)) return true;
  const Value* index = loop.kind == OpKind::for_loop ? loop.regions[0]->arguments[0] : nullptr;
  const int64_t step = index ? constant_value(loop.operands[2]).value_or(1) : 0;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    const Interval &x = a.dims[d], &y = b.dims[d];
    if (!is_comparable(x, y)) continue;
    const auto counts = std::count(x.terms.begin(), x.terms.end(), index);
    const bool others_stay = std::all_of(x.terms.begin(), x.terms.end(), [&](const Value* term) {
      return term == index || !is_inside(term->def ? term->def->parent : term->block, loop);
    });
    if (!others_stay) continue;
    if (counts == 0 && is_apart(x, y)) return false;
    // One step moves either beyond the other.
    if (counts == 1 && std::max(x.extent, y.extent) + std::abs(x.constant - y.constant) <= step) return false;
  }
  return true;
}

}  // namespace seqtile::ir

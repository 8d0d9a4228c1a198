// jit/ir/op_rules_memory.cpp -- rules of memory access and synchronisation.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ir/op_rules.h"

#include <span>

namespace seqtile::ir {

const Type& OpRules::check_indices(int groups, size_t extra) const {
  if (op_.operands.empty()) fail("the view is missing");
  const Type& view = operand(0);
  require(view.is_view(), "operand 0 is not a view", {{"it", view}});
  const size_t indices = static_cast<size_t>(groups * view.rank);
  if (op_.operands.size() != 1 + indices + extra)
    fail(to_string(view) + " takes " + std::to_string(indices) + " offsets and sizes, and " + std::to_string(extra) +
         " more operands; " + std::to_string(op_.operands.size() - 1) + " are given");
  for (size_t i = 1; i <= indices; ++i)
    require(is_scalar_of(operand(i), DType::i64), "an offset or size is not an i64 scalar", {{"it", operand(i)}},
            "cast it to i64");
  return view;
}

void OpRules::require_tile_of(const Type& tile, const Type& view) const {
  require(tile.is_tile() && tile.rank == view.rank && tile.dtype == view.dtype,
          "the tile does not have the view's rank and dtype", {{"the tile", tile}, {"the view", view}});
}

void OpRules::require_element_of(const Type& scalar, const Type& view) const {
  require(is_scalar_of(scalar, view.dtype), "the scalar does not have the view's dtype",
          {{"the scalar", scalar}, {"the view", view}});
}

void OpRules::require_rows(const Type& view) const {
  require(view.is_view() && view.rank == 2, "operand 0 is not a view of rank 2", {{"it", view}});
  const Type& rows = operand(1);
  require(rows.is_tile() && rows.rank == 1 && (rows.dtype == DType::i32 || rows.dtype == DType::i64),
          "the rows are not a tile<[m], i32> or tile<[m], i64>", {{"the operand", rows}});
  require(is_scalar_of(operand(2), DType::i64), "the column is not an i64 scalar", {{"it", operand(2)}});
}

void OpRules::check_memory() const {
  switch (op_.kind) {
    case OpKind::size:
      require(operand(0).is_view(), "operand 0 is not a view", {{"it", operand(0)}});
      axis_of(operand(0));
      return require(is_scalar_of(result(), DType::i64), "the result is not i64", {{"it", result()}});
    case OpKind::address:
      require(operand(0).is_view(), "operand 0 is not a view", {{"it", operand(0)}});
      return require(is_scalar_of(result(), DType::i64), "the result is not i64", {{"it", result()}});
    case OpKind::slice: return check_slice();
    case OpKind::at: return check_at();
    case OpKind::view_at: return check_view_at();
    case OpKind::load: {
      const Type& view = check_indices(1, 0);
      require_tile_of(result(), view);
      return check_fill();
    }
    case OpKind::load_scalar: {
      const Type& view = check_indices(1, 0);
      return require_element_of(result(), view);
    }
    case OpKind::store:
    case OpKind::store_add: {
      const Type& view = check_indices(1, 1);
      require_tile_of(op_.operands.back()->type, view);
      return require(op_.kind == OpKind::store || view.dtype != DType::i1, "i1 elements cannot be added",
                     {{"the view", view}});
    }
    case OpKind::store_scalar: {
      const Type& view = check_indices(1, 1);
      return require_element_of(op_.operands.back()->type, view);
    }
    case OpKind::prefetch: check_indices(1, 0); return;
    default: return check_gather_scatter();
  }
}

void OpRules::check_slice() const {
  const Type& view = check_indices(2, 0);
  const std::span<Value* const> indices = std::span(op_.operands).subspan(1);
  const Type known = sliced(view, indices.first(view.rank), indices.subspan(view.rank));
  require(promises_no_more(result(), known), "the result promises more than the slice keeps",
          {{"the result", result()}, {"what is known", known}});
}

void OpRules::check_at() const {
  const Type& view = operand(0);
  require(view.is_view() && view.rank > 1, "operand 0 is not a view of rank 2 or more", {{"it", view}});
  require(is_scalar_of(operand(1), DType::i64), "the index is not an i64 scalar", {{"it", operand(1)}});
  const Type known = indexed(view, axis_of(view));
  require(promises_no_more(result(), known), "the result is not the view without the axis",
          {{"the result", result()}, {"what is known", known}});
}

void OpRules::check_view_at() const {
  if (op_.operands.size() < 2 || op_.operands.size() > 1 + kMaxViewRank)
    fail("takes an address and 1 to 4 sizes, not " + std::to_string(op_.operands.size()) + " operands");
  for (const Value* operand : op_.operands)
    require(is_scalar_of(operand->type, DType::i64), "the address or a size is not an i64 scalar",
            {{"it", operand->type}});
  const std::span<Value* const> sizes = std::span(op_.operands).subspan(1);
  require(promises_no_more(result(), placed_view(result().dtype, sizes, result().alignment)),
          "the result is not a dense view of the sizes", {{"the result", result()}});
}

void OpRules::check_gather_scatter() const {
  const bool is_gather = op_.kind == OpKind::gather;
  require_operands(is_gather ? 3 : 4);
  require_rows(operand(0));
  const Type& tile = is_gather ? result() : operand(3);
  require_tile_of(tile, operand(0));
  require(tile.shape[0] == operand(1).shape[0], "the tile does not have one row for each row index",
          {{"the tile", tile}, {"the rows", operand(1)}});
  if (is_gather) check_fill();
}

void OpRules::check_order(std::initializer_list<std::string_view> orders) const {
  choice("order", orders);
  choice("scope", {"cta", "gpu", "sys"});
}

void OpRules::check_sync() const {
  switch (op_.kind) {
    case OpKind::fence: return check_order({"acquire", "release", "acq_rel"});
    case OpKind::griddep: choice("kind", {"wait", "launch"}); return;
    case OpKind::atomic: choice("kind", {"add", "max", "min", "exchange"}); break;
    case OpKind::signal: choice("kind", {"set", "add"}); break;
    default: break;
  }
  if (op_.kind == OpKind::await) return check_await();
  if (op_.kind == OpKind::clock) return check_clock();
  const size_t values = op_.kind == OpKind::cas ? 2 : op_.kind == OpKind::atomic_load ? 0 : 1;
  const Type& view = check_indices(1, values);
  const bool is_wide = view.dtype == DType::i32 || view.dtype == DType::i64 ||
                       (op_.kind == OpKind::atomic && (view.dtype == DType::f32 || view.dtype == DType::f64));
  require(is_wide,
          op_.kind == OpKind::atomic ? "the elements are not i32, i64, f32 or f64" : "the elements are not i32 or i64",
          {{"the view", view}});
  for (size_t i = 0; i < values; ++i) require_element_of(op_.operands[1 + view.rank + i]->type, view);
  if (op_.kind == OpKind::atomic_load) {
    check_order({"relaxed", "acquire"});
    return require_element_of(result(), view);
  }
  if (op_.kind == OpKind::wait_ge) return check_order({"relaxed", "acquire"});
  if (op_.kind == OpKind::signal) return check_order({"relaxed", "release"});
  check_order({"relaxed", "acquire", "release", "acq_rel"});
  require_element_of(result(), view);
}

// Scope and order are those of every flag: acquire, sys.
void OpRules::check_await() const {
  const Type& flags = check_indices(1, 2);
  require(flags.dtype == DType::i64, "the flags are not i64", {{"the view", flags}});
  require_element_of(op_.operands[1 + flags.rank]->type, flags);
  const Type& block = op_.operands.back()->type;
  require(block.is_view() && block.rank == 1 && block.dtype == DType::i64, "the channel block is not a view<[n], i64>",
          {{"it", block}});
  require(is_scalar_of(result(), DType::i64), "the result is not i64", {{"it", result()}});
}

void OpRules::check_clock() const {
  const Type& functions = check_indices(1, 0);
  require(functions.dtype == DType::i64, "the addresses are not i64", {{"the view", functions}});
  require_element_of(result(), functions);
}

}  // namespace seqtile::ir

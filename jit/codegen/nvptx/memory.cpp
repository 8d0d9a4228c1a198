// jit/codegen/nvptx/memory.cpp -- tiles and elements between registers and global memory.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int kWidestAccess = 16;  ///< bytes

/// The largest known power of two, up to 64, that divides an index.
int64_t known_divisor(const ir::Value* value, int depth = 0) {
  constexpr int64_t kMost = 64;
  if (depth > 8) return 1;
  const Op* op = value->def;
  if (!op) {  // a loop's index goes from lo in steps
    const Op* loop = value->block ? value->block->parent : nullptr;
    if (!loop || loop->kind != OpKind::for_loop || value->index != 0) return 1;
    return std::min(known_divisor(loop->operands[0], depth + 1), known_divisor(loop->operands[2], depth + 1));
  }
  const auto of = [&](size_t i) { return known_divisor(op->operands[i], depth + 1); };
  switch (op->kind) {
    case OpKind::constant: {
      const int64_t constant = op->int_attr("value");
      return constant == 0 ? kMost : std::min(kMost, constant & -constant);
    }
    case OpKind::mul: return std::min(kMost, of(0) * of(1));
    case OpKind::add:
    case OpKind::sub:
    case OpKind::min:
    case OpKind::max: return std::min(of(0), of(1));
    case OpKind::select: return std::min(of(1), of(2));
    default: return 1;
  }
}

/// Alignment in bytes of the rows of a view that others were derived from.
int64_t row_alignment(const ir::Value* view, int depth = 0) {
  const Op* op = view->def;
  if (!op || depth > 8) return view->type.alignment;
  const ir::Value* source = op->operands[op->kind == OpKind::select ? 1 : 0];
  int64_t bytes = row_alignment(source, depth + 1);
  if (op->kind == OpKind::select) return std::min(bytes, row_alignment(op->operands[2], depth + 1));
  if (op->kind == OpKind::slice) {  // the innermost offset moves the row's start
    const ir::Value* offset = op->operands[static_cast<size_t>(source->type.rank)];
    bytes = std::min(bytes, known_divisor(offset) * dtype_bytes(source->type.dtype));
  }
  return bytes;
}

}  // namespace

int Program::vector_width(const ir::Value* view, const ir::Value* offset, const LinearLayout& layout) const {
  if (!view->type.contiguous) return 1;
  const int64_t bytes = dtype_bytes(view->type.dtype);
  const int64_t aligned = std::min({int64_t{kWidestAccess}, row_alignment(view), known_divisor(offset) * bytes});
  return static_cast<int>(
      std::max<int64_t>(1, std::min<int64_t>(layout.widest_vector(layout.rank() - 1), aligned / bytes)));
}

// The first element of `width` neighbours; they are inside together, see is_checked's making in load() and store().
Program::Address Program::address(const ir::Value* view, const std::vector<Value*>& position, const ir::Type& tile,
                                  const LinearLayout& layout, int reg, int width, const std::vector<bool>& is_checked) {
  const ViewRef& ref = views_.at(view);
  Address at{ref.base, is_inside(layout, tile, reg)};
  for (size_t d = 0; d < position.size(); ++d) {
    Value* index =
        e_.b.CreateAdd(position[d], e_.b.CreateSExt(coordinate(layout, reg, static_cast<int>(d)), e_.b.getInt64Ty()));
    at.pointer = e_.element_pointer(at.pointer, e_.b.CreateMul(index, ref.strides[d]), view->type.dtype);
    if (!is_checked[d]) continue;
    Value* end = d + 1 == position.size() && width > 1 ? e_.b.CreateAdd(index, e_.i64(width - 1)) : index;
    Value* here = e_.b.CreateAnd(e_.b.CreateICmpSGE(index, e_.i64(0)), e_.b.CreateICmpSLT(end, ref.sizes[d]));
    at.inside = at.inside ? e_.b.CreateAnd(at.inside, here) : here;
  }
  return at;
}

namespace {

/// Whether a dimension of a tile may reach beyond the view: not where both are static and the offset is zero.
bool may_leave(const ir::Type& tile, const ir::Type& view, size_t d, const ir::Value* offset) {
  const bool at_zero = offset->def && offset->def->kind == OpKind::constant && offset->def->int_attr("value") == 0;
  return !(at_zero && view.shape[d] != ir::kDynamic && tile.shape[d] <= view.shape[d]);
}

/// Neighbours are inside together only if the view's row and the tile's are whole vectors.
int whole_vectors(int width, const ir::Type& tile, const ir::Type& view, bool is_checked) {
  const auto last = static_cast<size_t>(tile.rank - 1);
  int64_t common = std::gcd(int64_t{width}, tile.shape[last]);
  if (is_checked) common = view.shape[last] == ir::kDynamic ? 1 : std::gcd(common, view.shape[last]);
  return static_cast<int>(common);
}

}  // namespace

int Program::access_width(const Op& op, const ir::Type& tile, const LinearLayout& layout) const {
  const ir::Value* view = op.operands[0];
  const auto last = static_cast<size_t>(tile.rank - 1);
  const ir::Value* offset = op.operands[1 + last];
  return whole_vectors(vector_width(view, offset, layout), tile, view->type, may_leave(tile, view->type, last, offset));
}

Program::Access Program::access_of(const Op& op, const ir::Type& tile, const LinearLayout& layout) {
  Access access{access_width(op, tile, layout), {}, {}};
  for (size_t d = 0; d < static_cast<size_t>(tile.rank); ++d) {
    access.position.push_back(scalars_.at(op.operands[1 + d]));
    access.is_checked.push_back(may_leave(tile, op.operands[0]->type, d, op.operands[1 + d]));
  }
  return access;
}

std::vector<Value*> Program::load(const Op& op, const LinearLayout& layout) {
  order_access(op, &layout);
  const ir::Value *tile = op.results[0], *view = op.operands[0];
  const auto [width, is_checked, position] = access_of(op, tile->type, layout);
  Value* fill = e_.constant(tile->type.dtype, op.float_attr("fill"));
  Value* reader = reads_as_writer(op, layout) ? is_writer(layout) : nullptr;
  std::vector<Value*> values;
  for (int reg = 0; reg < layout.num_registers(); reg += width) {
    if (const int same = layout.representative(reg); same != reg) {
      for (int i = 0; i < width; ++i) values.push_back(values[static_cast<size_t>(same + i)]);
      continue;
    }
    Address at = address(view, position, tile->type, layout, reg, width, is_checked);
    at.inside = both(at.inside, reader);
    for (Value* value : e_.load(tile->type.dtype, at.pointer, width, at.inside, fill)) values.push_back(value);
  }
  return values;
}

// The first of `width` neighbours in the row that an index chooses; out of range where there is no such row.
Program::Address Program::row_address(const Op& op, const ir::Type& tile, const LinearLayout& layout,
                                      const std::vector<Value*>& indices, int reg, int width) {
  const ir::Value* view = op.operands[0];
  const ViewRef& ref = views_.at(view);
  const LinearLayout row_layout = layout.without(1);
  const auto place = layout.place(reg);
  int row_register = 0;
  while (row_layout.place(row_register).within[0] != place.within[0] ||
         row_layout.place(row_register).origin[0] != place.origin[0])
    ++row_register;
  Value* row = e_.b.CreateSExt(indices[static_cast<size_t>(row_register)], e_.b.getInt64Ty());
  Value* column =
      e_.b.CreateAdd(scalars_.at(op.operands[2]), e_.b.CreateSExt(coordinate(layout, reg, 1), e_.b.getInt64Ty()));
  Address at{nullptr, e_.b.CreateAnd(e_.b.CreateICmpSGE(row, e_.i64(0)), e_.b.CreateICmpSLT(row, ref.sizes[0]))};
  if (may_leave(tile, view->type, 1, op.operands[2])) {
    Value* end = e_.b.CreateAdd(column, e_.i64(width - 1));
    at.inside = e_.b.CreateAnd(at.inside, e_.b.CreateICmpSLT(end, ref.sizes[1]));
    at.inside = e_.b.CreateAnd(at.inside, e_.b.CreateICmpSGE(column, e_.i64(0)));
  }
  at.inside = both(at.inside, is_inside(layout, tile, reg));
  at.pointer = e_.element_pointer(ref.base, e_.b.CreateMul(row, ref.strides[0]), tile.dtype);
  at.pointer = e_.element_pointer(at.pointer, e_.b.CreateMul(column, ref.strides[1]), tile.dtype);
  return at;
}

int Program::row_width(const Op& op, const ir::Type& tile, const LinearLayout& layout) const {
  const ir::Value *view = op.operands[0], *column = op.operands[2];
  return whole_vectors(vector_width(view, column, layout), tile, view->type, may_leave(tile, view->type, 1, column));
}

// Rows are chosen by index; a row that is out of range reads as `fill`.
std::vector<Value*> Program::gather(const Op& op, const LinearLayout& layout) {
  const ir::Type& tile = op.results[0]->type;
  const std::vector<Value*> indices = pull(op.operands[1], layout.without(1));
  order_access(op, &layout);
  const int width = row_width(op, tile, layout);
  Value* fill = e_.constant(tile.dtype, op.float_attr("fill"));
  std::vector<Value*> values;
  for (int reg = 0; reg < layout.num_registers(); reg += width) {
    if (const int same = layout.representative(reg); same != reg) {
      for (int i = 0; i < width; ++i) values.push_back(values[static_cast<size_t>(same + i)]);
      continue;
    }
    const Address at = row_address(op, tile, layout, indices, reg, width);
    for (Value* value : e_.load(tile.dtype, at.pointer, width, at.inside, fill)) values.push_back(value);
  }
  return values;
}

// Rows that are out of range are dropped; where two rows have one index, either may stay.
void Program::scatter(const Op& op) {
  const ir::Value* tile = op.operands[3];
  const LinearLayout layout = preferred(tile);
  const std::vector<Value*> values = pull(tile, layout), indices = pull(op.operands[1], layout.without(1));
  pin_loads_before(op);
  order_access(op, &layout);
  const int width = row_width(op, tile->type, layout);
  for (int reg = 0; reg < layout.num_registers(); reg += width) {
    if (layout.representative(reg) != reg) continue;
    const Address at = row_address(op, tile->type, layout, indices, reg, width);
    e_.store(tile->type.dtype, at.pointer, {values.begin() + reg, values.begin() + reg + width},
             both(at.inside, is_writer(layout)));
  }
}

// Whether something behind `op` asks for the tile: pure operations pass the question on, as they happen when asked.
bool Program::is_needed_after(const ir::Value* tile, const Op& op) const {
  std::vector<const ir::Value*> open{tile};
  std::unordered_set<const ir::Value*> seen{tile};
  while (!open.empty()) {
    const auto users = users_.find(open.back());
    open.pop_back();
    if (users == users_.end()) continue;
    for (const Op* user : users->second) {
      const bool is_lazy = user->info().effects == ir::OpEffects::pure && user->info().group != ir::OpGroup::reduce &&
                           user->kind != OpKind::dot;
      if (!is_lazy && position_.at(user) > position_.at(&op)) return true;
      if (!is_lazy) continue;
      for (const ir::Value* result : user->results)
        if (seen.insert(result).second) open.push_back(result);
    }
  }
  return false;
}

// Loads that are still to happen and may read what `write` changes happen now.
void Program::pin_loads_before(const Op& write) {
  std::vector<const Op*> open;
  open.swap(open_loads_);
  for (const Op* op : open) {
    if (!is_needed_after(op->results[0], write)) continue;
    open_loads_ = {op};
    pull(op->results[0]);
  }
  open_loads_.clear();
}

void Program::store(const Op& op) {
  const ir::Value *view = op.operands[0], *tile = op.operands.back();
  LinearLayout layout = preferred(tile);
  std::vector<Value*> values = pull(tile, layout);
  // Accumulators hold few neighbours: 16-byte stores are worth an exchange in shared memory.
  if (const LinearLayout wide = default_layout(tile->type);
      access_width(op, tile->type, wide) > access_width(op, tile->type, layout)) {
    values = pull_converted(tile, layout, wide);
    layout = wide;
  }
  pin_loads_before(op);
  order_access(op, &layout);
  const auto [width, is_checked, position] = access_of(op, tile->type, layout);
  for (int reg = 0; reg < layout.num_registers(); reg += width) {
    if (layout.representative(reg) != reg) continue;
    Address at = address(view, position, tile->type, layout, reg, width, is_checked);
    at.inside = both(at.inside, is_writer(layout));
    std::vector<Value*> written(values.begin() + reg, values.begin() + reg + width);
    if (op.kind == OpKind::store_add) {
      Value* zero = llvm::Constant::getNullValue(written[0]->getType());
      const auto before = e_.load(tile->type.dtype, at.pointer, width, at.inside, zero);
      const DType wide = accumulator_of(tile->type.dtype);
      for (size_t i = 0; i < written.size(); ++i) {
        Value* sum = combine_values(e_, "sum", e_.convert(before[i], tile->type.dtype, wide),
                                    e_.convert(written[i], tile->type.dtype, wide));
        written[i] = e_.convert(sum, wide, tile->type.dtype);
      }
    }
    e_.store(tile->type.dtype, at.pointer, written, at.inside);
  }
}

Value* Program::element_address(const Op& op) {
  const ir::Value* view = op.operands[0];
  const ViewRef& ref = views_.at(view);
  Value* pointer = ref.base;
  for (size_t d = 0; d < ref.sizes.size(); ++d)
    pointer =
        e_.element_pointer(pointer, e_.b.CreateMul(scalars_.at(op.operands[1 + d]), ref.strides[d]), view->type.dtype);
  return pointer;
}

// All threads read an element; the first one writes it.
void Program::lower_element(const Op& op) {
  const ir::Value* view = op.operands[0];
  if (op.kind == OpKind::store_scalar) pin_loads_before(op);
  order_access(op);
  if (op.kind == OpKind::load_scalar) {
    scalars_[op.results[0]] = e_.load(view->type.dtype, element_address(op), 1, nullptr, nullptr)[0];
    return;
  }
  e_.store(view->type.dtype, element_address(op), {scalars_.at(op.operands.back())},
           e_.b.CreateICmpEQ(e_.thread, e_.i32(0)));
}

// A hint by one thread, where the element exists.
void Program::prefetch(const Op& op) {
  const ViewRef& ref = views_.at(op.operands[0]);
  Value* wanted = e_.b.CreateICmpEQ(e_.thread, e_.i32(0));
  for (size_t d = 0; d < ref.sizes.size(); ++d)
    wanted = e_.b.CreateAnd(wanted, e_.b.CreateICmpULT(scalars_.at(op.operands[1 + d]), ref.sizes[d]));
  e_.assembly(e_.b.getVoidTy(), "@$1 prefetch.global.L2 [$0];", "l,b", {e_.address_of(element_address(op)), wanted});
}

}  // namespace seqtile::nvptx

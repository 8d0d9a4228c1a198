// jit/ir/infer.cpp -- result types of shape and view operations.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ir/infer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "jit/ir/row_alignment.h"

namespace seqtile::ir {
namespace {

bool has_axis(const Type& type, int64_t axis) { return axis >= 0 && axis < type.rank; }

void drop_dim(Type& type, int64_t axis) {
  for (int i = static_cast<int>(axis); i + 1 < type.rank; ++i) type.shape[i] = type.shape[i + 1];
  type.shape[--type.rank] = 0;
}

}  // namespace

Type with_dtype(const Type& type, DType dtype) {
  Type result = type;
  result.dtype = dtype;
  return result;
}

Type expanded(const Type& tile, int64_t axis) {
  if (!tile.is_tile() || tile.rank >= kMaxTileRank || axis < 0 || axis > tile.rank) return tile;
  Type result = tile;
  for (int i = tile.rank; i > axis; --i) result.shape[i] = tile.shape[i - 1];
  result.shape[axis] = 1;
  ++result.rank;
  return result;
}

Type without_axis(const Type& tile, int64_t axis) {
  if (!has_axis(tile, axis)) return tile;
  if (tile.rank == 1) return scalar_type(tile.dtype);
  Type result = tile;
  drop_dim(result, axis);
  return result;
}

bool is_permutation(std::span<const int64_t> perm, int rank) {
  if (static_cast<int>(perm.size()) != rank) return false;
  unsigned seen = 0;
  for (const int64_t dim : perm) {
    if (dim < 0 || dim >= rank || (seen >> dim & 1)) return false;
    seen |= 1u << dim;
  }
  return true;
}

Type permuted(const Type& tile, std::span<const int64_t> perm) {
  if (!is_permutation(perm, tile.rank)) return tile;
  Type result = tile;
  for (int i = 0; i < tile.rank; ++i) result.shape[i] = tile.shape[perm[i]];
  return result;
}

Type with_last_dim(const Type& tile, int64_t size) {
  Type result = tile;
  if (tile.rank > 0) result.shape[tile.rank - 1] = size;
  return result;
}

int64_t last_dim(const Type& type) { return type.rank > 0 ? type.shape[type.rank - 1] : 0; }

Type sliced(const Type& view, std::span<Value* const> offsets, std::span<Value* const> sizes) {
  if (std::cmp_not_equal(offsets.size(), view.rank) || std::cmp_not_equal(sizes.size(), view.rank)) return view;
  Type result = view;
  for (int i = 0; i < view.rank; ++i) result.shape[i] = std::max(constant_value(sizes[i]).value_or(kDynamic), kDynamic);
  // The outer strides keep the alignment of the base; an offset along the innermost dimension may be any element.
  const int64_t bytes = dtype_bytes(view.dtype);
  const int64_t shift = view.rank == 0 ? 0 : constant_value(offsets[view.rank - 1]).value_or(1) * bytes;
  result.alignment = static_cast<int>(std::gcd(static_cast<int64_t>(view.alignment), shift));
  return result;
}

Type placed_view(DType dtype, std::span<Value* const> sizes, int most) {
  Type result{TypeKind::view, dtype, static_cast<int>(std::min<size_t>(sizes.size(), kMaxViewRank))};
  for (int i = 0; i < result.rank; ++i)
    result.shape[i] = std::max(constant_value(sizes[i]).value_or(kDynamic), kDynamic);
  result.contiguous = true;
  result.alignment = row_alignment(dtype, result.dims(), most);
  return result;
}

Type indexed(const Type& view, int64_t axis) {
  if (!has_axis(view, axis) || view.rank < 2) return view;
  Type result = view;
  if (axis == view.rank - 1) {
    result.contiguous = false;
    result.alignment = static_cast<int>(std::gcd(static_cast<int64_t>(view.alignment), dtype_bytes(view.dtype)));
  }
  drop_dim(result, axis);
  return result;
}

Type common_view(const Type& a, const Type& b) {
  if (a.rank != b.rank || a.dtype != b.dtype || a.kind != b.kind) return a;
  Type result = a;
  for (int i = 0; i < a.rank; ++i)
    if (a.shape[i] != b.shape[i]) result.shape[i] = kDynamic;
  result.contiguous = a.contiguous && b.contiguous;
  result.noalias = a.noalias && b.noalias;
  result.alignment = std::gcd(a.alignment, b.alignment);
  return result;
}

std::optional<int64_t> constant_value(const Value* value) {
  if (!value || !value->def || value->def->kind != OpKind::constant || !is_integer(value->type.dtype)) return {};
  return value->def->int_attr("value");
}

}  // namespace seqtile::ir

// jit/ir/types.h -- types of the tile IR: scalars, tiles of static shape, views of memory.
// SPDX-License-Identifier: Apache-2.0
//
// A tile is an immutable value of rank 1..3 with a static shape. A view is a typed window on memory: base pointer,
// run-time sizes and strides, and the facts known at compile time: sizes that are static (kDynamic where not), whether
// the innermost dimension is contiguous, the alignment of every row start in bytes, whether it aliases another view.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "jit/base/dtype.h"

namespace seqtile::ir {

constexpr int64_t kDynamic = -1;
constexpr int kMaxTileRank = 3;
constexpr int kMaxViewRank = 4;

enum class TypeKind : uint8_t { scalar, tile, view };

struct Type {
  TypeKind kind = TypeKind::scalar;
  DType dtype = DType::i64;
  int rank = 0;                               ///< 0 for scalars
  std::array<int64_t, kMaxViewRank> shape{};  ///< tile: static sizes; view: static sizes or kDynamic
  bool contiguous = false;                    ///< view: the innermost stride is 1
  bool noalias = false;                       ///< view: no other view of the function reaches the same memory
  int alignment = 1;                          ///< view: bytes; holds for the base and every stride but the innermost

  bool operator==(const Type&) const = default;
  bool is_scalar() const { return kind == TypeKind::scalar; }
  bool is_tile() const { return kind == TypeKind::tile; }
  bool is_view() const { return kind == TypeKind::view; }
  std::span<const int64_t> dims() const { return {shape.data(), static_cast<size_t>(rank)}; }
  /// Elements of a tile (1 for a scalar).
  int64_t num_elements() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= shape[i];
    return count;
  }
};

inline Type scalar_type(DType dtype) { return {TypeKind::scalar, dtype}; }

inline Type tile_type(std::span<const int64_t> shape, DType dtype) {
  Type type{TypeKind::tile, dtype, static_cast<int>(shape.size())};
  for (size_t i = 0; i < shape.size() && i < kMaxViewRank; ++i) type.shape[i] = shape[i];
  return type;
}
inline Type tile_type(std::initializer_list<int64_t> shape, DType dtype) {
  return tile_type(std::span<const int64_t>(shape.begin(), shape.size()), dtype);
}

/// `i64`, `tile<[64, 32], f32>`, `view<[?, 4096], bf16, contiguous, align 64, noalias>`.
std::string to_string(const Type& type);

}  // namespace seqtile::ir

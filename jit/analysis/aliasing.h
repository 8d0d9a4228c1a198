// jit/analysis/aliasing.h -- which elements a memory operation may touch, and whether two operations may touch the
// same.
// SPDX-License-Identifier: Apache-2.0
//
// A view that is placed at an address may overlap anything, in any way.
// Tensors of one call overlap only as the same tensor: equal dtype, rank, sizes and strides. So a position in one
// parameter is a position in every other that may be the same tensor, and windows can be compared dimension by
// dimension. Positions are sums of values and a constant: `load x, row, 32` reads row + [0, 4) and 32 + [0, 32).
#pragma once
#include <cstdint>
#include <vector>

#include "seqtile/ir.h"

namespace seqtile::ir {

/// The parameter, or the select between views, that `view` is a part of by slices and indices.
const Value* base_of(const Value* view);

/// Whether two views may be views of one tensor.
bool may_share(const Value* a, const Value* b);

/// Positions terms + constant + [0, extent) along one dimension; any position where `is_known` is false.
struct Interval {
  bool is_known = true;
  std::vector<const Value*> terms;  ///< sorted
  int64_t constant = 0, extent = 1;
};

/// The elements that one operation may touch.
struct Region {
  const Value* base = nullptr;
  std::vector<Interval> dims;  ///< one for each dimension of the base
};

/// The region of an operation on a view: load, store, gather, scatter, an access to one element, atomic.
Region region_of(const Op& op);

enum class Overlap : uint8_t { none, same, some };
/// How the elements of two operations relate if values are equal in both. `same`: equal position by position.
Overlap overlap(const Region& a, const Region& b);
/// Whether `a` in one iteration of `loop` and `b` in another iteration may touch the same element.
bool overlaps_across(const Region& a, const Region& b, const Op& loop);

}  // namespace seqtile::ir

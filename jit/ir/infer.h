// jit/ir/infer.h -- the result types that operations imply; the builder creates them, the verifier demands them.
// SPDX-License-Identifier: Apache-2.0
//
// Every function accepts any operand type and attribute without harm. If the operation's rule is broken, the function
// returns the operand's type unchanged; the verifier, which checks the rule first, reports the error.
#pragma once
#include <span>

#include "seqtile/ir.h"

namespace seqtile::ir {

/// Elements of the largest tile: a bound that keeps sizes far from overflow, above what any backend can hold.
constexpr int64_t kMaxTileElements = int64_t{1} << 24;

/// The same type with another element type.
Type with_dtype(const Type& type, DType dtype);
/// expand: a dimension of size 1 inserted before `axis`.
Type expanded(const Type& tile, int64_t axis);
/// reduce, argreduce: `axis` dropped; a scalar where it was the only one.
Type without_axis(const Type& tile, int64_t axis);
/// trans: dimension i of the result is dimension perm[i] of the operand.
Type permuted(const Type& tile, std::span<const int64_t> perm);
/// True if `perm` names every dimension below `rank` once.
bool is_permutation(std::span<const int64_t> perm, int rank);
/// The same tile with a last dimension of `size`.
Type with_last_dim(const Type& tile, int64_t size);
/// The size of the last dimension; 0 for scalars.
int64_t last_dim(const Type& type);
/// slice: static sizes where the operand for the size is a constant; the alignment that surely remains.
Type sliced(const Type& view, std::span<Value* const> offsets, std::span<Value* const> sizes);
/// view_at: a dense view of `sizes`, static where they are constants; bases and rows are aligned to up to `most` bytes.
Type placed_view(DType dtype, std::span<Value* const> sizes, int most);
/// at: the view without `axis`.
Type indexed(const Type& view, int64_t axis);
/// select of two views: the facts that hold for both.
Type common_view(const Type& a, const Type& b);

/// The value of an integer `constant` operation's result, else nothing.
std::optional<int64_t> constant_value(const Value* value);

}  // namespace seqtile::ir

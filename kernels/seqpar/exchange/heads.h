// kernels/seqpar/exchange/heads.h -- which of a row's columns are those of a rank's heads.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/seqpar/exchange/rank_tensors.h"

namespace seqtile::kernels::seqpar {

// T is a number, or a Var of a kernel whose builder is `b`.

/// Rank r owns heads [floor(r heads / P), floor((r + 1) heads / P)), perhaps none.
struct Heads {
  int64_t heads, head_dim, ranks;
  int64_t all_columns() const { return heads * head_dim; }
  int64_t most_columns() const { return (heads + ranks - 1) / ranks * head_dim; }
  bool is_even() const { return heads % ranks == 0; }
  template <class T>
  auto first(T rank) const {
    return rank * heads / ranks * head_dim;
  }
  int64_t columns(int rank) const { return first(rank + 1) - first(rank); }
  template <class Builder, class T>
  T columns(Builder& b, T rank) const {
    return is_even() ? b.constant(DType::i64, most_columns()) : first(rank + 1) - first(rank);
  }
};

/// The columns of the rank's own heads, as a schema names them.
inline Extent own_extent(const Heads& heads) { return heads.is_even() ? Extent(heads.most_columns()) : kOwnColumns; }

/// Query heads of which groups read the same key head. A rank owns whole groups, by the floor rule; where there are
/// fewer key heads than ranks, query heads are cut so, and a rank has every key head that one of its own reads. All
/// members count columns.
class GroupedHeads {
 public:
  GroupedHeads(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ranks);
  bool is_even(bool of_keys) const { return is_even_[of_keys]; }
  int64_t all_columns(bool of_keys) const { return (of_keys ? kv_heads_ : heads_) * head_dim_; }
  int64_t most_columns(bool of_keys) const { return most_columns_[of_keys]; }
  /// The first column of a rank's own heads of the queries, or of the keys.
  int64_t first(int64_t rank, bool of_keys) const {
    return (of_keys ? first_key(rank) : first_query(rank)) * head_dim_;
  }
  int64_t columns(int64_t rank, bool of_keys) const {
    const int64_t queries = first_query(rank + 1) - first_query(rank);
    return (of_keys ? std::min(end_key(rank) - first_key(rank), queries) : queries) * head_dim_;
  }
  template <class T>
  requires std::is_class_v<T> T first(T rank, bool of_keys)
  const { return (of_keys ? first_key(rank) : first_query(rank)) * head_dim_; }
  template <class Builder, class T>
  T columns(Builder& b, T rank, bool of_keys) const {
    if (is_even(of_keys)) return b.constant(DType::i64, most_columns(of_keys));
    T queries = first_query(rank + int64_t{1}) - first_query(rank);
    if (!of_keys) return queries * head_dim_;
    return b.min(end_key(rank) - first_key(rank), queries) * head_dim_;
  }

 private:
  template <class T>
  T first_query(T rank) const {
    return rank * (heads_ / unit_) / ranks_ * unit_;
  }
  template <class T>
  T first_key(T rank) const {
    return first_query(rank) / group_;
  }
  template <class T>
  T end_key(T rank) const {
    return (first_query(rank + int64_t{1}) + (group_ - 1)) / group_;
  }
  int64_t heads_, kv_heads_, head_dim_, ranks_, group_, unit_;  ///< unit: query heads that stay together
  std::array<bool, 2> is_even_;
  std::array<int64_t, 2> most_columns_;
};

}  // namespace seqtile::kernels::seqpar

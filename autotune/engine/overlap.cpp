// autotune/engine/overlap.cpp -- see overlap.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/overlap.h"

#include <algorithm>
#include <array>
#include <span>

namespace seqtile::autotune {
namespace {

/// The values c * stride with lo <= c <= hi; the stride is positive and in bytes.
struct Term {
  int64_t stride = 0, lo = 0, hi = 0;
};

/// Terms in descending order of strides, so that reaches() has few values of each term to try.
class Terms {
 public:
  /// Adds sign * stride * index for 0 <= index < size; `sign` is 1 or -1.
  void add(int64_t stride, int64_t size, int sign) {
    if (size <= 1 || stride == 0) return;
    const int64_t last = (size - 1) * (stride > 0 ? sign : -sign);
    const Term term{std::abs(stride), std::min<int64_t>(last, 0), std::max<int64_t>(last, 0)};
    size_t at = 0;
    while (at < count_ && terms_[at].stride > term.stride) ++at;
    if (at < count_ && terms_[at].stride == term.stride) {
      terms_[at].lo += term.lo, terms_[at].hi += term.hi;
      return;
    }
    for (size_t i = count_++; i > at; --i) terms_[i] = terms_[i - 1];
    terms_[at] = term;
  }
  std::span<Term> all() { return {terms_.data(), count_}; }

 private:
  std::array<Term, 2 * kMaxRank> terms_{};
  size_t count_ = 0;
};

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/// True if `sum` plus one value of each term can lie in [lo, hi].
bool reaches(std::span<const Term> terms, int64_t sum, int64_t lo, int64_t hi) {
  if (terms.empty()) return lo <= sum && sum <= hi;
  const Term& first = terms[0];
  const std::span<const Term> rest = terms.subspan(1);
  int64_t least = 0, most = 0;
  for (const Term& term : rest) least += term.lo * term.stride, most += term.hi * term.stride;
  const int64_t from = std::max(first.lo, -floor_div(sum + most - lo, first.stride));
  const int64_t to = std::min(first.hi, floor_div(hi - sum - least, first.stride));
  for (int64_t c = from; c <= to; ++c)
    if (reaches(rest, sum + c * first.stride, lo, hi)) return true;
  return false;
}

/// Bytes of the innermost dimension.
int64_t run_bytes(const Tensor& tensor) {
  return dtype_bytes(tensor.dtype) * (tensor.rank > 0 ? tensor.sizes[tensor.rank - 1] : 1);
}

/// True if each dimension's stride is at least the span of the dimensions behind it, as in parts of a dense tensor.
bool is_nested(const Tensor& tensor) {
  if (tensor.rank == 0) return true;
  int64_t span = tensor.sizes[tensor.rank - 1];
  for (int d = tensor.rank - 2; d >= 0; --d) {
    if (tensor.sizes[d] <= 1) continue;
    if (tensor.strides[d] < span) return false;
    span += (tensor.sizes[d] - 1) * tensor.strides[d];
  }
  return true;
}

}  // namespace

bool overlaps_itself(const Tensor& tensor) {
  if (is_nested(tensor) || tensor.num_elements() <= 1) return false;
  const int64_t bytes = dtype_bytes(tensor.dtype), run = run_bytes(tensor);
  Terms terms;
  for (int d = 0; d + 1 < tensor.rank; ++d) {
    if (tensor.sizes[d] > 1 && tensor.strides[d] == 0) return true;
    for (int e = 0; e < d; ++e)
      if (tensor.sizes[d] > 1 && tensor.sizes[e] > 1 && std::abs(tensor.strides[d]) == std::abs(tensor.strides[e]))
        return true;
    for (const int sign : {1, -1}) terms.add(tensor.strides[d] * bytes, tensor.sizes[d], sign);
  }
  // The indices of two different elements differ in a first dimension, without loss of generality by 1 or more.
  const std::span<Term> all = terms.all();
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].lo = 1;
    if (reaches(all.subspan(i), 0, 1 - run, run - 1)) return true;
  }
  return false;
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (!extent_of(a).meets(extent_of(b))) return false;
  Terms terms;
  for (int d = 0; d + 1 < a.rank; ++d) terms.add(a.strides[d] * dtype_bytes(a.dtype), a.sizes[d], 1);
  for (int d = 0; d + 1 < b.rank; ++d) terms.add(b.strides[d] * dtype_bytes(b.dtype), b.sizes[d], -1);
  const int64_t apart = static_cast<int64_t>(reinterpret_cast<uintptr_t>(a.data) - reinterpret_cast<uintptr_t>(b.data));
  return reaches(terms.all(), apart, 1 - run_bytes(a), run_bytes(b) - 1);
}

bool is_rows_of(const Tensor& part, const Tensor& whole) {
  for (int d = 0; d < part.rank; ++d) {
    if (part.sizes[d] > 1 && part.strides[d] != whole.strides[d]) return false;
    if (d > 0 && part.sizes[d] != whole.sizes[d]) return false;
  }
  if (part.rank == 0 || part.sizes[0] == whole.sizes[0]) return part.data == whole.data;
  const auto apart =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(part.data) - reinterpret_cast<uintptr_t>(whole.data));
  const int64_t row = whole.strides[0] * dtype_bytes(whole.dtype);
  return apart >= 0 && row > 0 && apart % row == 0 && apart / row + part.sizes[0] <= whole.sizes[0];
}

}  // namespace seqtile::autotune

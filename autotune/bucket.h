// autotune/bucket.h -- the one function that maps a length to its bucket.
// SPDX-License-Identifier: Apache-2.0
//
// The ladder is {1} {2} {3..4} {5..8} {9..16}, then 8 buckets an octave: 69 buckets up to 4096, 77 up to 8192. Tuner,
// lookup, launch and `prove` call this one function, and no data changes it. Every record stores kBucketVersion.
#pragma once
#include <bit>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace seqtile::autotune {

constexpr int64_t kBucketVersion = 1;
constexpr int64_t kMaxLength = int64_t{1} << 40;

struct Bucket {
  int64_t lo, hi;
  bool operator==(const Bucket&) const = default;
};

/// Position of the bucket of `length` on the ladder, counted from 0. Requires: 1 <= length <= kMaxLength.
constexpr int64_t bucket_index(int64_t length) {
  if (length <= 2) return length - 1;
  const int octave = std::bit_width(static_cast<uint64_t>(length - 1)) - 1;  // 2^octave < length <= 2^(octave + 1)
  if (octave < 4) return octave + 1;                                         // {3..4} {5..8} {9..16}
  const int64_t eighth = (length - 1 - (int64_t{1} << octave)) >> (octave - 3);
  return 5 + (octave - 4) * 8 + eighth;
}

/// The bucket at position `index` of the ladder. Requires: 0 <= index <= bucket_index(kMaxLength).
constexpr Bucket bucket_at(int64_t index) {
  if (index < 2) return {index + 1, index + 1};
  if (index < 5) return {(int64_t{1} << (index - 1)) + 1, int64_t{1} << index};
  const int64_t octave = 4 + (index - 5) / 8, eighth = (index - 5) % 8;
  const int64_t base = int64_t{1} << octave, step = base / 8;
  return {base + eighth * step + 1, base + (eighth + 1) * step};
}

/// The bucket that contains `length`. Requires: 1 <= length <= kMaxLength.
constexpr Bucket bucket(int64_t length) { return bucket_at(bucket_index(length)); }

/// All buckets that contain a length of lo..hi, in ascending order.
/// Errors: invalid_argument unless 1 <= lo <= hi <= kMaxLength.
std::vector<Bucket> buckets(int64_t lo, int64_t hi);

/// Position of the bucket whose record serves the bucket at `index` where that has none: the nearest on the ladder, the
/// longer one of two. A kernel tuned for more rows loses less than one tuned for fewer. Engine and `explain` call this
/// one function.
std::optional<int64_t> nearest_recorded(int64_t index, const std::function<bool(int64_t)>& is_recorded);

}  // namespace seqtile::autotune

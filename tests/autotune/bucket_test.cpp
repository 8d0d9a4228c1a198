// tests/autotune/bucket_test.cpp -- every length has exactly one bucket, and the ladder never changes.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/op.h"

#include <catch2/catch.hpp>

#include "autotune/nearest_bucket.h"
#include "seqtile/error.h"

using namespace seqtile;
using namespace seqtile::autotune;

TEST_CASE("bucket: every length of 1..1,000,000 lies in exactly one bucket", "[autotune][bucket]") {
  // The ladder, walked once, has adjacent buckets without gaps or overlaps.
  const auto ladder = buckets(1, 1'000'000);
  int64_t next = 1;
  for (size_t i = 0; i < ladder.size(); ++i) {
    REQUIRE(ladder[i].lo == next);
    REQUIRE(ladder[i].hi >= ladder[i].lo);
    REQUIRE(ladder[i] == bucket_at(static_cast<int64_t>(i)));
    next = ladder[i].hi + 1;
  }
  REQUIRE(next > 1'000'000);
  int64_t wrong = 0;
  size_t at = 0;
  for (int64_t length = 1; length <= 1'000'000; ++length) {
    if (length > ladder[at].hi) ++at;
    wrong += bucket(length) != ladder[at] || bucket_index(length) != static_cast<int64_t>(at);
  }
  CHECK(wrong == 0);
}

TEST_CASE("bucket: the ladder is the documented one", "[autotune][bucket]") {
  CHECK(buckets(1, 4096).size() == 69);
  CHECK(buckets(1, 8192).size() == 77);
  CHECK(buckets(1, 16) == std::vector<Bucket>{{1, 1}, {2, 2}, {3, 4}, {5, 8}, {9, 16}});
  CHECK(buckets(17, 32) ==
        std::vector<Bucket>{{17, 18}, {19, 20}, {21, 22}, {23, 24}, {25, 26}, {27, 28}, {29, 30}, {31, 32}});
  CHECK(bucket(129) == Bucket{129, 144});
  CHECK(bucket(4096) == Bucket{3841, 4096});
  CHECK(bucket(4097) == Bucket{4097, 4608});
}

TEST_CASE("bucket: the top of the domain still has a bucket", "[autotune][bucket]") {
  CHECK(bucket(kMaxLength).hi == kMaxLength);
  CHECK(bucket(kMaxLength - 1).hi == kMaxLength);
  for (const int64_t power : {40, 36, 30, 20, 10, 5}) {
    const int64_t length = int64_t{1} << power;
    CHECK(bucket(length).hi == length);
    CHECK(bucket(length / 2 + 1).lo == length / 2 + 1);
  }
}

TEST_CASE("bucket: the nearest recorded one is counted in buckets, and the longer of two", "[autotune][bucket]") {
  const auto nearest = [](int64_t length, const std::vector<int64_t>& recorded) {
    const auto at = nearest_recorded(bucket_index(length), [&](int64_t index) {
      return std::ranges::any_of(recorded, [&](int64_t other) { return bucket_index(other) == index; });
    });
    return at ? bucket_at(*at).hi : 0;
  };
  CHECK(nearest(20, {}) == 0);
  CHECK(nearest(20, {18, 22}) == 22);
  CHECK(nearest(18, {18, 22}) == 18);
  CHECK(nearest(8, {2, 18}) == 18);  // two buckets away each, 6 and 10 rows
  CHECK(nearest(4096, {1, 32}) == 32);
  CHECK(nearest(1, {kMaxLength}) == kMaxLength);
}

TEST_CASE("buckets: a range outside of the domain is refused with its limits", "[autotune][bucket]") {
  for (const auto& [lo, hi] : {std::pair<int64_t, int64_t>{0, 5}, {-3, 5}, {7, 6}, {1, kMaxLength + 1}}) {
    try {
      buckets(lo, hi);
      FAIL("accepted " << lo << ".." << hi);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      CHECK(std::string(error.what()).find(std::to_string(lo) + ".." + std::to_string(hi)) != std::string::npos);
    }
  }
}

// tests/autotune/refusals_test.cpp -- reasons for which candidates fail are told once, with their numbers.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/tuning/refusals.h"

#include <catch2/catch.hpp>

using namespace seqtile::autotune;

TEST_CASE("refusals: the most frequent reason is told in the words of its first candidate", "[autotune]") {
  Refusals refusals;
  CHECK(refusals.main_reason().empty());
  CHECK(refusals.add(Config{{"block", int64_t{8}}}, {"crash", "signal 11"}));
  CHECK(refusals.add(Config{{"block", int64_t{16}}}, {"compile_error", "kernel toy_16: needs 300 B, 200 B are there"}));
  CHECK(refusals.main_reason() == R"(1 crash, signal 11 (first {"block":8}))");
  CHECK_FALSE(
      refusals.add(Config{{"block", int64_t{32}}}, {"compile_error", "kernel toy_32: needs 400 B, 200 B are there"}));
  const std::string main = R"(2 compile_error, needs 300 B, 200 B are there (first {"block":16}))";
  CHECK(refusals.main_reason() == main);
  CHECK(refusals.text() == R"(1 crash, signal 11 (first {"block":8}); )" + main);
}

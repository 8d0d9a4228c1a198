// tests/jit/nearest_word_test.cpp -- words that were mistyped, and counts with their nouns.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/nearest_word.h"

#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "jit/base/counted.h"

using namespace seqtile;

TEST_CASE("nearest word: one letter more, less, other or swapped", "[jit]") {
  const std::vector<std::string_view> known{"linear", "softmax", "rms_norm", "attention_forward"};
  for (const char* word : {"liner", "linearr", "lineer", "lniear", "LINEAR"})
    CHECK(nearest_word(word, known) == "linear");
  CHECK(nearest_word("rms-nrom", known) == "rms_norm");
  CHECK(nearest_word("attention_foward", known) == "attention_forward");
}

TEST_CASE("nearest word: a beginning counts before edits", "[jit]") {
  CHECK(nearest_word("cach", {"catch", "cache", "cache_size"}) == "cache");
  CHECK(nearest_word("thre", {"three", "threads"}) == "three");
  CHECK(nearest_word("att", {"act", "attention_forward", "attention"}) == "attention");
  CHECK(nearest_word("c", {"cache"}).empty());
}

TEST_CASE("nearest word: none where the words are different ones", "[jit]") {
  CHECK(nearest_word("gpu", {"cpu", "cuda"}).empty());
  CHECK(nearest_word("k", {"n", "m"}).empty());
  CHECK(nearest_word("matmul", {"linear", "softmax"}).empty());
  CHECK(nearest_word("lixxxr", {"linear"}).empty());  // three edits of six letters
  CHECK(nearest_word("", {"linear"}).empty());
  CHECK(nearest_word("linear", {}).empty());
  CHECK(nearest_word(std::string(5000, 'x'), {std::string(5000, 'x')}).empty());
}

TEST_CASE("nearest word: the first of equally near ones", "[jit]") {
  CHECK(nearest_word("sm_8x", {"sm_80", "sm_86"}) == "sm_80");
}

TEST_CASE("nearest word: the end of a message", "[jit]") {
  CHECK(did_you_mean("strct", {"strict", "tune"}) == "; did you mean strict?");
  CHECK(did_you_mean("zebra", std::array{"strict", "tune"}).empty());
}

TEST_CASE("counted: one is singular", "[jit]") {
  CHECK(counted(1, "record") == "1 record");
  CHECK(counted(0, "record") == "0 records");
  CHECK(counted(2, "stored record") == "2 stored records");
  CHECK(counted(1, "binary") == "1 binary");
  CHECK(counted(2, "binary") == "2 binaries");
  CHECK(counted(2, "distinct length") == "2 distinct lengths");
  CHECK(counted(2, "batch") == "2 batches");
  CHECK(counted(2, "key") == "2 keys");
}

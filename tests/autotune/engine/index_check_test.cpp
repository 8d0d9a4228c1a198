// tests/autotune/engine/index_check_test.cpp -- index tensors against the rules of a schema, each with one wrong
// number.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdint>
#include <limits>
#include <vector>

#include "autotune/engine/launch.h"
#include "seqtile/error.h"

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

using Kind = IndexRule::Kind;

/// ids into 10 rows, 2 sequences of q and k, and an output of 8 x 4.
template <class T>
struct Call {
  Call() {
    const DType dtype = sizeof(T) == 4 ? DType::i32 : DType::i64;
    schema.symbols = {"length", "tokens", "kv_tokens", "batch", "columns"};
    schema.args = {
        {"q", ArgRole::input, DType::f32, {"tokens", 4}},     {"k", ArgRole::input, DType::f32, {"kv_tokens", 4}},
        {"ids", ArgRole::input, dtype, {"batch", "columns"}}, {"q_start", ArgRole::input, dtype, {{"batch", 1}}},
        {"kv_start", ArgRole::input, dtype, {"batch"}},       {"kv_len", ArgRole::input, dtype, {"batch"}},
        {"out", ArgRole::output, DType::f32, {"tokens", 4}}};
    schema.indices = {{.arg = "ids", .limit = 10},
                      {.kind = Kind::borders, .arg = "q_start", .limit = "tokens", .most = "length"},
                      {.kind = Kind::spans, .arg = "kv_start", .limit = "kv_tokens", .counts = "kv_len"}};
    tensors = {make_tensor(q, DType::f32, {8, 4}),  make_tensor(k, DType::f32, {16, 4}),
               make_tensor(ids, dtype, {2, 3}),     make_tensor(q_start, dtype, {3}),
               make_tensor(kv_start, dtype, {2}),   make_tensor(kv_len, dtype, {2}),
               make_tensor(out, DType::f32, {8, 4})};
    tensors[2].strides[0] = 4;
  }
  std::string error(bool for_gpu = false) const {
    KernelCall call;
    try {
      CallLayout(schema, for_gpu).bind(tensors, length, {}, call);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  }

  alignas(64) float q[32] = {}, k[64] = {}, out[32] = {};
  alignas(64) T ids[8] = {0, 9, 4, -99, 9, 9, 0, -99}, q_start[3] = {0, 5, 8}, kv_start[2] = {10, 0},
                kv_len[2] = {6, 16};
  Schema schema;
  std::vector<Tensor> tensors;
  int64_t length = 5;
};

constexpr int32_t kMost = std::numeric_limits<int32_t>::max(), kLeast = std::numeric_limits<int32_t>::min();

}  // namespace

TEMPLATE_TEST_CASE("indices: a number that is no row is refused with tensor, element, value and limit", "[autotune]",
                   int32_t, int64_t) {
  Call<TestType> call;
  REQUIRE(call.error() == "");
  SECTION("places") {
    call.ids[5] = 10;
    CHECK(call.error() == "argument 2 'ids': element 1, 1 is 10; it must be at least 0 and below 10");
    call.ids[5] = -1;
    CHECK(call.error() == "argument 2 'ids': element 1, 1 is -1; it must be at least 0 and below 10");
    for (const int32_t wild : {kMost, kLeast}) {
      call.ids[0] = wild;
      CHECK(call.error().find("element 0, 0 is " + std::to_string(wild)) != std::string::npos);
    }
  }
  SECTION("borders") {
    call.q_start[2] = 9;
    CHECK(call.error() == "argument 3 'q_start': element 2 is 9; it must be at most 8 (tokens)");
    call.q_start[2] = 4;
    CHECK(call.error() == "argument 3 'q_start': element 2 is 4; it must be at least 5, which is element 1");
    call.q_start[0] = -1;
    CHECK(call.error() == "argument 3 'q_start': element 0 is -1; it must be at least 0");
    call.q_start[0] = kLeast;
    CHECK(call.error() == "argument 3 'q_start': element 0 is -2147483648; it must be at least 0");
  }
  SECTION("a length that is smaller than the lists are") {
    call.length = 4;
    CHECK(call.error() ==
          "argument 3 'q_start': elements 0 and 1 are 0 and 5, which is a list of 5 rows; at most 4 (length) expected");
    call.length = 6;
    CHECK(call.error() == "");
  }
  SECTION("spans") {
    call.kv_len[0] = 7;
    CHECK(call.error() ==
          "argument 4 'kv_start': element 0 is 10; with its 7 rows ('kv_len') it must end at 16 (kv_tokens) or before");
    call.kv_len[0] = -1;
    CHECK(call.error() == "argument 5 'kv_len': element 0 is -1; it must be at least 0");
    call.kv_len[0] = 6, call.kv_start[1] = -1;
    CHECK(call.error() == "argument 4 'kv_start': element 1 is -1; it must be at least 0");
    call.kv_start[1] = kMost, call.kv_len[1] = kMost;  // their sum exceeds i32
    CHECK(call.error().find("with its 2147483647 rows") != std::string::npos);
  }
  SECTION("empty lists, at the end too") {
    call.q_start[1] = 0, call.q_start[2] = 0;
    call.kv_len[0] = call.kv_len[1] = 0;
    call.kv_start[0] = 16;
    CHECK(call.error() == "");
  }
}

TEST_CASE("indices: numbers of 64 bits whose sum is none are refused", "[autotune]") {
  Call<int64_t> call;
  call.kv_start[1] = 3, call.kv_len[1] = std::numeric_limits<int64_t>::max();
  CHECK(call.error().find("argument 4 'kv_start': element 1 is 3") == 0);
  call.kv_start[1] = std::numeric_limits<int64_t>::max();
  CHECK(call.error().find("argument 4 'kv_start': element 1 is 9223372036854775807") == 0);
  call.q_start[1] = std::numeric_limits<int64_t>::min();
  CHECK(call.error().find("element 1 is -9223372036854775808; it must be at least 0") != std::string::npos);
  call.ids[0] = int64_t{1} << 32;  // the lower half is 0
  CHECK(call.error() == "argument 2 'ids': element 0, 0 is 4294967296; it must be at least 0 and below 10");
}

TEST_CASE("indices: lists of one row exactly, and of a number of rows that a symbol limits", "[autotune]") {
  Call<int32_t> call;
  call.schema.indices[1].least = 1, call.schema.indices[1].most = Dim(1);
  CHECK(call.error().find("elements 0 and 1 are 0 and 5, which is a list of 5 rows; at most 1 expected") !=
        std::string::npos);
  call.q_start[1] = 1, call.q_start[2] = 1;
  CHECK(call.error().find("elements 1 and 2 are 1 and 1, which is a list of 0 rows; at least 1 expected") !=
        std::string::npos);
  call.q_start[2] = 2;
  CHECK(call.error() == "");
  call.schema.indices[2].most = Dim("length", 1);
  CHECK(call.error() == "argument 5 'kv_len': element 1 is 16; it must be at most 6 (length + 1)");
}

TEST_CASE("indices: rows of two lists that are written are refused, in whatever order the lists are", "[autotune]") {
  Call<int32_t> call;
  CHECK(call.error() == "");  // sequences may share rows that are only read
  call.schema.indices[2].is_disjoint = true;
  CHECK(call.error() ==
        "argument 4 'kv_start': elements 1 and 0 are 0 and 10, and the first list has 16 rows ('kv_len'); rows of two "
        "lists would be written twice");
  call.kv_len[1] = 10;
  CHECK(call.error() == "");
  call.kv_start[0] = 9, call.kv_len[0] = 0;  // an empty list
  CHECK(call.error() == "");
}

TEST_CASE("indices: a GPU's index tensors are not read", "[autotune]") {
  Call<int32_t> call;
  call.ids[0] = -5;
  call.tensors[2].data = reinterpret_cast<void*>(uintptr_t{0x7f0000000000});
  CHECK(call.error(true) == "");
}

TEST_CASE("indices: a rule that fits no argument is refused", "[autotune]") {
  const auto error = [](const IndexRule& rule) {
    Call<int32_t> call;
    call.schema.indices = {rule};
    return call.error();
  };
  CHECK(error({.arg = "idz", .limit = 1}) == "an index rule names unknown argument 'idz'");
  CHECK(error({.arg = "q", .limit = 1}).find("must be an input of i32 or i64") != std::string::npos);
  CHECK(error({.arg = "out", .limit = 1}).find("must be an input of i32 or i64") != std::string::npos);
  CHECK(error({.kind = Kind::borders, .arg = "ids", .limit = 1}).find("with one dimension") != std::string::npos);
  CHECK(error({.arg = "ids", .limit = "rows"}) == "an index rule names unknown symbol 'rows'");
  CHECK(error({.kind = Kind::spans, .arg = "kv_start", .limit = 1, .counts = "q_start"})
            .find("differ in dtype or size") != std::string::npos);
}

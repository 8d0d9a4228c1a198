// tests/autotune/engine/engine_launch_test.cpp -- makes argument blocks of tensors: binding, checks, packing.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "autotune/engine/launch.h"
#include "seqtile/error.h"

using namespace seqtile;
using namespace seqtile::autotune;
using Catch::Matchers::Contains;

namespace {

// Extend attention in miniature, with two symbols beside the length, one dimension of symbol + 1, and one run-time
// scalar.
Schema sample_schema() {
  Schema schema;
  schema.symbols = {"length", "tokens", "batch"};
  schema.args = {{"q", ArgRole::input, DType::f32, {"tokens", 8}, 16},
                 {"starts", ArgRole::input, DType::i64, {{"batch", 1}}},
                 {"w", ArgRole::weight, DType::bf16, {4, 8}, 64},
                 {"out", ArgRole::output, DType::f32, {"tokens", 8}}};
  schema.scalars = {"kv_length"};
  return schema;
}

struct Call {
  alignas(64) float q[10 * 12] = {}, out[10 * 8] = {};
  alignas(64) uint16_t w[4 * 32] = {};
  int64_t starts[4] = {};
  std::vector<Tensor> tensors{make_tensor(q, DType::f32, {10, 8}), make_tensor(starts, DType::i64, {4}),
                              make_tensor(w, DType::bf16, {4, 8}), make_tensor(out, DType::f32, {10, 8})};
  int64_t length = 6;
  std::vector<int64_t> scalars{77};

  Call() { tensors[0].strides[0] = 12, tensors[2].strides[0] = 32; }
  std::string error(const CallLayout& layout) {
    KernelCall call;
    try {
      layout.bind(tensors, length, scalars, call);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  }
};

std::string schema_error(const Schema& schema) {
  try {
    CallLayout layout(schema);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("launch: symbols, slots, workspaces and scalars land in the argument block in order", "[autotune]") {
  const CallLayout layout(sample_schema());
  Call given;
  KernelCall call;
  layout.bind(given.tensors, given.length, given.scalars, call);
  CHECK(std::vector<int64_t>(call.symbol_values().begin(), call.symbol_values().end()) ==
        std::vector<int64_t>{6, 10, 3, 77});
  const SizeExpr splits{2, {{2, 1, 0}, {3, 16, 0}}};  // 2 * batch * ceil(kv_length / 16)
  alignas(64) float scratch[64];
  append_workspace(call, scratch, splits.value(call.symbol_values()));
  layout.finish(given.scalars, nullptr, call);
  const auto base = [](const void* data) { return reinterpret_cast<uint64_t>(data); };
  const std::vector<uint64_t> expected{
      base(given.q), 10, 8, 12, 1, base(given.starts), 4, 1, base(given.w), 4, 8, 32, 1, base(given.out), 10, 8, 8, 1,
      base(scratch), 30, 1, 77};
  CHECK(std::vector<uint64_t>(call.block().begin(), call.block().end()) == expected);
  CHECK(layout.num_slots(1) == static_cast<int>(expected.size()));
  CHECK(grid_of({SizeExpr{1, {{0, 4, 0}}}, SizeExpr{3, {}}, SizeExpr{1, {{1, 4, 2}}}}, call.symbol_values()) ==
        Grid{2, 3, 3});
}

TEST_CASE("launch: each wrong tensor is refused by name, value and limit", "[autotune]") {
  const CallLayout layout(sample_schema());
  Call call;
  REQUIRE(call.error(layout) == "");
  SECTION("count") {
    call.tensors.pop_back();
    CHECK_THAT(call.error(layout), Contains("3 tensors given, 4 expected"));
  }
  SECTION("scalars") {
    call.scalars.clear();
    CHECK_THAT(call.error(layout), Contains("0 scalars given, 1 expected"));
  }
  SECTION("length") {
    for (const int64_t length : {int64_t{0}, int64_t{-5}}) {
      call.length = length;
      CHECK_THAT(call.error(layout), Contains("length is " + std::to_string(length)) && Contains("at least 1"));
    }
  }
  SECTION("dtype") {
    call.tensors[0].dtype = DType::bf16;
    CHECK_THAT(call.error(layout), Contains("argument 0 'q': dtype is bf16, f32 expected"));
  }
  SECTION("rank") {
    call.tensors[1] = make_tensor(call.starts, DType::i64, {2, 2});
    CHECK_THAT(call.error(layout), Contains("'starts': rank is 2, 1 expected"));
  }
  SECTION("absent") {
    call.tensors[3] = Tensor{};
    CHECK_THAT(call.error(layout), Contains("'out': rank is 0, 2 expected"));
  }
  SECTION("null data") {
    call.tensors[3].data = nullptr;
    CHECK_THAT(call.error(layout), Contains("'out': data is null"));
  }
  SECTION("static size") {
    call.tensors[2].sizes[1] = 9;
    CHECK_THAT(call.error(layout), Contains("'w': size of dimension 1 is 9, 8 expected"));
  }
  SECTION("symbol bound before") {
    call.tensors[3].sizes[0] = 9;
    CHECK_THAT(call.error(layout), Contains("'out': size of dimension 0 is 9, 10 expected (tokens)"));
  }
  SECTION("symbol plus one") {
    call.tensors[1].sizes[0] = 0;
    CHECK_THAT(call.error(layout), Contains("'starts': size of dimension 0 is 0, at least 1 expected"));
  }
  SECTION("negative size") {
    call.tensors[0].sizes[0] = call.tensors[3].sizes[0] = -1;
    CHECK_THAT(call.error(layout), Contains("'q': size of dimension 0 is -1, at least 0 expected"));
  }
  SECTION("innermost stride") {
    call.tensors[0].strides[1] = 2;
    CHECK_THAT(call.error(layout), Contains("'q': innermost stride is 2, 1 expected"));
  }
  SECTION("gaps inside a dense argument") {
    Schema packed = sample_schema();
    packed.args[2] = {"w", ArgRole::weight, DType::bf16, {2, 2, 8}, 16, true};
    call.tensors[2] = make_tensor(call.w, DType::bf16, {2, 2, 8});
    CHECK(call.error(CallLayout(packed)).empty());
    call.tensors[2].strides[0] = 64;  // panels may have gaps between them
    CHECK(call.error(CallLayout(packed)).empty());
    call.tensors[2].strides[1] = 16;
    CHECK_THAT(call.error(CallLayout(packed)), Contains("'w': stride of dimension 1 is 16, 8 expected"));
  }
  SECTION("row stride alignment") {
    call.tensors[2].strides[0] = 16;
    CHECK_THAT(call.error(layout), Contains("'w': stride 16 of dimension 0 is 32 bytes, a multiple of 64 expected"));
  }
  SECTION("base alignment") {
    call.tensors[0].data = call.q + 1;
    CHECK_THAT(call.error(layout), Contains("'q': data is at 0x") && Contains("16-byte alignment expected"));
  }
  SECTION("rows beyond the address space") {
    const auto strided = [&](size_t tensor, int64_t stride) {
      Call wide;
      wide.tensors[tensor].strides[0] = stride;
      return wide.error(layout);
    };
    const char* const kBeyond = "reaches beyond the address space of 140737488355328 bytes";
    for (const int64_t bits : {62, 61, 60, 46}) {
      INFO("stride 2^" << bits);
      const int64_t stride = int64_t{1} << bits;
      CHECK_THAT(
          strided(0, stride),
          Contains("'q': stride " + std::to_string(stride) + " of dimension 0 with size 10") && Contains(kBeyond));
      CHECK_THAT(strided(0, -stride), Contains("'q': stride -") && Contains(kBeyond));
      CHECK_THAT(strided(3, stride), Contains("'out': stride ") && Contains(kBeyond));
    }
    call.tensors[0] = make_tensor(call.q, DType::f32, {1, 8}),
    call.tensors[3] = make_tensor(call.out, DType::f32, {1, 8});
    call.tensors[0].strides[0] = int64_t{1} << 62;  // no second row is there
    CHECK(call.error(layout).empty());
  }
  SECTION("overlapping output") {
    call.tensors[3].strides[0] = 0;
    CHECK_THAT(call.error(layout), Contains("'out': stride of dimension 0 is 0"));
  }
}

TEST_CASE("launch: the length that a dimension shows must be the call's", "[autotune]") {
  Schema schema;
  schema.args = {{"x", ArgRole::input, DType::f32, {"length", 2}}};
  const CallLayout layout(schema);
  float x[8];
  KernelCall call;
  const Tensor tensor = make_tensor(x, DType::f32, {4, 2});
  layout.bind({&tensor, 1}, 4, {}, call);
  CHECK_THROWS_WITH(layout.bind({&tensor, 1}, 5, {}, call),
                    Contains("'x': size of dimension 0 is 4, 5 expected (length)"));
}

TEST_CASE("launch: a schema that cannot be called is refused", "[autotune]") {
  Schema schema = sample_schema();
  SECTION("unknown symbol") {
    schema.args[0].dims[0] = "tokenz";
    CHECK_THAT(schema_error(schema), Contains("'q' names unknown symbol 'tokenz'"));
  }
  SECTION("unbound symbol") {
    schema.symbols.push_back("heads");
    CHECK_THAT(schema_error(schema), Contains("binds symbol 'heads'"));
  }
  SECTION("name twice") {
    schema.scalars.push_back("batch");
    CHECK_THAT(schema_error(schema), Contains("symbol 'batch' twice"));
  }
  SECTION("first symbol") {
    schema.symbols[0] = "rows";
    CHECK_THAT(schema_error(schema), Contains("must be \"length\""));
  }
  SECTION("alignment") {
    schema.args[2].alignment = 48;
    CHECK_THAT(schema_error(schema), Contains("'w' asks for alignment 48"));
  }
  SECTION("rank") {
    schema.args[0].dims = {1, 2, 3, 4, 5};
    CHECK_THAT(schema_error(schema), Contains("'q' has rank 5, the limit is 4"));
  }
  SECTION("too many arguments") {
    for (int i = 0; i < 40; ++i) schema.args.push_back({"a" + std::to_string(i), ArgRole::input, DType::f32, {1, 2}});
    CHECK_THAT(schema_error(schema), Contains("slots, the limit is 192"));
  }
  SECTION("too many symbols") {
    for (int i = 0; i < 13; ++i) schema.scalars.push_back("s" + std::to_string(i));
    CHECK_THAT(schema_error(schema), Contains("17 symbols and scalars, the limit is 16"));
  }
}

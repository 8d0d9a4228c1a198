// tests/autotune/engine/overlap_test.cpp -- tensors that share memory, compared with the set of all of their addresses.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <random>
#include <set>

#include "autotune/engine/launch.h"
#include "seqtile/error.h"

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

/// Collects the bytes of all elements. Returns false if two elements share a byte.
bool bytes_of(const Tensor& tensor, std::set<uintptr_t>& bytes) {
  bool is_new = true;
  std::array<int64_t, kMaxRank> at{};
  for (int64_t n = 0; n < tensor.num_elements(); ++n) {
    int64_t rest = n, offset = 0;
    for (int d = tensor.rank - 1; d >= 0; --d) at[d] = rest % tensor.sizes[d], rest /= tensor.sizes[d];
    for (int d = 0; d < tensor.rank; ++d) offset += at[d] * tensor.strides[d];
    for (int64_t b = 0; b < dtype_bytes(tensor.dtype); ++b)
      is_new &= bytes.insert(reinterpret_cast<uintptr_t>(tensor.data) + offset * dtype_bytes(tensor.dtype) + b).second;
  }
  return is_new;
}

Tensor random_tensor(std::mt19937& random) {
  const auto up_to = [&](int n) { return static_cast<int64_t>(random() % (n + 1)); };
  const bool is_wide = random() % 2;
  Tensor tensor{nullptr, is_wide ? DType::f32 : DType::bf16, static_cast<int>(1 + random() % 4), {}, {}};
  tensor.data = reinterpret_cast<void*>(uintptr_t{0x10000} + up_to(200) * (is_wide ? 4 : 2));
  for (int d = 0; d < tensor.rank; ++d) {
    tensor.sizes[d] = 1 + up_to(3) - (random() % 40 == 0);
    tensor.strides[d] = d == tensor.rank - 1 ? 1 : up_to(40) - 8;
  }
  return tensor;
}

Schema schema_of(const std::vector<std::string>& in_place) {
  Schema schema;
  schema.args = {
      {"x", ArgRole::input, DType::f32, {"length", 4}},
      {"w", ArgRole::weight, DType::f32, {4, 4}},
      {.name = "y", .role = ArgRole::output, .dtype = DType::f32, .dims = {"length", 4}, .in_place = in_place},
      {"z", ArgRole::output, DType::f32, {"length", 4}}};
  return schema;
}

struct Call {
  alignas(64) float memory[400] = {};
  std::vector<Tensor> tensors{at(0), make_tensor(memory + 100, DType::f32, {4, 4}), at(200), at(300)};
  Tensor at(int64_t offset) { return make_tensor(memory + offset, DType::f32, {5, 4}); }
  std::string error(const Schema& schema, bool for_gpu = false) {
    KernelCall call;
    try {
      CallLayout(schema, for_gpu).bind(tensors, 5, {}, call);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  }
};

}  // namespace

TEST_CASE("overlap: as all addresses say, at random strides", "[autotune]") {
  std::mt19937 random(7);
  int64_t overlapping = 0, apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const Tensor a = random_tensor(random), b = random_tensor(random);
    std::set<uintptr_t> of_a, of_b, both;
    const bool a_is_new = bytes_of(a, of_a), b_is_new = bytes_of(b, of_b);
    INFO(i);
    REQUIRE(overlaps_itself(a) == !a_is_new);
    REQUIRE(overlaps_itself(b) == !b_is_new);
    std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::inserter(both, both.end()));
    REQUIRE(overlap(a, b) == !both.empty());
    const Extent extent = extent_of(a);
    if (!of_a.empty()) REQUIRE((extent.begin == *of_a.begin() && extent.end == *of_a.rbegin() + 1));
    ++(both.empty() ? apart : overlapping);
  }
  CHECK(overlapping > 1000);
  CHECK(apart > 1000);
}

TEST_CASE("overlap: columns of one buffer lie between each other, and cost no time", "[autotune]") {
  float* packed = reinterpret_cast<float*>(uintptr_t{1} << 40);
  const auto heads = [&](int64_t first, int64_t count) {
    Tensor tensor = make_tensor(packed + first * 64, DType::f32, {int64_t{1} << 30, count, 64});
    tensor.strides[0] = 12 * 64;
    return tensor;
  };
  CHECK_FALSE(overlap(heads(0, 6), heads(6, 3)));
  CHECK(overlap(heads(0, 7), heads(6, 3)));
  CHECK_FALSE(overlaps_itself(heads(0, 12)));
  CHECK(overlaps_itself(heads(0, 13)));
}

TEST_CASE("overlap: an output that an operation may not write over an input is refused by name", "[autotune]") {
  const Schema apart = schema_of({}), in_place = schema_of({"x"});
  Call call;
  for (const bool for_gpu : {false, true}) {
    REQUIRE(call.error(apart, for_gpu) == "");
    call.tensors[2] = call.at(0);
    CHECK(call.error(apart, for_gpu) == "argument 2 'y': overlaps argument 0 'x'; give it memory of its own");
    CHECK(call.error(in_place, for_gpu) == "");
    call.tensors[2] = call.at(4);  // one row further
    CHECK(call.error(in_place, for_gpu) ==
          "argument 2 'y': overlaps argument 0 'x' in part; give it memory of its own, or the very same tensor");
    call.tensors[2] = call.at(84);
    CHECK(call.error(in_place, for_gpu) == "argument 2 'y': overlaps argument 1 'w'; give it memory of its own");
    call.tensors[2] = call.at(316);
    CHECK(call.error(in_place, for_gpu) == "argument 3 'z': overlaps argument 2 'y'; give it memory of its own");
    call.tensors[2] = call.at(200);
  }
}

TEST_CASE("overlap: an output whose rows overlap is refused, one whose rows have gaps is not", "[autotune]") {
  const Schema schema = schema_of({});
  Call call;
  call.tensors[3].strides[0] = 8;
  CHECK(call.error(schema) == "");
  call.tensors[3].strides[0] = 3;
  CHECK(call.error(schema) ==
        "argument 3 'z': two of its elements have one address; give strides that keep them apart");
  call.tensors[0].strides[0] = 3;  // an input may repeat elements
  call.tensors[3].strides[0] = 4;
  CHECK(call.error(schema) == "");
}

TEST_CASE("overlap: work in place that names no input like the output is refused", "[autotune]") {
  Call call;
  CHECK(call.error(schema_of({"q"})).find("argument 'y' names 'q' for work in place") == 0);
  CHECK(call.error(schema_of({"z"})).find("argument 'y' names 'z' for work in place") == 0);
}

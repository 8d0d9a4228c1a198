// tests/jit/base/tensor_runs_test.cpp -- elements of strided tensors: their runs, and values of all formats.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/tensor_runs.h"

#include <catch2/catch.hpp>

#include <array>
#include <utility>
#include <vector>

namespace seqtile {
namespace {

using Runs = std::vector<std::pair<int64_t, int64_t>>;

Runs runs_of(std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  Tensor tensor{nullptr, DType::f32, static_cast<int>(sizes.size()), {}, {}};
  std::ranges::copy(sizes, tensor.sizes.begin());
  std::ranges::copy(strides, tensor.strides.begin());
  Runs runs;
  for_each_run(tensor, [&](int64_t offset, int64_t count) { runs.emplace_back(offset, count); });
  return runs;
}

}  // namespace

TEST_CASE("tensor runs: adjacent elements are one run, gaps end it", "[jit]") {
  CHECK(runs_of({2, 3, 4}, {12, 4, 1}) == Runs{{0, 24}});
  CHECK(runs_of({2, 3, 4}, {20, 4, 1}) == Runs{{0, 12}, {20, 12}});
  CHECK(runs_of({2, 2, 4}, {20, 9, 1}) == Runs{{0, 4}, {9, 4}, {20, 4}, {29, 4}});
  CHECK(runs_of({2, 2}, {1, 2}) == Runs{{0, 1}, {2, 1}, {1, 1}, {3, 1}});
  CHECK(runs_of({2, 1, 4}, {4, 99, 1}) == Runs{{0, 8}});
}

TEST_CASE("tensor runs: a tensor without dimensions has an element, one without rows has none", "[jit]") {
  CHECK(runs_of({}, {}) == Runs{{0, 1}});
  CHECK(runs_of({0, 4}, {4, 1}).empty());
  CHECK(runs_of({0, 4}, {9, 1}).empty());
  CHECK(runs_of({4, 0}, {9, 1}).empty());
}

TEST_CASE("tensor: sizes that only a run knows give dense strides too", "[jit]") {
  const std::vector<int64_t> sizes{2, 3, 4};
  const Tensor tensor = make_tensor(nullptr, DType::bf16, sizes);
  CHECK(tensor.rank == 3);
  CHECK(tensor.strides == std::array<int64_t, kMaxRank>{12, 4, 1});
  CHECK(tensor.strides == make_tensor(nullptr, DType::bf16, {2, 3, 4}).strides);
  CHECK(tensor.num_elements() == 24);
  CHECK(make_tensor(nullptr, DType::bf16, std::vector<int64_t>{}).num_elements() == 1);
}

TEST_CASE("tensor values: each format gives back what was written", "[jit]") {
  for (const DType dtype :
       {DType::i1, DType::i8, DType::i16, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64}) {
    INFO(dtype_name(dtype));
    alignas(8) std::array<std::byte, 6 * 8> bytes{};
    Tensor tensor = make_tensor(bytes.data(), dtype, {2, 2});
    tensor.strides[0] = 3;                                                                   // a gap behind each row
    const std::vector<double> values = dtype == DType::i1 ? std::vector<double>{0, 1, 1, 0}  //
                                                          : std::vector<double>{0, 1, -5, 96};
    for (int64_t i = 0; i < 4; ++i) write_element(tensor, i / 2 * 3 + i % 2, values[static_cast<size_t>(i)]);
    CHECK(read_elements(tensor) == values);
    CHECK(read_elements(row_of(tensor, 1)) == std::vector(values.begin() + 2, values.end()));
    CHECK(read_row(tensor, 0) == std::vector(values.begin(), values.begin() + 2));
    CHECK(read_element(tensor, 2) == 0);
  }
}

TEST_CASE("tensor values: random values stay inside the tensor and follow the seed", "[jit]") {
  std::vector<float> memory(3 * 40, 7);
  Tensor tensor = make_tensor(memory.data(), DType::f32, {3, 32});
  tensor.strides[0] = 40;
  fill_uniform_int(tensor, -2, 2, 1);
  for (const double value : read_elements(tensor)) CHECK((value >= -2 && value <= 2));
  fill_normal(tensor, 0, 1, 1);
  const std::vector<double> first = read_elements(tensor);
  fill_normal(tensor, 0, 1, 2);
  CHECK(read_elements(tensor) != first);
  fill_normal(tensor, 0, 1, 1);
  CHECK(read_elements(tensor) == first);
  for (size_t row = 0; row < 3; ++row)
    for (size_t gap = 32; gap < 40; ++gap) CHECK(memory[row * 40 + gap] == 7);
}

}  // namespace seqtile

// tests/autotune/call/call_values_test.cpp -- inputs are filled, outputs are poisoned, results are compared.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/call/call_values.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/fakes/toy_ops.h"

namespace seqtile::autotune {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

Difference compared(const std::vector<double>& got, const std::vector<double>& want) {
  return compare(got, want, {0.1, 0.01});
}

/// Rows of `columns` elements with a gap of one element, poison at first.
struct Rows {
  Rows(DType dtype, int64_t rows, int64_t columns)
      : bytes(static_cast<size_t>(rows * (columns + 1) * dtype_bytes(dtype)), kPoison),
        tensor(make_tensor(bytes.data(), dtype, {rows, columns})) {
    tensor.strides[0] = columns + 1;
  }
  std::vector<std::byte> bytes;
  Tensor tensor;
};

}  // namespace

TEST_CASE("compare: the worst element is named, in tolerances and relative to its size", "[autotune]") {
  const Difference difference = compared({1, 10.5, 100}, {1, 10, 98});
  CHECK(difference.element == 1);
  CHECK((difference.got == 10.5 && difference.want == 10));
  CHECK(difference.tolerances == Approx(0.5 / 0.2));
  CHECK_FALSE(difference.is_within());
  CHECK(difference.relative == Approx(2.0 / 98));  // the small value counts as one of the root mean square
  CHECK(compared({1, 10.1}, {1, 10}).is_within());
  CHECK(compared({}, {}).is_within());
  CHECK(compare(std::vector{1.0}, std::vector{1.0}, {0, 0}).is_within());
  CHECK_FALSE(compare(std::vector{1.0}, std::vector{1.5}, {0, 0}).is_within());
}

TEST_CASE("compare: an infinity is right only where it is wanted, and NaN never", "[autotune]") {
  CHECK(compared({kInfinity, -kInfinity}, {kInfinity, -kInfinity}).tolerances == 0);
  for (const auto& [got, want] : {std::pair{-kInfinity, kInfinity},
                                  {1.0, kInfinity},
                                  {kNan, kInfinity},
                                  {kInfinity, 1.0},
                                  {kNan, 1.0},
                                  {1.0, kNan},
                                  {kNan, kNan}}) {
    INFO(got << " for " << want);
    const Difference difference = compared({5, got, 5}, {5, want, 5});
    CHECK(difference.tolerances == kInfinity);
    CHECK(difference.relative == kInfinity);
    CHECK(difference.element == 1);
  }
}

TEST_CASE("compare: parts add up to the larger errors", "[autotune]") {
  Difference all = compared({1, 2}, {1, 2.5});
  all.add(compared({100}, {104}));
  CHECK(all.got == 2);
  CHECK(all.relative == Approx(0.2));
  all.add(compared({kNan}, {1}));
  CHECK(all.tolerances == kInfinity);
  CHECK(all.relative == kInfinity);
}

TEST_CASE("poison: unwritten elements are found between gaps", "[autotune]") {
  for (const DType dtype : {DType::i8, DType::bf16, DType::f32, DType::f64}) {
    INFO(dtype_name(dtype));
    Rows rows(dtype, 3, 300);
    CHECK(is_poison(rows.bytes));
    CHECK_FALSE(has_written(rows.tensor));
    CHECK(find_poison(rows.tensor) == 0);
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t i = 0; i < 300; ++i)
        if (row != 1 || i != 290) write_element(rows.tensor, row * 301 + i, 1);
    CHECK(find_poison(rows.tensor) == 590);
    CHECK(has_written(rows.tensor));
    write_element(rows.tensor, 301 + 290, 1);
    CHECK(find_poison(rows.tensor) == -1);
    poison(rows.tensor);
    CHECK(is_poison(rows.bytes));
  }
}

TEST_CASE("fill: values repeat with their phase, have the scale and leave gaps alone", "[autotune]") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    INFO(dtype_name(dtype));
    Rows a(dtype, 40, 500), b(dtype, 40, 500);
    fill_repeating(a.tensor, 3, 7), fill_repeating(b.tensor, 3, 7);
    CHECK(a.bytes == b.bytes);
    CHECK(std::isnan(read_element(a.tensor, 500)));
    double squares = 0;
    for (const double value : read_elements(a.tensor)) squares += value * value;
    CHECK(squares / 20000 == Approx(9).epsilon(0.05));
    fill_repeating(b.tensor, 3, 8);
    CHECK(read_element(b.tensor, 0) == read_element(a.tensor, 1));
    fill_default(b.tensor, ArgRole::weight, 7);
    fill_repeating(a.tensor, 1 / std::sqrt(500.0), 7);
    CHECK(a.bytes == b.bytes);
  }
}

TEST_CASE("fill: the operation fills what it knows", "[autotune]") {
  OpDef op = test::toy_add_op();
  const Workload workload = test::toy_add("plain", 4);
  const Schema schema = op.schema(workload);
  Rows x(DType::f32, 2, 4), as_default(DType::f32, 2, 4);
  const Problem problem{&workload, &schema, {2}, {x.tensor, {}}};
  fill_input(op, problem, 0, 3);
  fill_default(as_default.tensor, ArgRole::input, 3 * 7919);
  CHECK(x.bytes == as_default.bytes);
  op.fill = [](const Problem& p, size_t arg, uint64_t seed) {
    write_element(p.tensors[arg], 0, static_cast<double>(seed));
    return true;
  };
  fill_input(op, problem, 0, 3);
  CHECK(read_element(x.tensor, 0) == 3);
}

}  // namespace seqtile::autotune

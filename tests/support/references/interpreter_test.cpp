// tests/support/references/interpreter_test.cpp -- the reference interpreter against plain C++ and values by hand.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/references/interpreter.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "seqtile/builder.h"
#include "seqtile/error.h"
#include "tests/support/kernels/sample_kernels.h"

namespace seqtile::testing {
namespace {

using ir::OpKind;

/// Runs one program of a kernel that stores its result, a scalar or tile of up to `count` elements, into an f64 view.
std::vector<double> run_values(int64_t count, const std::function<Var(KernelBuilder&)>& kernel) {
  KernelBuilder b("k");
  Var out = b.view("out", DType::f64, {count});
  Var value = kernel(b);
  if (value.type().is_scalar()) value = b.full({1}, value);
  if (value.type().rank > 1) value = b.reshape(value, {value.type().num_elements()});
  b.store(out, {0}, b.cast(value, DType::f64));
  std::vector<double> result(static_cast<size_t>(count), -77);
  const ParamValue params[] = {make_tensor(result.data(), DType::f64, {count})};
  interpret(*b.finish(), {1, 1, 1}, params);
  return result;
}

struct Failure {
  ErrorCode code;
  std::string message;
};

/// The error of running one program of the kernel on a view of 4 i64 (values 10, 11, 12, 13).
Failure run_error(const std::function<void(KernelBuilder&, Var)>& kernel) {
  KernelBuilder b("k");
  kernel(b, b.view("x", DType::i64, {kDynamic}));
  int64_t memory[] = {10, 11, 12, 13};
  const ParamValue params[] = {make_tensor(memory, DType::i64, {4})};
  const auto function = b.finish();
  try {
    interpret(*function, {1, 1, 1}, params);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::internal, "no error"};
}

Var tile_of(KernelBuilder& b, int64_t n, DType dtype = DType::f64) { return b.cast(b.iota(n), dtype); }

using Values = std::vector<double>;

}  // namespace

TEST_CASE("interpreter: matmul over a grid with edge tiles", "[jit][ir]") {
  const int64_t m = 37, n = 24, k = 20;
  std::vector<float> x(m * k), w(n * k), y(m * n, -1.0f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7 % 23) - 11);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 5 % 19) - 9);
  const ParamValue params[] = {make_tensor(x.data(), DType::f32, {m, k}), make_tensor(w.data(), DType::f32, {n, k}),
                               make_tensor(y.data(), DType::f32, {m, n})};
  interpret(*sample_matmul(n, k, 16, 16, 8), {3, 2, 1}, params);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double expected = 0;
      for (int64_t p = 0; p < k; ++p) expected += x[i * k + p] * w[j * k + p];
      REQUIRE(y[i * n + j] == expected);
    }
}

TEST_CASE("interpreter: softmax with padding filled by -inf", "[jit][ir]") {
  std::vector<float> x = {1, 2, 3, 0, 0, 0}, y(6, -1.0f);
  const ParamValue params[] = {make_tensor(x.data(), DType::f32, {2, 3}), make_tensor(y.data(), DType::f32, {2, 3})};
  interpret(*sample_softmax(8), {2, 1, 1}, params);
  const double total = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  for (int i = 0; i < 3; ++i) {
    CHECK(y[i] == Approx(std::exp(i + 1.0) / total).epsilon(1e-7));
    CHECK(y[3 + i] == Approx(1.0 / 3).epsilon(1e-7));
  }
}

TEST_CASE("interpreter: every operation runs, and flags and waits work", "[jit][ir]") {
  std::vector<float> storage(8 * 8 * 2 + 8);
  auto* x = storage.data();
  while (reinterpret_cast<uintptr_t>(x) % 32 != 0) ++x;
  float* y = x + 64;
  for (int i = 0; i < 64; ++i) x[i] = 0.25f * static_cast<float>(i);
  int64_t placed[6] = {};
  int64_t flags[4] = {0, 37, 0, static_cast<int64_t>(reinterpret_cast<intptr_t>(placed))};
  const ParamValue params[] = {make_tensor(x, DType::f32, {8, 8}), make_tensor(y, DType::f32, {8, 8}),
                               make_tensor(flags, DType::i64, {4}), int64_t{5}};
  interpret(*sample_every_op(), {1, 1, 1}, params);
  CHECK(flags[0] == 1);                           // signal
  CHECK(flags[1] == 42);                          // 37 + 5; the compare-and-swap expects 5 and finds 42
  CHECK(placed[5] == 9);                          // the wait is over at once
  CHECK(y[0] == static_cast<float>(0x40500000));  // the bits of x[1, 5] == 3.25f as a number
}

TEST_CASE("interpreter: shapes", "[jit][ir]") {
  CHECK(run_values(6, [](KernelBuilder& b) {
          return b.trans(b.reshape(tile_of(b, 6), {2, 3}));
        }) == Values{0, 3, 1, 4, 2, 5});
  CHECK(run_values(8, [](KernelBuilder& b) {
          return b.trans(b.reshape(tile_of(b, 8), {2, 2, 2}), {2, 0, 1});
        }) == Values{0, 2, 4, 6, 1, 3, 5, 7});
  CHECK(run_values(6, [](KernelBuilder& b) {
          return b.broadcast(b.expand(tile_of(b, 3), 1), {3, 2});
        }) == Values{0, 0, 1, 1, 2, 2});
  CHECK(run_values(6, [](KernelBuilder& b) {
          return b.broadcast(b.expand(tile_of(b, 3), 0), {2, 3});
        }) == Values{0, 1, 2, 0, 1, 2});
  CHECK(run_values(4, [](KernelBuilder& b) {
          return b.split(b.reshape(tile_of(b, 8), {2, 4})).second;
        }) == Values{1, 3, 5, 7});
  CHECK(run_values(6, [](KernelBuilder& b) { return b.join(tile_of(b, 3), tile_of(b, 3) + 10); }) ==
        Values{0, 10, 1, 11, 2, 12});
  CHECK(run_values(6, [](KernelBuilder& b) {
          return b.concat(b.reshape(tile_of(b, 2), {2, 1}), b.reshape(tile_of(b, 4) + 10, {2, 2}));
        }) == Values{0, 10, 11, 1, 12, 13});
}

TEST_CASE("interpreter: reductions and scans along any axis", "[jit][ir]") {
  const auto ints = [](KernelBuilder& b) { return b.reshape(b.iota(12) % 5, {2, 3, 2}); };
  // 0 1 | 2 3 | 4 0   and   1 2 | 3 4 | 0 1
  CHECK(run_values(4, [&](KernelBuilder& b) { return b.sum(ints(b), 1); }) == Values{6, 4, 4, 7});
  CHECK(run_values(6, [&](KernelBuilder& b) { return b.reduce_max(ints(b), 0); }) == Values{1, 2, 3, 4, 4, 1});
  CHECK(run_values(6, [&](KernelBuilder& b) { return b.reduce(ints(b), 2, "min"); }) == Values{0, 2, 0, 1, 3, 0});
  CHECK(run_values(6, [&](KernelBuilder& b) { return b.reduce(ints(b), 2, "prod"); }) == Values{0, 6, 0, 2, 12, 0});
  CHECK(run_values(6, [&](KernelBuilder& b) { return b.reduce(ints(b) > 3, 2, "any"); }) == Values{0, 0, 1, 0, 1, 0});
  CHECK(run_values(4, [&](KernelBuilder& b) { return b.argreduce(ints(b), 1, "max").second; }) == Values{2, 1, 1, 1});
  CHECK(run_values(4, [&](KernelBuilder& b) { return b.argreduce(ints(b), 1, "min").first; }) == Values{0, 0, 0, 1});
  CHECK(run_values(12, [&](KernelBuilder& b) { return b.scan(ints(b), 1, "sum"); }) ==
        Values{0, 1, 2, 4, 6, 4, 1, 2, 4, 6, 4, 7});
  CHECK(run_values(12, [&](KernelBuilder& b) { return b.scan(ints(b), 1, "max"); }) ==
        Values{0, 1, 2, 3, 4, 3, 1, 2, 3, 4, 3, 4});
  CHECK(run_values(1, [&](KernelBuilder& b) { return b.argreduce(b.iota(6) / 3, 0, "max").second; }) == Values{3});
}

TEST_CASE("interpreter: integers wrap, truncate and shift as the operations say", "[jit][ir]") {
  const auto scalar = [](DType dtype, int64_t a, OpKind kind, int64_t b) {
    return run_values(1,
                      [&](KernelBuilder& k) { return k.binary(kind, k.constant(dtype, a), k.constant(dtype, b)); })[0];
  };
  CHECK(scalar(DType::i8, 127, OpKind::add, 1) == -128);
  CHECK(scalar(DType::i32, 1 << 30, OpKind::shl, 1) == -2147483648.0);
  CHECK(scalar(DType::i32, -8, OpKind::shr, 1) == -4);
  CHECK(scalar(DType::i32, -7, OpKind::div, 2) == -3);
  CHECK(scalar(DType::i32, -7, OpKind::rem, 2) == -1);
  CHECK(scalar(DType::i32, 6, OpKind::bit_xor, 3) == 5);
  CHECK(run_values(1, [](KernelBuilder& b) { return b.unary(OpKind::bit_not, b.constant(DType::i1, int64_t{0})); }) ==
        Values{1});
}

TEST_CASE("interpreter: casts round, truncate and saturate; bitcast keeps bits", "[jit][ir]") {
  const auto cast = [](double value, DType dtype) {
    return run_values(1, [&](KernelBuilder& b) { return b.cast(b.constant(DType::f64, value), dtype); })[0];
  };
  CHECK(cast(1.00390625, DType::bf16) == 1.0);  // 1 + 2^-8 is halfway: to even
  CHECK(cast(1.01171875, DType::bf16) == 1.015625);
  CHECK(cast(0.1, DType::f32) == static_cast<double>(0.1f));
  CHECK(cast(70000, DType::f16) == std::numeric_limits<double>::infinity());
  CHECK(cast(-2.9, DType::i32) == -2);
  CHECK(cast(1e20, DType::i32) == 2147483647);
  CHECK(cast(-1e20, DType::i8) == -128);
  CHECK(cast(std::nan(""), DType::i32) == 0);
  CHECK(cast(-0.5, DType::i1) == 1);
  CHECK(run_values(1, [](KernelBuilder& b) { return b.bitcast(b.constant(DType::f32, 1.5), DType::i32); }) ==
        Values{0x3fc00000});
  CHECK(run_values(1, [](KernelBuilder& b) {
          return b.bitcast(b.constant(DType::i16, int64_t{0x3f80}), DType::bf16);
        }) == Values{1});
}

TEST_CASE("interpreter: min and max take the other side of a NaN; comparisons with NaN are false", "[jit][ir]") {
  const double nan = std::nan("");
  CHECK(run_values(1, [&](KernelBuilder& b) { return b.max(b.constant(DType::f32, nan), 2.0); }) == Values{2});
  CHECK(run_values(1, [&](KernelBuilder& b) { return b.min(b.constant(DType::f32, 3.0), nan); }) == Values{3});
  CHECK(run_values(1, [&](KernelBuilder& b) { return b.constant(DType::f32, nan) < 1.0; }) == Values{0});
  CHECK(run_values(1, [&](KernelBuilder& b) { return b.compare(Compare::ne, b.constant(DType::f32, nan), nan); }) ==
        Values{1});
}

TEST_CASE("interpreter: the builder's compositions are the functions they name", "[jit][ir]") {
  for (const double x : {-3.0, -0.5, 0.0, 0.75, 4.0}) {
    const auto value = [&](auto function) {
      return run_values(1, [&](KernelBuilder& b) { return function(b, b.constant(DType::f64, x)); })[0];
    };
    const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    CHECK(value([](KernelBuilder& b, Var v) { return b.exp(v); }) == Approx(std::exp(x)));
    CHECK(value([](KernelBuilder& b, Var v) { return b.log(b.exp(v)); }) == Approx(x).margin(1e-12));
    CHECK(value([](KernelBuilder& b, Var v) { return b.sigmoid(v); }) == Approx(1 / (1 + std::exp(-x))));
    CHECK(value([](KernelBuilder& b, Var v) { return b.silu(v); }) == Approx(x / (1 + std::exp(-x))));
    CHECK(value([](KernelBuilder& b, Var v) { return b.gelu(v); }) == Approx(x / 2 * (1 + std::erf(x / std::sqrt(2)))));
    CHECK(value([](KernelBuilder& b, Var v) { return b.gelu_tanh(v); }) == Approx(x / 2 * (1 + std::tanh(inner))));
  }
}

TEST_CASE("interpreter: rand is Philox 4x32-10", "[jit][ir]") {
  // First word of the Random123 known answer for counter 0, key 0: 6627e8d5.
  CHECK(run_values(1, [](KernelBuilder& b) { return b.rand(0, b.iota(1)); }) == Values{(0x6627e8d5u >> 8) * 0x1p-24});
  const Values many = run_values(1000, [](KernelBuilder& b) { return b.rand(42, b.iota(1000)); });
  double mean = 0;
  for (const double value : many) {
    REQUIRE(value >= 0);
    REQUIRE(value < 1);
    mean += value / 1000;
  }
  CHECK(mean == Approx(0.5).margin(0.03));
}

TEST_CASE("interpreter: loops, branches and permuted carried values", "[jit][ir]") {
  CHECK(run_values(1, [](KernelBuilder& b) {  // Fibonacci: the carried values change places
          Var zero = b.constant(DType::i64, int64_t{0}), one = b.constant(DType::i64, int64_t{1});
          return b.for_loop(0, 10, 1, {zero, one}, [](Var, std::vector<Var> carried) {
            return std::vector{carried[1], carried[0] + carried[1]};
          })[0];
        }) == Values{55});
  CHECK(run_values(1, [](KernelBuilder& b) {  // the Collatz steps of 6
          Var n = b.constant(DType::i64, int64_t{6}), steps = b.constant(DType::i64, int64_t{0});
          return b.while_loop(
              {n, steps}, [](std::vector<Var> carried) { return carried[0] > 1; },
              [&](std::vector<Var> carried) {
                Var value = carried[0];
                Var next = b.if_then(
                    b.compare(Compare::eq, value % 2, 0), [&] { return std::vector{value / 2}; },
                    [&] { return std::vector{value * 3 + 1}; })[0];
                return std::vector{next, carried[1] + 1};
              })[1];
        }) == Values{8});
  CHECK(run_values(1, [](KernelBuilder& b) {  // the initial value, since there is no iteration
          Var seven = b.constant(DType::i64, int64_t{7});
          return b.for_loop(5, 5, 1, {seven}, [](Var i, std::vector<Var>) { return std::vector{i}; })[0];
        }) == Values{7});
}

TEST_CASE("interpreter: loads fill and stores drop beyond the view, on both sides", "[jit][ir]") {
  KernelBuilder b("k");
  Var x = b.view("x", DType::f32, {kDynamic}), y = b.view("y", DType::f32, {kDynamic});
  b.store(y, {-1}, b.load(x, {-2}, {6}, 9.0));
  const auto function = b.finish();
  float in[] = {1, 2, 3}, out[] = {0, 0, 0, 0, 0, 0, 0};
  const ParamValue params[] = {make_tensor(in, DType::f32, {3}), make_tensor(out, DType::f32, {4})};
  interpret(*function, {1, 1, 1}, params);
  CHECK(std::vector<float>(out, out + 7) == std::vector<float>{9, 1, 2, 3, 0, 0, 0});
}

TEST_CASE("interpreter: strided views, slices, at, gather, scatter and store_add", "[jit][ir]") {
  KernelBuilder b("k");
  Var x = b.view("x", DType::i32, {kDynamic, kDynamic}, {.contiguous = false});
  Var y = b.view("y", DType::i32, {3, 4});
  Var window = b.slice(x, {1, 1}, {2, 2});
  b.store(y, {0, 0}, b.load(window, {0, 0}, {4, 4}, -1));               // only 2 x 2 of it exists
  b.store_add(b.at(y, 0, 0), {0}, b.load(b.at(x, 1, 0), {0}, {2}));     // column 0 of x
  b.scatter(y, b.iota(4) * 2, 2, b.gather(x, b.iota(4) - 1, 1, 2, 7));  // rows 0 2 4 6 <- rows -1 0 1 2
  int32_t in[12], out[12] = {};
  for (int i = 0; i < 12; ++i) in[i] = i;
  Tensor transposed = make_tensor(in, DType::i32, {3, 4});  // x[i, j] = in[j * 4 + i]: 4 rows, 3 columns
  std::swap(transposed.sizes[0], transposed.sizes[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  const ParamValue params[] = {transposed, make_tensor(out, DType::i32, {3, 4})};
  interpret(*b.finish(), {1, 1, 1}, params);
  // window = [5 9; 6 10]; column 0 of x = 0 1; gathered rows: (7 7) (4 8) (5 9) (6 10)
  CHECK(std::vector<int32_t>(out, out + 12) == std::vector<int32_t>{5, 10, 7, 7, 6, 10, -1, -1, -1, -1, 4, 8});
}

TEST_CASE("interpreter: memory of every element type", "[jit][ir]") {
  const auto copy = [](DType dtype, auto in, auto out) {
    KernelBuilder b("k");
    Var x = b.view("x", dtype, {2}), y = b.view("y", dtype, {2});
    b.store(y, {0}, b.load(x, {0}, {2}));
    const ParamValue params[] = {make_tensor(in.data(), dtype, {2}), make_tensor(out.data(), dtype, {2})};
    interpret(*b.finish(), {1, 1, 1}, params);
    CHECK(in == out);
  };
  copy(DType::i1, std::array<int8_t, 2>{1, 0}, std::array<int8_t, 2>{});
  copy(DType::i8, std::array<int8_t, 2>{-5, 7}, std::array<int8_t, 2>{});
  copy(DType::i16, std::array<int16_t, 2>{-500, 7}, std::array<int16_t, 2>{});
  copy(DType::i32, std::array<int32_t, 2>{-50000, 7}, std::array<int32_t, 2>{});
  copy(DType::i64, std::array<int64_t, 2>{INT64_MIN, 7}, std::array<int64_t, 2>{});
  copy(DType::f16, std::array<uint16_t, 2>{0x3c01, 0x0001}, std::array<uint16_t, 2>{});
  copy(DType::bf16, std::array<uint16_t, 2>{0x3f81, 0xff80}, std::array<uint16_t, 2>{});
  copy(DType::f32, std::array<float, 2>{0.1f, -0.0f}, std::array<float, 2>{});
  copy(DType::f64, std::array<double, 2>{0.1, -1e300}, std::array<double, 2>{});
}

TEST_CASE("interpreter: atomics return the old value", "[jit][ir]") {
  KernelBuilder b("k");
  Var x = b.view("x", DType::i64, {6}), old = b.view("old", DType::i64, {6});
  const char* kinds[] = {"add", "max", "min", "exchange"};
  for (int64_t i = 0; i < 4; ++i) b.store_scalar(old, {i}, b.atomic(kinds[i], x, {i}, 5));
  b.store_scalar(old, {4}, b.cas(x, {4}, 3, 8));
  b.store_scalar(old, {5}, b.cas(x, {5}, 4, 8));
  int64_t memory[] = {3, 3, 3, 3, 3, 3}, before[6] = {};
  const ParamValue params[] = {make_tensor(memory, DType::i64, {6}), make_tensor(before, DType::i64, {6})};
  interpret(*b.finish(), {1, 1, 1}, params);
  CHECK(std::vector<int64_t>(before, before + 6) == std::vector<int64_t>{3, 3, 3, 3, 3, 3});
  CHECK(std::vector<int64_t>(memory, memory + 6) == std::vector<int64_t>{8, 5, 3, 5, 8, 3});
}

TEST_CASE("interpreter: programs see their place in the grid", "[jit][ir]") {
  KernelBuilder b("k");
  Var y = b.view("y", DType::i64, {3, 2, 2});
  Var index = b.program_id(0) + b.program_id(1) * 10 + b.program_id(2) * 100 + b.num_programs(2) * 1000;
  b.store_scalar(y, {b.program_id(0), b.program_id(1), b.program_id(2)}, index);
  int64_t out[12];
  const ParamValue params[] = {make_tensor(out, DType::i64, {3, 2, 2})};
  interpret(*b.finish(), {3, 2, 2}, params);
  CHECK(out[0] == 2000);
  CHECK(out[11] == 2112);
}

TEST_CASE("interpreter: what no program may do is an error", "[jit][ir]") {
  const auto message = [](const std::function<void(KernelBuilder&, Var)>& kernel) {
    const Failure failure = run_error(kernel);
    CHECK(failure.code == ErrorCode::wrong_result);
    return failure.message;
  };
  CHECK(message([](KernelBuilder& b, Var x) { b.load_scalar(x, {4}); }) ==
        "load_scalar %2: the element [4 of 4] is out of range");
  CHECK(message([](KernelBuilder& b, Var x) { b.store_scalar(x, {-1}, 0); }) ==
        "store_scalar: the element [-1 of 4] is out of range");
  CHECK(message([](KernelBuilder& b, Var x) { b.atomic("add", x, {9}, 1); }) ==
        "atomic %3: the element [9 of 4] is out of range");
  CHECK(message([](KernelBuilder& b, Var x) { b.slice(x, {2}, {3}); }) ==
        "slice %3: offset 2 and size 3 leave axis 0 of size 4");
  CHECK(message([](KernelBuilder& b, Var x) { b.load_scalar(x, {0}) / (b.load_scalar(x, {1}) - 11); }) ==
        "div: 10 by zero");
  CHECK(message([](KernelBuilder& b, Var x) { b.binary(OpKind::shl, b.load_scalar(x, {0}), 64); }) ==
        "shl: a shift by 64 bits of i64");
  CHECK(message([](KernelBuilder& b, Var x) { b.assume(b.size(x, 0) > 4); }) == "assume: the assumption is false");
  CHECK(message([](KernelBuilder& b, Var x) { b.assert_true(b.size(x, 0) > 4, "too short"); }) ==
        "assert_true: too short");
  CHECK(message([](KernelBuilder& b, Var x) {
          b.for_loop(0, 4, b.size(x, 0) - 4, {}, [](Var, std::vector<Var>) { return std::vector<Var>{}; });
        }) == "for_loop: the step 0 is not positive");
  const Failure deadlock = run_error([](KernelBuilder& b, Var x) { b.wait_ge(x, {0}, 11); });
  CHECK(deadlock.code == ErrorCode::timeout);
  CHECK(deadlock.message.find("the element is 10 and nothing can raise it to 11") != std::string::npos);
}

TEST_CASE("interpreter: parameters are checked against their types", "[jit][ir]") {
  const auto message = [](ir::Function& function, std::vector<ParamValue> params) -> std::string {
    try {
      interpret(function, {1, 1, 1}, params);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  KernelBuilder b("k");
  b.view("x", DType::f32, {kDynamic, 4}, {.alignment = 16});
  b.scalar("n");
  const auto function = b.finish();
  alignas(64) float data[64] = {};
  const auto x = [&](DType dtype, int64_t columns) { return make_tensor(data, dtype, {2, columns}); };
  const std::string type = "; it is view<[?, 4], f32, contiguous, align 16>";
  CHECK(message(*function, {x(DType::f32, 4), int64_t{1}}) == "");
  CHECK(message(*function, {Tensor{}, int64_t{1}}) == "");  // absent
  CHECK(message(*function, {x(DType::f32, 4)}) == "k takes 2 parameters, not 1");
  CHECK(message(*function, {x(DType::f32, 4), 1.0}) == "parameter n takes a value of i64");
  CHECK(message(*function, {x(DType::i32, 4), int64_t{1}}) == "parameter x: the tensor's elements are i32" + type);
  CHECK(message(*function, {x(DType::f32, 8), int64_t{1}}) == "parameter x: size 1 of the tensor is 8" + type);
  CHECK(message(*function, {make_tensor(data, DType::f32, {4}), int64_t{1}}) ==
        "parameter x: the tensor has 1 dimensions" + type);
  CHECK(message(*function, {make_tensor(data + 1, DType::f32, {2, 4}), int64_t{1}}) ==
        "parameter x: the base is not aligned" + type);
  Tensor strided = x(DType::f32, 4);
  strided.strides[0] = 6;
  CHECK(message(*function, {strided, int64_t{1}}) == "parameter x: stride 0 is not aligned" + type);
  strided.strides = {8, 2};
  CHECK(message(*function, {strided, int64_t{1}}) == "parameter x: the innermost stride is 2" + type);
}

}  // namespace seqtile::testing

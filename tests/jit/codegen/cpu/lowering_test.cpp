// tests/jit/codegen/cpu/lowering_test.cpp -- compiled kernels against the interpreter, on every target of this machine.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <functional>
#include <memory>

#include "seqtile/builder.h"
#include "seqtile/compiler.h"
#include "tests/support/kernels/sample_kernels.h"
#include "tests/support/references/compare_compiled.h"

namespace seqtile {
namespace {

using testing::compare_compiled;
using testing::Param;

/// x [rows, n] -> y [rows, m]; a program loads and stores `rows` whole rows.
std::unique_ptr<ir::Function> row_kernel(const std::string& name, int64_t rows, int64_t n, int64_t m, DType dtype,
                                         const std::function<Var(KernelBuilder&, Var)>& body) {
  KernelBuilder b(name);
  Var x = b.view("x", dtype, {kDynamic, n}), y = b.view("y", dtype, {kDynamic, m});
  Var row = b.program_id(0) * rows;
  Var tile = b.load(x, {row, 0}, {rows, n});
  b.store(y, {row, 0}, b.cast(body(b, b.cast(tile, DType::f32)), dtype));
  return b.finish();
}

}  // namespace

TEST_CASE("lowering: every operation agrees with the interpreter", "[jit][codegen]") {
  for (const int64_t count : {0, 2, 5, 9})
    compare_compiled(*testing::sample_every_op(), {1, 1, 1},
                     {{DType::f32, {8, 8}}, {DType::f32, {9, 8}, 0, 0, true}, {DType::i64, {4}, 0, 1}}, {count}, 2e-4);
}

TEST_CASE("lowering: matrix products of awkward shapes agree with the interpreter", "[jit][codegen]") {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 16, 32}, {7, 40, 36}, {33, 72, 65}, {16, 24, 128}})
    compare_compiled(*testing::sample_matmul(n, k, 16, 24, 32), {(m + 15) / 16, (n + 23) / 24, 1},
                     {{DType::f32, {m, k}}, {DType::f32, {n, k}}, {DType::f32, {m, n}, 0, 0, true}}, {}, 1e-4);
}

TEST_CASE("lowering: softmax of any number of columns agrees with the interpreter", "[jit][codegen]") {
  for (const int64_t columns : {1, 3, 16, 31, 64})
    compare_compiled(*testing::sample_softmax(64), {5, 1, 1},
                     {{DType::f32, {5, columns}}, {DType::f32, {5, columns}, 0, 0, true}});
}

TEST_CASE("lowering: rows beyond the end are neither read nor written", "[jit][codegen]") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t rows : {1, 3, 4, 9}) {
      const auto kernel = row_kernel("norm", 4, 37, 37, dtype, [](KernelBuilder& b, Var x) {
        Var mean = b.sum(x, 1) / 37.0;
        Var centred = x - b.broadcast(b.expand(mean, 1), {4, 37});
        Var variance = b.sum(centred * centred, 1) / 37.0 + 1e-5;
        return centred * b.broadcast(b.expand(b.unary(ir::OpKind::rsqrt, variance), 1), {4, 37});
      });
      compare_compiled(*kernel, {(rows + 3) / 4, 1, 1}, {{dtype, {rows, 37}}, {dtype, {rows, 37}, 0, 0, true}}, {},
                       dtype == DType::f32 ? 2e-5 : 1e-2);
    }
}

TEST_CASE("lowering: rows that leave the caches are the same rows", "[jit][codegen]") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t columns : {32, 96, 160, 200}) {  // 200 columns end inside a cache line
      const auto kernel = row_kernel("scaled", 2, columns, columns, dtype, [&](KernelBuilder& b, Var x) {
        return x / b.broadcast(b.expand(b.sum(x * x, 1) + 1.0, 1), {2, columns});
      });
      for (const std::string& name : cpu_target_names()) {
        if (!can_compile_for(cpu_target(name))) continue;
        bool streams = false;
        compile(*kernel, cpu_target(name), [&](std::string_view stage, std::string_view text) {
          streams |= stage == "ll" && text.find("!nontemporal") != text.npos;
        });
        CHECK(streams);
      }
      compare_compiled(*kernel, {3, 1, 1}, {{dtype, {5, columns}}, {dtype, {5, columns}, 0, 0, true}}, {},
                       dtype == DType::f32 ? 2e-5 : 1e-2);
    }
}

// A sum over a size that only the call knows ends with the operands' k, on whichever axis k lies.
TEST_CASE("lowering: products over a dynamic k agree with the interpreter", "[jit][codegen]") {
  constexpr int64_t kRows = 16, kColumns = 40;
  for (const bool is_transposed : {true, false}) {
    KernelBuilder b("dynamic_k");
    Var x = b.view("x", DType::f32, {kDynamic, kDynamic});
    Var w = b.view("w", DType::f32, {kDynamic, kColumns}), y = b.view("y", DType::f32, {kDynamic, kColumns});
    Var zero = b.constant(DType::i64, int64_t{0});
    Var sums = b.for_loop(
        0, b.size(x, is_transposed ? 0 : 1), 16, {b.full({kRows, kColumns}, 0.0)}, [&](Var k, std::vector<Var> before) {
          Var left = is_transposed ? b.trans(b.load(x, {k, zero}, {16, kRows})) : b.load(x, {zero, k}, {kRows, 16});
          return std::vector{b.dot(left, b.load(w, {k, zero}, {16, kColumns}), before[0])};
        })[0];
    b.store(y, {0, 0}, sums);
    const auto kernel = b.finish();
    for (const auto& [m, k] : {std::pair<int64_t, int64_t>{3, 64}, {20, 7}, {5, 0}, {0, 30}})
      compare_compiled(*kernel, {1, 1, 1},
                       {{DType::f32, {is_transposed ? k : m, is_transposed ? m : k}},
                        {DType::f32, {k, kColumns}},
                        {DType::f32, {13, kColumns}, 0, 0, true}},
                       {}, 1e-4);
  }
}

TEST_CASE("lowering: of bits, true is the larger", "[jit][codegen]") {
  KernelBuilder b("bits");
  Var x = b.view("x", DType::i1, {4, 16}), z = b.view("z", DType::i1, {4, 16}), y = b.view("y", DType::i1, {4, 16});
  b.store(y, {0, 0}, b.compare(Compare::lt, b.load(x, {0, 0}, {4, 16}), b.load(z, {0, 0}, {4, 16})));
  compare_compiled(*b.finish(), {1, 1, 1},
                   {{DType::i1, {4, 16}}, {DType::i1, {4, 16}}, {DType::i1, {4, 16}, 0, 0, true}});
}

TEST_CASE("lowering: products whose tiles reach beyond k, overlap or are packed narrowly", "[jit][codegen]") {
  for (const int64_t rows : {2, 12}) {  // dot products from unpacked rows, and panels
    KernelBuilder b("beyond_k");
    Var x = b.view("x", DType::f32, {rows, 64}), w = b.view("w", DType::f32, {8, 40});
    Var y = b.view("y", DType::f32, {rows, 8});
    Var columns = b.trans(b.load(w, {0, 0}, {8, 64}));
    b.store(y, {0, 0}, b.dot(b.load(x, {0, 0}, {rows, 64}), columns, b.full({rows, 8}, 0.0)));
    compare_compiled(
        *b.finish(), {1, 1, 1},
        {{DType::f32, {rows, 64}}, {DType::f32, {8, 40}, -2, 2, false, 8}, {DType::f32, {rows, 8}, 0, 0, true}}, {},
        1e-4);
  }
  for (const int64_t step : {16, 64}) {  // slices of 32 that overlap, and slices with gaps
    KernelBuilder b("other_step");
    Var x = b.view("x", DType::f32, {kDynamic, 64}), w = b.view("w", DType::f32, {24, 64});
    Var y = b.view("y", DType::f32, {kDynamic, 24});
    Var sums = b.for_loop(0, 64, step, {b.full({8, 24}, 0.0)}, [&](Var k, std::vector<Var> c) {
      return std::vector{b.dot(b.load(x, {0, k}, {8, 32}), b.trans(b.load(w, {0, k}, {24, 32})), c[0])};
    })[0];
    b.store(y, {0, 0}, sums);
    compare_compiled(*b.finish(), {1, 1, 1},
                     {{DType::f32, {8, 64}}, {DType::f32, {24, 64}}, {DType::f32, {8, 24}, 0, 0, true}}, {}, 1e-4);
  }
  KernelBuilder b("narrow_panels");
  Var x = b.view("x", DType::f32, {kDynamic, 64}), w = b.view("w", DType::f32, {4, 64, 4});
  Var y = b.view("y", DType::f32, {kDynamic, 16});
  Var sums = b.for_loop(0, 64, 32, {b.full({8, 16}, 0.0)}, [&](Var k, std::vector<Var> c) {
    Var columns = b.reshape(b.trans(b.load(w, {0, k, 0}, {4, 32, 4}), {1, 0, 2}), {32, 16});
    return std::vector{b.dot(b.load(x, {0, k}, {8, 32}), columns, c[0])};
  })[0];
  b.store(y, {0, 0}, sums);
  compare_compiled(*b.finish(), {1, 1, 1},
                   {{DType::f32, {8, 64}}, {DType::f32, {4, 64, 4}}, {DType::f32, {8, 16}, 0, 0, true}}, {}, 1e-4);
}

TEST_CASE("lowering: products of two operands that lie along k, of a depth that only the call knows",
          "[jit][codegen]") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t depth : {1, 31, 64, 131}) {
      KernelBuilder b("weight_gradient");
      Var y = b.view("y", dtype, {kDynamic, 40}), x = b.view("x", dtype, {kDynamic, 70});
      Var w = b.view("w", DType::f32, {40, 70});
      Var row = b.program_id(0) * 32, column = b.program_id(1) * 64;
      Var sums = b.for_loop(0, b.size(y, 0), 64, {b.full({32, 64}, 0.0)},
                            [&](Var k, std::vector<Var> c) {
                              Var left = b.trans(b.load(y, {k, row}, {64, 32}));
                              return std::vector{b.dot(left, b.load(x, {k, column}, {64, 64}), c[0])};
                            },
                            {{"mr", int64_t{6}}, {"nr", int64_t{32}}, {"kc", int64_t{64}}})[0];
      b.store(w, {row, column}, sums);
      // Rows of x behind the end of y are no part of the sum.
      compare_compiled(*b.finish(), {2, 2, 1},
                       {{dtype, {depth, 40}}, {dtype, {depth + 3, 70}}, {DType::f32, {40, 70}, 0, 0, true}}, {}, 1e-3);
    }
}

TEST_CASE("lowering: a residual that is updated in place is read before it is written", "[jit][codegen]") {
  KernelBuilder b("add_norm");
  Var x = b.view("x", DType::f32, {kDynamic, 40}), r = b.view("r", DType::f32, {kDynamic, 40});
  Var sum_out = b.view("sum_out", DType::f32, {kDynamic, 40}), y = b.view("y", DType::f32, {kDynamic, 40});
  Var row = b.program_id(0) * 2;
  Var residual = b.load(r, {row, 0}, {2, 40});
  Var sum = b.load(x, {row, 0}, {2, 40}) + residual;
  b.store(sum_out, {row, 0}, sum);
  Var scale = b.unary(ir::OpKind::rsqrt, b.sum(sum * sum, 1) + 1e-3);
  b.store(y, {row, 0}, sum * b.broadcast(b.expand(scale, 1), {2, 40}) + residual);
  const auto kernel = b.finish();
  const std::vector<Param> params{
      {DType::f32, {5, 40}}, {DType::f32, {5, 40}}, {DType::f32, {5, 40}}, {DType::f32, {5, 40}, 0, 0, true}};
  compare_compiled(*kernel, {3, 1, 1}, params);
  compare_compiled(*kernel, {3, 1, 1}, params, {}, 2e-5, {-1, -1, 1, -1});  // sum_out is r,
  compare_compiled(*kernel, {3, 1, 1}, params, {}, 2e-5, {-1, -1, 1, 0});   // and y is x
}

TEST_CASE("lowering: a tensor may be updated in place from other places of its own", "[jit][codegen]") {
  const auto check = [](const char* name, const std::function<void(KernelBuilder&, Var, Var)>& body) {
    KernelBuilder b(name);
    Var from = b.view("from", DType::f32, {kDynamic, 40}), to = b.view("to", DType::f32, {kDynamic, 40});
    body(b, from, to);
    const auto kernel = b.finish();
    const std::vector<Param> params{{DType::f32, {9, 40}}, {DType::f32, {9, 40}}};
    compare_compiled(*kernel, {1, 1, 1}, params);
    compare_compiled(*kernel, {1, 1, 1}, params, {}, 2e-5, {-1, 0});  // `to` is `from`
  };
  check("rows_down", [](KernelBuilder& b, Var from, Var to) { b.store(to, {1, 0}, b.load(from, {0, 0}, {8, 40})); });
  check("columns_right", [](KernelBuilder& b, Var from, Var to) {
    b.store(to, {0, 1}, b.load(from, {0, 0}, {8, 39}) * 2.0);
  });
  check("transposed", [](KernelBuilder& b, Var from, Var to) {
    b.store(to, {0, 0}, b.trans(b.load(from, {0, 0}, {8, 8})) + 1.0);
  });
  check("halves", [](KernelBuilder& b, Var from, Var to) {
    Var left = b.load(from, {0, 0}, {8, 20}), right = b.load(from, {0, 20}, {8, 20});
    b.store(to, {0, 0}, left - right);
    b.store(to, {0, 20}, left + right);
  });
}

TEST_CASE("lowering: shape operations agree with the interpreter", "[jit][codegen]") {
  const auto check = [](const char* name, int64_t n, int64_t m, const std::function<Var(KernelBuilder&, Var)>& body) {
    compare_compiled(*row_kernel(name, 6, n, m, DType::f32, body), {1, 1, 1},
                     {{DType::f32, {6, n}}, {DType::f32, {6, m}, 0, 0, true}});
  };
  check("swap_pairs", 20, 20, [](KernelBuilder& b, Var x) {
    const auto [even, odd] = b.split(x);
    return b.join(-odd, even);
  });
  check("concat", 20, 40, [](KernelBuilder& b, Var x) { return b.concat(x * 2.0, x + 1.0); });
  check("concat_used", 20, 40, [](KernelBuilder& b, Var x) { return b.concat(x * 2.0, x + 1.0) * 3.0; });
  check("transposed_twice", 20, 20, [](KernelBuilder& b, Var x) { return b.trans(b.trans(x) * 2.0); });
  check("gram", 20, 6, [](KernelBuilder& b, Var x) { return b.dot(x, b.trans(x), b.full({6, 6}, 1.0)); });
  check("heads", 24, 24, [](KernelBuilder& b, Var x) {
    Var heads = b.reshape(x, {6, 3, 8});
    Var top = b.reduce_max(heads, 2);
    return b.reshape(heads - b.broadcast(b.expand(top, 2), {6, 3, 8}), {6, 24});
  });
  check("column_sums", 20, 20, [](KernelBuilder& b, Var x) {
    return x - b.broadcast(b.expand(b.sum(x, 0), 0), {6, 20});
  });
  check("prefix", 20, 20, [](KernelBuilder& b, Var x) { return b.scan(x, 1, "sum"); });
  check("arg", 20, 20, [](KernelBuilder& b, Var x) {
    const auto [best, where] = b.argreduce(x, 1, "max");
    return x * b.broadcast(b.expand(best + b.cast(where, DType::f32), 1), {6, 20});
  });
}

TEST_CASE("lowering: tiles carried through loops and branches agree with the interpreter", "[jit][codegen]") {
  KernelBuilder b("power");
  Var x = b.view("x", DType::f32, {8, 8}), y = b.view("y", DType::f32, {8, 8}), steps = b.scalar("steps");
  Var a = b.load(x, {0, 0}, {8, 8}) * 0.3;
  const auto last = b.for_loop(0, steps, 1, {a, b.sum(a, 1)}, [&](Var i, std::vector<Var> c) {
    Var product = b.dot(c[0], a, c[0] * 0.5);  // the carried tile is the accumulator and the left operand
    Var scaled = b.if_then(
        b.compare(Compare::eq, i % 2, 0), [&] { return std::vector{product * 1.5}; },
        [&] {
          return std::vector{product - b.broadcast(b.expand(c[1], 1), {8, 8})};
        })[0];
    return std::vector{scaled, b.reduce_max(scaled, 1)};
  });
  b.store(y, {0, 0}, last[0] + b.broadcast(b.expand(last[1], 1), {8, 8}));
  const auto kernel = b.finish();
  for (const int64_t count : {0, 1, 2, 5})
    compare_compiled(*kernel, {1, 1, 1}, {{DType::f32, {8, 8}}, {DType::f32, {8, 8}, 0, 0, true}}, {count}, 1e-4);
}

}  // namespace seqtile

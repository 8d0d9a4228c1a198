// tests/jit/codegen/cpu/out_of_range_test.cpp -- compiled tiles that reach beyond their views.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "seqtile/builder.h"
#include "tests/support/references/compare_compiled.h"

namespace seqtile {
namespace {

using testing::compare_compiled;
using testing::CompiledEverywhere;
using testing::Param;

/// One product for several parts of y, like the parts of ranks; each part gets its rows of the tile. `in_loop`: a loop
/// visits the parts.
std::unique_ptr<ir::Function> product_for_parts(DType dtype, const char* form, int64_t num_parts, bool in_loop) {
  constexpr int64_t kRows = 16, kColumns = 40, kK = 64;
  KernelBuilder b("parts");
  Var x = b.view("x", dtype, {kDynamic, kK}), w = b.view("w", dtype, {kColumns, kK});
  Var y = b.view("y", dtype, {kDynamic, kColumns}), first = b.scalar("first"), size = b.scalar("size");
  Var row = b.max(first, 0), column = b.constant(DType::i64, int64_t{0});
  const auto multiply = [&](Var k, std::vector<Var> before) {
    return std::vector{
        b.dot(b.load(x, {row, k}, {kRows, 16}), b.trans(b.load(w, {column, k}, {kColumns, 16})), before[0])};
  };
  const ir::Attributes schedule{{"form", std::string(form)}, {"mr", int64_t{16}}, {"nr", int64_t{16}}};
  Var sums = b.for_loop(0, kK, 16, {b.full({kRows, kColumns}, 0.0)}, multiply, schedule)[0];
  const auto store = [&](const Operand& part) {
    Var before = size * part;
    b.store(b.slice(y, {before + kRows, 0}, {size, kColumns}), {first - before, 0}, b.cast(sums, dtype));
  };
  if (in_loop) b.for_each(0, num_parts, 1, [&](Var part) { store(part); });
  else
    for (int64_t part = 0; part < num_parts; ++part) store(part);
  return b.finish();
}

/// A product whose last tile has more columns than the weights, with a bound that is unknown before the product.
std::unique_ptr<ir::Function> product_of_ragged_weights(DType dtype, const char* form, bool is_packed) {
  constexpr int64_t kRows = 8, kColumns = 48, kN = 80, kK = 64, kPanel = 16;
  KernelBuilder b("ragged");
  Var x = b.view("x", dtype, {kDynamic, kK});
  Var w = is_packed ? b.view("w", dtype, {kN / kPanel, kK, kPanel}) : b.view("w", dtype, {kN, kK});
  Var y = b.view("y", dtype, {kDynamic, kN});
  Var zero = b.constant(DType::i64, int64_t{0}), column = b.program_id(0) * kColumns, panel = column / kPanel;
  const auto multiply = [&](Var k, std::vector<Var> before) {
    Var right = is_packed ? b.reshape(b.trans(b.load(w, {panel, k, zero}, {kColumns / kPanel, 16, kPanel}), {1, 0, 2}),
                                      {16, kColumns})
                          : b.trans(b.load(w, {column, k}, {kColumns, 16}));
    return std::vector{b.dot(b.load(x, {zero, k}, {kRows, 16}), right, before[0])};
  };
  const ir::Attributes schedule{{"form", std::string(form)}, {"mr", int64_t{16}}, {"nr", kPanel}};
  Var sums = b.for_loop(0, kK, 16, {b.full({kRows, kColumns}, 0.0)}, multiply, schedule)[0];
  b.for_each(0, 2, 1, [&](Var part) {
    b.store(b.slice(y, {part * 4, 0}, {4, kN}), {part * -4, column}, b.cast(sums, dtype));
  });
  return b.finish();
}

}  // namespace

// The right operand is an expression, so that it is packed.
TEST_CASE("lowering: a product's right operand is read no further than its columns", "[jit][codegen]") {
  constexpr int64_t kM = 7, kN = 200, kK = 48, kBlock = 256;
  KernelBuilder b("product");
  Var x = b.view("x", DType::f32, {kDynamic, kK}), w = b.view("w", DType::f32, {kK, kN}),
      y = b.view("y", DType::f32, {kDynamic, kN});
  Var row = b.program_id(0) * 8, column = b.program_id(1) * kBlock;
  Var sums = b.for_loop(0, kK, 16, {b.full({8, kBlock}, 0.0)}, [&](Var kk, std::vector<Var> before) {
    Var right = b.load(w, {kk, column}, {16, kBlock}) * 2.0;
    return std::vector{b.dot(b.load(x, {row, kk}, {8, 16}), right, before[0])};
  })[0];
  b.store(y, {row, column}, sums);
  compare_compiled(*b.finish(), {1, 1, 1},
                   {{DType::f32, {kM, kK}}, {DType::f32, {kK, kN}}, {DType::f32, {kM, kN}, 0, 0, true}}, {}, 1e-4);
}

TEST_CASE("lowering: stores and reductions of other sizes go no further than their own", "[jit][codegen]") {
  KernelBuilder b("two_sizes");
  Var x = b.view("x", DType::f32, {kDynamic, 32}), y = b.view("y", DType::f32, {kDynamic, 32});
  Var u = b.view("u", DType::f32, {kDynamic, 32}), v = b.view("v", DType::f32, {kDynamic, 32});
  Var total = b.view("total", DType::f32, {1});
  Var first = b.load(x, {0, 0}, {16, 32}), second = b.load(u, {0, 0}, {16, 32});
  b.store(y, {0, 0}, first + 1.0);
  b.store(v, {0, 0}, second * 2.0);
  b.store(total, {0}, b.sum(b.sum(second, 1), 0) + b.full({1}, 0.0));
  const auto kernel = b.finish();
  for (const auto& [few, many] : {std::pair<int64_t, int64_t>{4, 16}, {16, 4}, {3, 7}})
    compare_compiled(*kernel, {1, 1, 1},
                     {{DType::f32, {few, 32}},
                      {DType::f32, {few, 32}, 0, 0, true, 16},
                      {DType::f32, {many, 32}},
                      {DType::f32, {many, 32}, 0, 0, true, 16},
                      {DType::f32, {1}, 0, 0, true}},
                     {}, 1e-4);
}

TEST_CASE("lowering: what a tile has before a view is dropped", "[jit][codegen]") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* form : {"outer", "dot", "transposed", "matrix"})
      for (const auto& [num_parts, in_loop] : {std::pair{1, false}, {2, false}, {3, true}}) {
        const auto function = product_for_parts(dtype, form, num_parts, in_loop);
        const CompiledEverywhere kernel(*function);
        for (const int64_t rows : {0, 1, 5, 9, 40})
          for (const int64_t first : {-20, -5, 0, 3, 12})
            kernel.compare(
                {1, 1, 1},
                {{dtype, {20, 64}, -1, 1}, {dtype, {40, 64}, -1, 1}, {dtype, {num_parts * rows + 32, 40}, 0, 0, true}},
                {first, rows}, dtype == DType::f32 ? 1e-4 : 0.1);
      }
}

TEST_CASE("lowering: a product reads no weights that are not there", "[jit][codegen]") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* form : {"outer", "dot", "transposed", "matrix", "packed"}) {
      const bool is_packed = form == std::string("packed");
      const Param w = is_packed ? Param{dtype, {5, 64, 16}, -1, 1} : Param{dtype, {80, 64}, -1, 1};
      compare_compiled(*product_of_ragged_weights(dtype, is_packed ? "outer" : form, is_packed), {2, 1, 1},
                       {{dtype, {8, 64}, -1, 1}, w, {dtype, {8, 80}, 0, 0, true}}, {},
                       dtype == DType::f32 ? 1e-4 : 0.1);
    }
}

// Rows that x lacks are zeros, and are stored if y has them.
TEST_CASE("lowering: a product of fewer rows than are stored ends with zeros", "[jit][codegen]") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* form : {"outer", "dot", "transposed", "matrix"}) {
      const auto function = product_for_parts(dtype, form, 1, false);
      const CompiledEverywhere kernel(*function);
      for (const int64_t rows : {0, 1, 7, 15, 16})
        kernel.compare({1, 1, 1}, {{dtype, {rows, 64}, -1, 1}, {dtype, {40, 64}, -1, 1}, {dtype, {40, 40}, 0, 0, true}},
                       {0, 20}, dtype == DType::f32 ? 1e-4 : 0.1);
    }
}

// Rows that x lacks keep the sums from which the product starts, for both weights.
TEST_CASE("lowering: a product of fewer rows than are stored keeps what it starts from", "[jit][codegen]") {
  constexpr int64_t kRows = 16, kColumns = 40, kK = 64;
  for (const bool from_zero : {true, false})
    for (const char* form : {"outer", "dot"}) {
      KernelBuilder b("two_weights");
      Var x = b.view("x", DType::f32, {kDynamic, kK}), zero = b.constant(DType::i64, int64_t{0});
      std::vector<Var> w, y, starts;
      for (const char* name : {"v", "w"}) w.push_back(b.view(name, DType::f32, {kColumns, kK}));
      for (const char* name : {"y", "z"}) y.push_back(b.view(name, DType::f32, {kDynamic, kColumns}));
      for (const Var& out : y)
        starts.push_back(from_zero ? b.full({kRows, kColumns}, 0.0) : b.load(out, {0, 0}, {kRows, kColumns}));
      const auto multiply = [&](Var k, std::vector<Var> sums) {
        Var rows = b.load(x, {zero, k}, {kRows, 16});
        for (size_t i = 0; i < sums.size(); ++i)
          sums[i] = b.dot(rows, b.trans(b.load(w[i], {zero, k}, {kColumns, 16})), sums[i]);
        return sums;
      };
      const std::vector<Var> sums =
          b.for_loop(0, kK, 16, starts, multiply, {{"form", std::string(form)}, {"mr", int64_t{4}}});
      for (size_t i = 0; i < y.size(); ++i) b.store(y[i], {0, 0}, sums[i]);
      const auto kernel = b.finish();
      for (const int64_t rows : {0, 1, 6, 16})
        compare_compiled(*kernel, {1, 1, 1},
                         {{DType::f32, {rows, kK}},
                          {DType::f32, {kColumns, kK}},
                          {DType::f32, {kColumns, kK}},
                          {DType::f32, {13, kColumns}, 0, 0, true},
                          {DType::f32, {13, kColumns}, 0, 0, true}},
                         {}, 1e-4);
    }
}

// A difference is known not to be negative only inside a branch that says so.
TEST_CASE("lowering: a tile at a difference is dropped where that is negative", "[jit][codegen]") {
  for (const Compare predicate : {Compare::lt, Compare::le, Compare::gt, Compare::ge, Compare::eq, Compare::ne})
    for (const bool is_else : {false, true}) {
      KernelBuilder b("difference");
      Var x = b.view("x", DType::f32, {kDynamic, 40}), y = b.view("y", DType::f32, {kDynamic, 40});
      Var rows = b.slice(y, {8, 0}, {20, 40}), low = b.scalar("low"), high = b.scalar("high");
      Var place = high - low;
      const auto store = [&] { b.store(rows, {place, 0}, b.load(x, {0, 0}, {8, 40}) * 2.0); };
      Var holds = b.compare(predicate, high, low);
      b.when(
          holds,
          [&] {
            if (!is_else) store();
          },
          [&] {
            if (is_else) store();
          });
      const auto kernel = b.finish();
      for (const int64_t by : {-30, -8, -3, 0, 2, 15, 25})
        compare_compiled(*kernel, {1, 1, 1}, {{DType::f32, {8, 40}}, {DType::f32, {36, 40}, 0, 0, true}}, {5, 5 + by});
    }
}

TEST_CASE("lowering: sums over rows read no columns that are not there", "[jit][codegen]") {
  KernelBuilder b("column_sums");
  Var x = b.view("x", DType::f32, {16, 100}), y = b.view("y", DType::f32, {100});
  Var column = b.program_id(0) * 64;
  b.store(y, {column}, b.sum(b.load(x, {0, column}, {16, 64}), 0));
  compare_compiled(*b.finish(), {2, 1, 1}, {{DType::f32, {16, 100}}, {DType::f32, {100}, 0, 0, true}});
}

TEST_CASE("lowering: elements of every size, also of rows that are not there", "[jit][codegen]") {
  for (const DType dtype : {DType::f64, DType::i64, DType::i32, DType::f16}) {
    KernelBuilder b("sums");
    Var x = b.view("x", dtype, {kDynamic, 64}), y = b.view("y", dtype, {64}),
        above = b.view("above", DType::i1, {8, 64});
    Var tile = b.load(x, {0, 0}, {8, 64});
    b.store(y, {0}, b.sum(tile, 0));
    b.store(above, {0, 0}, b.compare(Compare::gt, b.cast(tile, DType::f32), 0.25));
    compare_compiled(*b.finish(), {1, 1, 1},
                     {{dtype, {3, 64}}, {dtype, {64}, 0, 0, true}, {DType::i1, {8, 64}, 0, 0, true}}, {},
                     dtype == DType::f16 ? 1e-2 : 1e-6);
  }
}

TEST_CASE("lowering: columns beyond the weights are zeros in every form", "[jit][codegen]") {
  for (const auto& [form, dtype, nr] : {std::tuple{"outer", DType::f32, int64_t{6}},
                                        {"dot", DType::f32, 6},
                                        {"transposed", DType::f32, 6},
                                        {"transposed", DType::bf16, 6},
                                        {"matrix", DType::bf16, 16},
                                        {"matrix", DType::bf16, 32}}) {
    constexpr int64_t kColumns = 40, kBlock = 64, kDepth = 96;
    KernelBuilder b("peak");
    Var x = b.view("x", dtype, {kDynamic, kDepth}), w = b.view("w", dtype, {kDynamic, kDepth});
    Var y = b.view("y", DType::f32, {kDynamic});
    Var row = b.program_id(0) * 20, column = b.program_id(1) * kBlock;
    const ir::Attributes schedule = {{"form", std::string(form)}, {"mr", int64_t{16}}, {"nr", nr}};
    Var sums = b.for_loop(
        0, kDepth, 32, {b.full({20, kBlock}, 0.0)},
        [&](Var k, std::vector<Var> c) {
          Var columns = b.trans(b.load(w, {column, k}, {kBlock, 32}));
          return std::vector{b.dot(b.load(x, {row, k}, {20, 32}), columns, c[0])};
        },
        schedule)[0];
    b.store(y, {0}, b.reduce_max(b.unary(ir::OpKind::abs, sums) * -1.0, 1));  // 0, the maximum of values behind the end
    compare_compiled(*b.finish(), {1, 1, 1},
                     {{dtype, {20, kDepth}},
                      {dtype, {kColumns, kDepth}, -2, 2, false, kBlock - kColumns},
                      {DType::f32, {20}, 0, 0, true}},
                     {}, 1e-4);
  }
}

TEST_CASE("lowering: gathered and scattered rows out of range are left alone", "[jit][codegen]") {
  KernelBuilder b("permute");
  Var table = b.view("table", DType::bf16, {kDynamic, 21}), ids = b.view("ids", DType::i32, {kDynamic});
  Var y = b.view("y", DType::bf16, {kDynamic, 21}), z = b.view("z", DType::bf16, {kDynamic, 21});
  Var row = b.program_id(0) * 4;
  Var rows = b.load(ids, {row}, {4}, 99);
  Var tile = b.gather(table, rows, 0, 21, 5.0);
  b.store(y, {row, 0}, tile);
  b.scatter(z, rows, 0, tile);
  compare_compiled(*b.finish(), {2, 1, 1},
                   {{DType::bf16, {10, 21}},
                    {DType::i32, {7}, -2, 12},
                    {DType::bf16, {7, 21}, 0, 0, true},
                    {DType::bf16, {10, 21}, 0, 0, true}});
}

}  // namespace seqtile

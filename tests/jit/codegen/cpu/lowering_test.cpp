// tests/jit/codegen/cpu/lowering_test.cpp -- compiled kernels against the interpreter, on every target of this machine.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/lowering.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <map>
#include <memory>

#include "jit/builder.h"
#include "jit/compiler.h"
#include "jit/device.h"
#include "tests/support/guarded_bytes.h"
#include "tests/support/operands.h"
#include "tests/support/sample_kernels.h"

namespace seqtile {
namespace {

using testing::Operands;
using testing::Param;

/// Moves all tensors, which keep their alignment, to where a page follows that must not be touched.
std::vector<std::unique_ptr<testing::GuardedBytes>> guard(Operands& operands) {
  constexpr size_t kAlignment = 64;
  std::vector<std::unique_ptr<testing::GuardedBytes>> guards;
  std::map<void*, void*> moved;
  for (size_t i = 0; i < operands.memory.size(); ++i) {
    Tensor& tensor = operands.tensors[i];
    const auto found = moved.find(tensor.data);
    if (found == moved.end()) {
      const auto& memory = operands.memory[i];
      const auto* data = static_cast<const std::byte*>(tensor.data);
      const size_t bytes = static_cast<size_t>(memory.data() + memory.size() - data) / kAlignment * kAlignment;
      guards.push_back(std::make_unique<testing::GuardedBytes>(bytes, std::byte{0}));
      std::memcpy(guards.back()->data(), data, bytes);
      moved[tensor.data] = guards.back()->data();
    }
    tensor.data = moved.at(tensor.data);
  }
  return guards;
}

/// Runs `function` interpreted and compiled for every target; all memory must agree within `tolerance`.
void compare(const ir::Function& function, Grid grid, const std::vector<Param>& params,
             const std::vector<int64_t>& scalars = {}, double tolerance = 2e-5, const std::vector<int>& alias = {}) {
  const Operands want(params, alias);
  testing::interpret_on(function, grid, want, scalars);
  for (const std::string& name : cpu_target_names())
    for (const bool is_cached : {true, false}) {
      Target target = cpu_target(name);
      if (!is_executable(target)) continue;
      if (!is_cached) target.l3_bytes = 0;  // every output is too large for the caches
      INFO(function.name() << " for " << name << (is_cached ? "" : ", streaming"));
      Operands got(params, alias);
      const auto guards = guard(got);
      const auto device = make_cpu_device(1);
      const auto kernel = device->load(compile(function, target));
      device->launch(*kernel, grid, got.slots(scalars));
      REQUIRE(testing::first_difference(function, params, want, got, tolerance) == "");
    }
}

/// x [rows, n] -> y [rows, m], both tiles loaded and stored whole, rows a program.
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
    compare(*testing::sample_every_op(), {1, 1, 1},
            {{DType::f32, {8, 8}}, {DType::f32, {9, 8}, 0, 0, true}, {DType::i64, {4}, 0, 1}}, {count}, 2e-4);
}

TEST_CASE("lowering: matrix products of awkward shapes agree with the interpreter", "[jit][codegen]") {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 16, 32}, {7, 40, 36}, {33, 72, 65}, {16, 24, 128}})
    compare(*testing::sample_matmul(n, k, 16, 24, 32), {(m + 15) / 16, (n + 23) / 24, 1},
            {{DType::f32, {m, k}}, {DType::f32, {n, k}}, {DType::f32, {m, n}, 0, 0, true}}, {}, 1e-4);
}

// The right operand is no plain load, so that it is packed as any expression is.
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
  compare(*b.finish(), {1, 1, 1}, {{DType::f32, {kM, kK}}, {DType::f32, {kK, kN}}, {DType::f32, {kM, kN}, 0, 0, true}},
          {}, 1e-4);
}

TEST_CASE("lowering: softmax of any number of columns agrees with the interpreter", "[jit][codegen]") {
  for (const int64_t columns : {1, 3, 16, 31, 64})
    compare(*testing::sample_softmax(64), {5, 1, 1},
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
      compare(*kernel, {(rows + 3) / 4, 1, 1}, {{dtype, {rows, 37}}, {dtype, {rows, 37}, 0, 0, true}}, {},
              dtype == DType::f32 ? 2e-5 : 1e-2);
    }
}

TEST_CASE("lowering: rows that leave the caches are the same rows", "[jit][codegen]") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t columns : {32, 96, 160, 200}) {  // 200: not whole cache lines
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
      compare(*kernel, {3, 1, 1}, {{dtype, {5, columns}}, {dtype, {5, columns}, 0, 0, true}}, {},
              dtype == DType::f32 ? 2e-5 : 1e-2);
    }
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
    compare(*kernel, {1, 1, 1},
            {{DType::f32, {few, 32}},
             {DType::f32, {few, 32}, 0, 0, true, 16},
             {DType::f32, {many, 32}},
             {DType::f32, {many, 32}, 0, 0, true, 16},
             {DType::f32, {1}, 0, 0, true}},
            {}, 1e-4);
}

/// One product for several parts of y, as of ranks: each gets the rows that it has of the tile. `in_loop`: the parts
/// are those of a loop.
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

TEST_CASE("lowering: what a tile has before a view is dropped", "[jit][codegen]") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* form : {"outer", "dot", "transposed", "matrix"})
      for (const auto& [num_parts, in_loop] : {std::pair{1, false}, {2, false}, {3, true}}) {
        const auto kernel = product_for_parts(dtype, form, num_parts, in_loop);
        for (const int64_t rows : {0, 1, 5, 9, 40})
          for (const int64_t first : {-20, -5, 0, 3, 12})
            compare(
                *kernel, {1, 1, 1},
                {{dtype, {20, 64}, -1, 1}, {dtype, {40, 64}, -1, 1}, {dtype, {num_parts * rows + 32, 40}, 0, 0, true}},
                {first, rows}, dtype == DType::f32 ? 1e-4 : 0.1);
      }
}

/// Where the last of two tiles has more columns than the weights, and what bounds it is not known before the product.
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

TEST_CASE("lowering: a product reads no weights that are not there", "[jit][codegen]") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* form : {"outer", "dot", "transposed", "matrix", "packed"}) {
      const bool is_packed = form == std::string("packed");
      const Param w = is_packed ? Param{dtype, {5, 64, 16}, -1, 1} : Param{dtype, {80, 64}, -1, 1};
      compare(*product_of_ragged_weights(dtype, is_packed ? "outer" : form, is_packed), {2, 1, 1},
              {{dtype, {8, 64}, -1, 1}, w, {dtype, {8, 80}, 0, 0, true}}, {}, dtype == DType::f32 ? 1e-4 : 0.1);
    }
}

// Rows that x does not have are zeros, and stored where y has them.
TEST_CASE("lowering: a product of fewer rows than are stored ends with zeros", "[jit][codegen]") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* form : {"outer", "dot", "transposed", "matrix"}) {
      const auto kernel = product_for_parts(dtype, form, 1, false);
      for (const int64_t rows : {0, 1, 7, 15, 16})
        compare(*kernel, {1, 1, 1},
                {{dtype, {rows, 64}, -1, 1}, {dtype, {40, 64}, -1, 1}, {dtype, {40, 40}, 0, 0, true}}, {0, 20},
                dtype == DType::f32 ? 1e-4 : 0.1);
    }
}

// The sums that a product starts from are kept there; of two weights both have those rows.
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
        compare(*kernel, {1, 1, 1},
                {{DType::f32, {rows, kK}},
                 {DType::f32, {kColumns, kK}},
                 {DType::f32, {kColumns, kK}},
                 {DType::f32, {13, kColumns}, 0, 0, true},
                 {DType::f32, {13, kColumns}, 0, 0, true}},
                {}, 1e-4);
    }
}

// A sum over what only the call knows ends with the operands along k, whichever axis that is.
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
      compare(*kernel, {1, 1, 1},
              {{DType::f32, {is_transposed ? k : m, is_transposed ? m : k}},
               {DType::f32, {k, kColumns}},
               {DType::f32, {13, kColumns}, 0, 0, true}},
              {}, 1e-4);
  }
}

// Differences are known to be 0 or more only where a branch says so.
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
        compare(*kernel, {1, 1, 1}, {{DType::f32, {8, 40}}, {DType::f32, {36, 40}, 0, 0, true}}, {5, 5 + by});
    }
}

TEST_CASE("lowering: sums over rows read no columns that are not there", "[jit][codegen]") {
  KernelBuilder b("column_sums");
  Var x = b.view("x", DType::f32, {16, 100}), y = b.view("y", DType::f32, {100});
  Var column = b.program_id(0) * 64;
  b.store(y, {column}, b.sum(b.load(x, {0, column}, {16, 64}), 0));
  compare(*b.finish(), {2, 1, 1}, {{DType::f32, {16, 100}}, {DType::f32, {100}, 0, 0, true}});
}

TEST_CASE("lowering: elements of every size, also of rows that are not there", "[jit][codegen]") {
  for (const DType dtype : {DType::f64, DType::i64, DType::i32, DType::f16}) {
    KernelBuilder b("sums");
    Var x = b.view("x", dtype, {kDynamic, 64}), y = b.view("y", dtype, {64}),
        above = b.view("above", DType::i1, {8, 64});
    Var tile = b.load(x, {0, 0}, {8, 64});
    b.store(y, {0}, b.sum(tile, 0));
    b.store(above, {0, 0}, b.compare(Compare::gt, b.cast(tile, DType::f32), 0.25));
    compare(*b.finish(), {1, 1, 1}, {{dtype, {3, 64}}, {dtype, {64}, 0, 0, true}, {DType::i1, {8, 64}, 0, 0, true}}, {},
            dtype == DType::f16 ? 1e-2 : 1e-6);
  }
}

TEST_CASE("lowering: of bits, true is the larger", "[jit][codegen]") {
  KernelBuilder b("bits");
  Var x = b.view("x", DType::i1, {4, 16}), z = b.view("z", DType::i1, {4, 16}), y = b.view("y", DType::i1, {4, 16});
  b.store(y, {0, 0}, b.compare(Compare::lt, b.load(x, {0, 0}, {4, 16}), b.load(z, {0, 0}, {4, 16})));
  compare(*b.finish(), {1, 1, 1}, {{DType::i1, {4, 16}}, {DType::i1, {4, 16}}, {DType::i1, {4, 16}, 0, 0, true}});
}

TEST_CASE("lowering: products whose tiles reach beyond k, overlap or are packed narrowly", "[jit][codegen]") {
  for (const int64_t rows : {2, 12}) {  // dot products where the rows lie, and panels
    KernelBuilder b("beyond_k");
    Var x = b.view("x", DType::f32, {rows, 64}), w = b.view("w", DType::f32, {8, 40});
    Var y = b.view("y", DType::f32, {rows, 8});
    Var columns = b.trans(b.load(w, {0, 0}, {8, 64}));
    b.store(y, {0, 0}, b.dot(b.load(x, {0, 0}, {rows, 64}), columns, b.full({rows, 8}, 0.0)));
    compare(*b.finish(), {1, 1, 1},
            {{DType::f32, {rows, 64}}, {DType::f32, {8, 40}, -2, 2, false, 8}, {DType::f32, {rows, 8}, 0, 0, true}}, {},
            1e-4);
  }
  for (const int64_t step : {16, 64}) {  // slices of 32 that overlap, and that leave gaps
    KernelBuilder b("other_step");
    Var x = b.view("x", DType::f32, {kDynamic, 64}), w = b.view("w", DType::f32, {24, 64});
    Var y = b.view("y", DType::f32, {kDynamic, 24});
    Var sums = b.for_loop(0, 64, step, {b.full({8, 24}, 0.0)}, [&](Var k, std::vector<Var> c) {
      return std::vector{b.dot(b.load(x, {0, k}, {8, 32}), b.trans(b.load(w, {0, k}, {24, 32})), c[0])};
    })[0];
    b.store(y, {0, 0}, sums);
    compare(*b.finish(), {1, 1, 1}, {{DType::f32, {8, 64}}, {DType::f32, {24, 64}}, {DType::f32, {8, 24}, 0, 0, true}},
            {}, 1e-4);
  }
  KernelBuilder b("narrow_panels");
  Var x = b.view("x", DType::f32, {kDynamic, 64}), w = b.view("w", DType::f32, {4, 64, 4});
  Var y = b.view("y", DType::f32, {kDynamic, 16});
  Var sums = b.for_loop(0, 64, 32, {b.full({8, 16}, 0.0)}, [&](Var k, std::vector<Var> c) {
    Var columns = b.reshape(b.trans(b.load(w, {0, k, 0}, {4, 32, 4}), {1, 0, 2}), {32, 16});
    return std::vector{b.dot(b.load(x, {0, k}, {8, 32}), columns, c[0])};
  })[0];
  b.store(y, {0, 0}, sums);
  compare(*b.finish(), {1, 1, 1}, {{DType::f32, {8, 64}}, {DType::f32, {4, 64, 4}}, {DType::f32, {8, 16}, 0, 0, true}},
          {}, 1e-4);
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
      // Rows of x beyond the end of y are no part of the sum.
      compare(*b.finish(), {2, 2, 1},
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
  compare(*kernel, {3, 1, 1}, params);
  compare(*kernel, {3, 1, 1}, params, {}, 2e-5, {-1, -1, 1, -1});  // sum_out is r
  compare(*kernel, {3, 1, 1}, params, {}, 2e-5, {-1, -1, 1, 0});   // and y is x
}

TEST_CASE("lowering: a tensor may be updated in place from other places of its own", "[jit][codegen]") {
  const auto check = [](const char* name, const std::function<void(KernelBuilder&, Var, Var)>& body) {
    KernelBuilder b(name);
    Var from = b.view("from", DType::f32, {kDynamic, 40}), to = b.view("to", DType::f32, {kDynamic, 40});
    body(b, from, to);
    const auto kernel = b.finish();
    const std::vector<Param> params{{DType::f32, {9, 40}}, {DType::f32, {9, 40}}};
    compare(*kernel, {1, 1, 1}, params);
    compare(*kernel, {1, 1, 1}, params, {}, 2e-5, {-1, 0});  // to is from
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
    b.store(y, {0}, b.reduce_max(b.unary(ir::OpKind::abs, sums) * -1.0, 1));  // 0, from beyond the end
    compare(*b.finish(), {1, 1, 1},
            {{dtype, {20, kDepth}},
             {dtype, {kColumns, kDepth}, -2, 2, false, kBlock - kColumns},
             {DType::f32, {20}, 0, 0, true}},
            {}, 1e-4);
  }
}

TEST_CASE("lowering: shape operations agree with the interpreter", "[jit][codegen]") {
  const auto check = [](const char* name, int64_t n, int64_t m, const std::function<Var(KernelBuilder&, Var)>& body) {
    compare(*row_kernel(name, 6, n, m, DType::f32, body), {1, 1, 1},
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
    Var product = b.dot(c[0], a, c[0] * 0.5);  // the accumulator and the left operand are the carried tile
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
    compare(*kernel, {1, 1, 1}, {{DType::f32, {8, 8}}, {DType::f32, {8, 8}, 0, 0, true}}, {count}, 1e-4);
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
  compare(*b.finish(), {2, 1, 1},
          {{DType::bf16, {10, 21}},
           {DType::i32, {7}, -2, 12},
           {DType::bf16, {7, 21}, 0, 0, true},
           {DType::bf16, {10, 21}, 0, 0, true}});
}

}  // namespace seqtile

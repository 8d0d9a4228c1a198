// tests/jit/ir/builder_test.cpp -- operations that the kernel builder appends, folds, stretches and refuses.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/builder.h"

#include <catch2/catch.hpp>
#include <functional>

#include "jit/ir/infer.h"
#include "seqtile/error.h"

namespace seqtile {
namespace {

/// The text of a kernel without its first and last line, with one operation a line.
std::string body_text(const std::function<void(KernelBuilder&)>& kernel) {
  KernelBuilder b("k");
  kernel(b);
  const std::string text = ir::print(*b.finish());
  const size_t first = text.find('\n') + 1;
  return text.substr(first, text.rfind('}') - first);
}

std::string build_error(const std::function<void(KernelBuilder&)>& kernel) {
  try {
    KernelBuilder b("k");
    kernel(b);
    b.finish();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("builder: a literal takes the dtype of the other side and is stretched to its tile", "[jit][ir]") {
  CHECK(body_text([](KernelBuilder& b) {
          Var tile = b.full({4, 2}, b.scalar("s", DType::f16));
          tile * 2;
        }) ==
        "  %1 = full %0 : tile<[4, 2], f16>\n"
        "  %2 = constant {value = 2.0} : f16\n"
        "  %3 = full %2 : tile<[4, 2], f16>\n"
        "  %4 = mul %1, %3 : tile<[4, 2], f16>\n");
  CHECK(body_text([](KernelBuilder& b) { 3.0 - b.scalar("s", DType::i32); }) ==
        "  %1 = constant {value = 3} : i32\n"
        "  %2 = sub %1, %0 : i32\n");
}

TEST_CASE("builder: a scalar is stretched to the tile on the other side", "[jit][ir]") {
  CHECK(body_text([](KernelBuilder& b) {
          Var s = b.scalar("s", DType::i32);
          s + b.iota(8);
        }) ==
        "  %1 = iota : tile<[8], i32>\n"
        "  %2 = full %0 : tile<[8], i32>\n"
        "  %3 = add %2, %1 : tile<[8], i32>\n");
}

TEST_CASE("builder: dimensions of size 1 are broadcast, both ways at once", "[jit][ir]") {
  CHECK(body_text([](KernelBuilder& b) {
          Var tile = b.iota(4);
          Var column = b.expand(tile, 1);
          column - b.expand(tile, 0);
        }) ==
        "  %0 = iota : tile<[4], i32>\n"
        "  %1 = expand %0 {axis = 1} : tile<[4, 1], i32>\n"
        "  %2 = expand %0 {axis = 0} : tile<[1, 4], i32>\n"
        "  %3 = broadcast %1 : tile<[4, 4], i32>\n"
        "  %4 = broadcast %2 : tile<[4, 4], i32>\n"
        "  %5 = sub %3, %4 : tile<[4, 4], i32>\n");
}

TEST_CASE("builder: nothing else is implicit", "[jit][ir]") {
  CHECK(build_error([](KernelBuilder& b) { b.iota(4) + b.expand(b.iota(4), 0); }) ==
        "add %3: the operands differ: a is tile<[4], i32>, b is tile<[1, 4], i32>; "
        "cast, expand or broadcast one of them");
  CHECK(build_error([](KernelBuilder& b) { b.scalar("a") + b.scalar("b", DType::i32); }) ==
        "add %2: the operands differ: a is i64, b is i32; cast, expand or broadcast one of them");
  CHECK(build_error([](KernelBuilder& b) { b.scalar("a") * 0.5; }) ==
        "the literal 0.500000 meets i64 values; it is not a whole number: cast the other side or round the literal");
  CHECK(build_error([](KernelBuilder& b) { b.max(1.0, 2.5); }) ==
        "max: every operand is a literal; make one a constant of the wanted type");
}

TEST_CASE("builder: index arithmetic on constants is folded", "[jit][ir]") {
  CHECK(body_text([](KernelBuilder& b) {
          Var n = b.scalar("n");
          n * 1 + 0 - 0;
          n / 1;
          b.assert_true(1 * (0 + n) < 5, "m");
        }) ==
        "  %1 = constant {value = 5} : i64\n"
        "  %2 = cmp %0, %1 {predicate = \"lt\"} : i1\n"
        "  assert_true %2 {message = \"m\"}\n");
  KernelBuilder b("k");
  CHECK(ir::constant_value(b.cdiv(100, 7).value()) == 15);
  CHECK(ir::constant_value((b.constant(DType::i64, int64_t{7}) % 4).value()) == 3);
  CHECK(ir::constant_value((2 * b.constant(DType::i64, int64_t{21})).value()) == 42);
  CHECK(ir::constant_value(b.min(b.constant(DType::i64, int64_t{7}), 4).value()) == 4);
  Var overflow = b.constant(DType::i64, INT64_MAX) + 1;
  CHECK(overflow.value()->def->kind == ir::OpKind::add);
  Var by_zero = b.constant(DType::i64, int64_t{1}) / 0;
  CHECK(by_zero.value()->def->kind == ir::OpKind::div);
}

TEST_CASE("builder: narrower integers and floats are not folded", "[jit][ir]") {
  KernelBuilder b("k");
  CHECK((b.constant(DType::i32, int64_t{1}) + 0).value()->def->kind == ir::OpKind::add);
  CHECK((b.constant(DType::f32, 1.0) * 1.0).value()->def->kind == ir::OpKind::mul);
}

TEST_CASE("builder: a loop keeps its schedule and carries values", "[jit][ir]") {
  CHECK(body_text([](KernelBuilder& b) {
          Var n = b.scalar("n");
          Var start = b.constant(DType::f32, 1.5);
          b.for_loop(0, n, 4, {start},
                     [&](Var i, std::vector<Var> carried) { return std::vector{carried[0] * b.cast(i, DType::f32)}; },
                     {{"form", "outer"}, {"mr", int64_t{14}}});
        }) ==
        "  %1 = constant {value = 1.5} : f32\n"
        "  %2 = constant {value = 0} : i64\n"
        "  %3 = constant {value = 4} : i64\n"
        "  %4 = for_loop %2, %0, %3, %1 {form = \"outer\", mr = 14} : f32 (%5: i64, %6: f32) {\n"
        "    %7 = cast %5 : f32\n"
        "    %8 = mul %6, %7 : f32\n"
        "    yield %8\n"
        "  }\n");
}

TEST_CASE("builder: a branch without else, and a while loop", "[jit][ir]") {
  CHECK(body_text([](KernelBuilder& b) {
          Var n = b.scalar("n");
          b.if_then(n < 3, [&] {
            b.fence("sys");
            return std::vector<Var>{};
          });
          b.while_loop(
              {n}, [](std::vector<Var> carried) { return carried[0] > 1; },
              [](std::vector<Var> carried) { return std::vector{carried[0] / 2}; });
        }) ==
        "  %1 = constant {value = 3} : i64\n"
        "  %2 = cmp %0, %1 {predicate = \"lt\"} : i1\n"
        "  if_then %2 {\n"
        "    fence {order = \"acq_rel\", scope = \"sys\"}\n"
        "    yield\n"
        "  } {\n"
        "    yield\n"
        "  }\n"
        "  %3 = while_loop %0 : i64 (%4: i64) {\n"
        "    %6 = constant {value = 1} : i64\n"
        "    %7 = cmp %4, %6 {predicate = \"gt\"} : i1\n"
        "    yield %7, %4\n"
        "  } (%5: i64) {\n"
        "    %8 = constant {value = 2} : i64\n"
        "    %9 = div %5, %8 : i64\n"
        "    yield %9\n"
        "  }\n");
}

TEST_CASE("builder: branches that disagree are refused where they are written", "[jit][ir]") {
  CHECK(build_error([](KernelBuilder& b) {
          Var x = b.scalar("x", DType::f32), c = b.scalar("c", DType::i1);
          b.if_then(
              c, [&] { return std::vector{x}; }, [&] { return std::vector{c}; });
        }) == "if_then %2: the yielded value 0 is i1, the result is f32");
  CHECK(build_error([](KernelBuilder& b) {
          Var x = b.scalar("x", DType::f32);
          b.for_loop(0, 4, 1, {x}, [](Var, std::vector<Var>) { return std::vector<Var>{}; });
        }) == "for_loop %4: a region yields 0 values; 1 are expected");
}

TEST_CASE("builder: a value from inside a block is refused outside", "[jit][ir]") {
  CHECK(build_error([](KernelBuilder& b) {
          Var leaked;
          b.for_loop(0, 4, 1, {}, [&](Var i, std::vector<Var>) {
            leaked = i + 1;
            return std::vector<Var>{};
          });
          leaked + 1;
        }).find("is not defined before this operation in an enclosing block") != std::string::npos);
}

TEST_CASE("builder: facts of slices and indexed views", "[jit][ir]") {
  KernelBuilder b("k");
  Var x = b.view("x", DType::f32, {kDynamic, 4, 64}, {.alignment = 64, .noalias = true});
  Var i = b.scalar("i");
  CHECK(ir::to_string(b.slice(x, {i, 0, 0}, {16, 4, i}).type()) ==
        "view<[16, 4, ?], f32, contiguous, align 64, noalias>");
  CHECK(ir::to_string(b.slice(x, {i, 0, 8}, {16, 4, 8}).type()) ==
        "view<[16, 4, 8], f32, contiguous, align 32, noalias>");
  CHECK(ir::to_string(b.slice(x, {i, 0, i}, {16, 4, 8}).type()) ==
        "view<[16, 4, 8], f32, contiguous, align 4, noalias>");
  CHECK(ir::to_string(b.at(x, 1, i).type()) == "view<[?, 64], f32, contiguous, align 64, noalias>");
  CHECK(ir::to_string(b.at(x, 2, i).type()) == "view<[?, 4], f32, align 4, noalias>");
  Var y = b.view("y", DType::f32, {8, 4, 64}, {.contiguous = false});
  CHECK(ir::to_string(b.select(i < 1, x, y).type()) == "view<[?, 4, 64], f32, align 4>");
}

TEST_CASE("builder: select stretches condition and sides to one shape", "[jit][ir]") {
  KernelBuilder b("k");
  Var column = b.expand(b.iota(4), 1), row = b.expand(b.iota(4), 0);
  CHECK(ir::to_string(b.select(column < 2, row, 7).type()) == "tile<[4, 4], i32>");
  Var c = b.scalar("c", DType::i1), s = b.scalar("s", DType::f32);
  CHECK(ir::to_string(b.select(c, column, row).type()) == "tile<[4, 4], i32>");
  CHECK(ir::to_string(b.select(c, s, 0.0).type()) == "f32");
  CHECK(ir::to_string(b.select(column < 2, s, 0.0).type()) == "tile<[4, 1], f32>");
  CHECK(build_error([](KernelBuilder& k) { k.select(k.scalar("c", DType::i1), 1, 2); }) ==
        "select: every operand is a literal; make one a constant of the wanted type");
}

TEST_CASE("builder: mistakes in arguments are one clear line", "[jit][ir]") {
  CHECK(build_error([](KernelBuilder& b) {
          b.full({4, 4, 4, 4}, 0.0);
        }) == "full: the shape has 4 dimensions; tiles have 1 to 3");
  CHECK(build_error([](KernelBuilder& b) {
          b.view("x", DType::f32, {1, 2, 3, 4, 5});
        }) == "view 'x': 5 dimensions; views have 1 to 4");
  CHECK(build_error([](KernelBuilder& b) { b.full({0}, 0.0); }) ==
        "full %1: the result tile<[0], f32>: the size 0 must be positive");
  CHECK(build_error([](KernelBuilder& b) { b.expand(b.iota(4), 7); }) == "expand %1: axis 7 is not in 0..1");
  CHECK(build_error([](KernelBuilder& b) { b.sum(b.iota(4), 1); }) == "reduce %1: axis 1 is not in 0..0");
  CHECK(build_error([](KernelBuilder& b) { b.trans(b.iota(4)); }) ==
        "trans %1: perm does not name every dimension once: the operand is tile<[4], i32>");
  CHECK(build_error([](KernelBuilder& b) { b.exp(Var()); }) ==
        "a kernel uses a default-constructed Var; initialise it with a value of the builder");
  CHECK(build_error([](KernelBuilder& b) { b.store(b.view("x", DType::f32, {4}), {0}, Var()); }) ==
        "store: a value is missing (a default-constructed Var)");
  CHECK(build_error([](KernelBuilder& b) {
          b.load(b.view("x", DType::f32, {4, 4}), {0}, {4, 4});
        }).find("takes 2 offsets and sizes") != std::string::npos);
  CHECK(build_error([](KernelBuilder& b) { b.assume(Var()); }) ==
        "assume: a value is missing (a default-constructed Var)");
}

TEST_CASE("builder: it is empty after finish", "[jit][ir]") {
  KernelBuilder b("k");
  b.scalar("n");
  b.finish();
  CHECK_THROWS_WITH(b.finish(), "the builder is empty: finish() was called before");
  CHECK_THROWS_WITH(b.iota(4), "the builder is empty: finish() was called");
  CHECK_THROWS_WITH(b.view("x", DType::f32, {4}), "the builder is empty: finish() was called");
  CHECK_THROWS_WITH(b.for_loop(0, 1, 1, {}, [](Var, std::vector<Var>) { return std::vector<Var>{}; }),
                    "the builder is empty: finish() was called");
}

}  // namespace seqtile

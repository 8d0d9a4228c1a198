// tests/jit/ir/verifier_test.cpp -- one case for each rule: the body of a kernel and the verifier's message.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "seqtile/error.h"
#include "seqtile/ir.h"

namespace seqtile::ir {
namespace {

// Values of the bodies below: views %0 %1 %2 %3, scalars %4 (i64) %5 (f32) %6 (i1) %7 (i32), and tiles.
constexpr const char* kPrelude =
    "kernel @k(%0 x: view<[?, 64], f32, contiguous, align 4>, %1 h: view<[?, 64], f16, contiguous, align 2>,\n"
    "  %2 flags: view<[8], i64, contiguous, align 8>, %3 bytes: view<[8], i8, contiguous, align 1>,\n"
    "  %4 n: i64, %5 f: f32, %6 c: i1, %7 i: i32) {\n"
    "  %10 = load %0, %4, %4 {fill = 0.0} : tile<[64, 32], f32>\n"
    "  %11 = load %0, %4, %4 {fill = 0.0} : tile<[16, 64], f32>\n"
    "  %12 = full %5 : tile<[64, 64], f32>\n"
    "  %13 = full %7 : tile<[64, 32], i32>\n"
    "  %14 = full %6 : tile<[64, 32], i1>\n"
    "  %15 = load %1, %4, %4 {fill = 0.0} : tile<[64, 32], f16>\n"
    "  %16 = full %5 : tile<[2, 3, 5], f32>\n"
    "  %17 = iota : tile<[64], i32>\n"
    "  %18 = full %5 : tile<[32, 64], f32>\n"
    "  %19 = constant {value = 2} : i64\n";

std::string verify_body(const std::string& body) {
  const auto function = parse(kPrelude + body + "\n}");
  try {
    verify(*function);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    return error.what();
  }
  return "";
}

std::string verify_text(const std::string& text) {
  const auto function = parse(text);
  try {
    verify(*function);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    return error.what();
  }
  return "";
}

struct Case {
  const char* body;
  const char* message;  ///< the whole message
};

void check_cases(std::initializer_list<Case> cases) {
  for (const Case& test : cases) {
    INFO(test.body);
    CHECK(verify_body(test.body) == test.message);
  }
}

}  // namespace

TEST_CASE("verifier: the prelude alone is right", "[jit][ir]") { CHECK(verify_body("") == ""); }

TEST_CASE("verifier: counts of operands, results and regions", "[jit][ir]") {
  check_cases({
      {"%20 = neg : f32", "neg %20: takes 1 operands, not 0"},
      {"%20 = add %5 : f32", "add %20: takes 2 operands, not 1"},
      {"neg %5", "neg of %5: takes 1 results, not 0"},
      {"if_then %6 {\n yield\n}", "if_then of %6: takes 2 regions, not 1"},
      {"%20 = neg %5 : f32 {\n yield\n}", "neg %20: takes 0 regions, not 1"},
  });
}

TEST_CASE("verifier: program ids and constants", "[jit][ir]") {
  check_cases({
      {"%20 = program_id {axis = 3} : i64", "program_id %20: axis 3 is not in 0..2"},
      {"%20 = program_id : i64", "program_id %20: the integer attribute 'axis' is missing"},
      {"%20 = num_programs {axis = 0} : i32", "num_programs %20: the result is not i64: it is i32"},
      {"%20 = constant {value = 1} : f32", "constant %20: the attribute 'value' is not a float, as f32 asks"},
      {"%20 = constant {value = 1.0} : i32", "constant %20: the attribute 'value' is not an integer, as i32 asks"},
      {"%20 = constant : i32", "constant %20: the attribute 'value' is not an integer, as i32 asks"},
      {"%20 = constant {value = 128} : i8", "constant %20: the value 128 does not fit i8"},
      {"%20 = constant {value = -1} : i1", "constant %20: the value -1 does not fit i1"},
      {"%20 = constant {value = 1} : tile<[4], i32>", "constant %20: the result is not a scalar: it is tile<[4], i32>"},
  });
}

TEST_CASE("verifier: loops and branches", "[jit][ir]") {
  check_cases({
      {"for_loop %4, %4 (%20: i64) {\n yield\n}", "for_loop of %4: takes lo, hi and step, then the initial values"},
      {"for_loop %4, %7, %4 (%20: i64) {\n yield\n}",
       "for_loop of %4: a bound or step is not an i64 scalar: it is i32"},
      {"%20 = constant {value = 0} : i64\nfor_loop %4, %4, %20 (%21: i64) {\n yield\n}",
       "for_loop of %4: the step 0 must be positive"},
      {"%20 = for_loop %4, %4, %4 : f32 (%21: i64, %22: f32) {\n yield %22\n}",
       "for_loop %20: has 1 results, but carries 0 values"},
      {"%20 = for_loop %4, %4, %4, %4 : f32 (%21: i64, %22: f32) {\n yield %22\n}",
       "for_loop %20: an initial value differs from the result it becomes: the initial value is i64, the result is "
       "f32"},
      {"%20 = for_loop %4, %4, %4, %5 : f32 (%21: i64) {\n yield %5\n}",
       "for_loop %20: a region takes 2 arguments, not 1"},
      {"for_loop %4, %4, %4 (%21: i32) {\n yield\n}", "for_loop of %4: the induction variable is not i64: it is i32"},
      {"%20 = for_loop %4, %4, %4, %5 : f32 (%21: i64, %22: f32) {\n yield\n}",
       "for_loop %20: a region yields 0 values; 1 are expected"},
      {"%20 = for_loop %4, %4, %4, %5 : f32 (%21: i64, %22: f32) {\n yield %4\n}",
       "for_loop %20: the yielded value 0 is i64, the result is f32"},
      {"%20 = for_loop %4, %4, %4, %5 : f32 (%21: i64, %22: i64) {\n yield %5\n}",
       "for_loop %20: the block argument 0 is i64, the result is f32"},
      {"for_loop %4, %4, %4 (%20: i64) {\n fence {order = \"release\", scope = \"cta\"}\n}",
       "for_loop of %4: a region does not end in a yield"},
      {"if_then %4 {\n yield\n} {\n yield\n}", "if_then of %4: the condition is not an i1 scalar: it is i64"},
      {"%20 = if_then %6 : f32 {\n yield %5\n} {\n yield\n}", "if_then %20: a region yields 0 values; 1 are expected"},
      {"%20 = if_then %6 : f32 {\n yield %5\n} {\n yield %4\n}",
       "if_then %20: the yielded value 0 is i64, the result is f32"},
      {"if_then %6 (%20: f32) {\n yield\n} {\n yield\n}", "if_then of %6: a region takes 0 arguments, not 1"},
      {"%20 = if_then %6 : view<[?, 64], f32, contiguous, align 4> {\n yield %0\n} {\n yield %0\n}",
       "if_then %20: a view cannot be carried: the result is view<[?, 64], f32, contiguous, align 4>; "
       "select between views instead"},
      {"%20 = while_loop %5 : f32 (%21: f32) {\n yield %5, %21\n} (%22: f32) {\n yield %22\n}",
       "while_loop %20: the condition is not an i1 scalar: it is f32"},
      {"%20 = while_loop %5 : f32 (%21: f32) {\n yield %6\n} (%22: f32) {\n yield %22\n}",
       "while_loop %20: a region yields 1 values; 2 are expected"},
      {"%20 = while_loop : f32 (%21: f32) {\n yield %6, %21\n} (%22: f32) {\n yield %22\n}",
       "while_loop %20: has 1 results, but carries 0 values"},
      {"assume %4", "assume of %4: the condition is not an i1 scalar: it is i64"},
  });
}

TEST_CASE("verifier: yields stand at the end of nested blocks only", "[jit][ir]") {
  check_cases({
      {"yield", "yield: a yield ends a nested block and stands nowhere else"},
      {"if_then %6 {\n yield\n yield\n} {\n yield\n}", "yield: a yield ends a nested block and stands nowhere else"},
  });
}

TEST_CASE("verifier: operands are defined before, in an enclosing block", "[jit][ir]") {
  check_cases({
      {"if_then %6 {\n %20 = neg %5 : f32\n yield\n} {\n %21 = neg %20 : f32\n yield\n}",
       "neg %21: operand %20 is not defined before this operation in an enclosing block"},
      {"for_loop %4, %4, %4 (%20: i64) {\n yield\n}\n%21 = neg %20 : i64",
       "neg %21: operand %20 is not defined before this operation in an enclosing block"},
  });
}

TEST_CASE("verifier: creation", "[jit][ir]") {
  check_cases({
      {"%20 = full %10 : tile<[4], f32>", "full %20: the operand is not a scalar: it is tile<[64, 32], f32>"},
      {"%20 = full %5 : tile<[4], f16>",
       "full %20: the result is not a tile of the operand's type: the operand is f32, the result is tile<[4], f16>"},
      {"%20 = full %5 : tile<[4096, 4096, 2], f32>",
       "full %20: the result tile<[4096, 4096, 2], f32>: more than 16777216 elements; use a smaller block"},
      {"%20 = iota : tile<[4], i64>", "iota %20: the result is not a tile<[n], i32>: it is tile<[4], i64>"},
      {"%20 = rand %7, %13 : tile<[64, 32], f32>", "rand %20: the seed is not an i64 scalar: it is i32"},
      {"%20 = rand %4, %10 : tile<[64, 32], f32>",
       "rand %20: the counters are not a tile of i32: the operand is tile<[64, 32], f32>"},
      {"%20 = rand %4, %13 : tile<[64, 32], f64>",
       "rand %20: the result is not an f32 tile of the counters' shape: it is tile<[64, 32], f64>"},
  });
}

TEST_CASE("verifier: shapes", "[jit][ir]") {
  check_cases({
      {"%20 = expand %5 {axis = 0} : tile<[1], f32>", "expand %20: the operand is not a tile: it is f32"},
      {"%20 = expand %17 {axis = 0} : tile<[1, 64], f32>",
       "expand %20: the result is not a tile of the operand's dtype: the operand is tile<[64], i32>, "
       "the result is tile<[1, 64], f32>"},
      {"%20 = expand %17 {axis = 2} : tile<[64, 1], i32>", "expand %20: axis 2 is not in 0..1"},
      {"%20 = expand %17 {axis = 0} : tile<[64, 1], i32>",
       "expand %20: the result type is wrong: it is tile<[64, 1], i32>, the type implied is tile<[1, 64], i32>"},
      {"%20 = expand %16 {axis = 0} : tile<[2, 3, 5], f32>",
       "expand %20: the operand has no room for another dimension: it is tile<[2, 3, 5], f32>"},
      {"%20 = broadcast %17 : tile<[128], i32>",
       "broadcast %20: only dimensions of size 1 stretch, at equal rank: the operand is tile<[64], i32>, "
       "the result is tile<[128], i32>; expand first where a dimension is missing"},
      {"%20 = broadcast %17 : tile<[2, 64], i32>",
       "broadcast %20: only dimensions of size 1 stretch, at equal rank: the operand is tile<[64], i32>, "
       "the result is tile<[2, 64], i32>; expand first where a dimension is missing"},
      {"%20 = reshape %17 : tile<[8, 9], i32>",
       "reshape %20: the number of elements changes: the operand is tile<[64], i32>, the result is tile<[8, 9], i32>"},
      {"%20 = trans %10 {perm = [0, 0]} : tile<[64, 32], f32>",
       "trans %20: perm does not name every dimension once: the operand is tile<[64, 32], f32>"},
      {"%20 = trans %10 {perm = [1, 0]} : tile<[64, 32], f32>",
       "trans %20: the result type is wrong: it is tile<[64, 32], f32>, the type implied is tile<[32, 64], f32>"},
      {"%20, %21 = split %16 : tile<[2, 3, 2], f32>, tile<[2, 3, 2], f32>",
       "split %20: the last dimension is odd: the operand is tile<[2, 3, 5], f32>"},
      {"%20, %21 = split %17 : tile<[32], i32>, tile<[16], i32>",
       "split %20: a result is not half of the last dimension: the operand is tile<[64], i32>, "
       "the result is tile<[16], i32>"},
      {"%20 = join %10, %12 : tile<[64, 64], f32>",
       "join %20: the operands differ: a is tile<[64, 32], f32>, b is tile<[64, 64], f32>"},
      {"%20 = concat %10, %11 : tile<[64, 96], f32>",
       "concat %20: the operands differ in more than the last dimension: a is tile<[64, 32], f32>, "
       "b is tile<[16, 64], f32>"},
      {"%20 = concat %10, %12 : tile<[64, 64], f32>",
       "concat %20: the result type is wrong: it is tile<[64, 64], f32>, the type implied is tile<[64, 96], f32>"},
  });
}

TEST_CASE("verifier: unary operations", "[jit][ir]") {
  check_cases({
      {"%20 = exp2 %13 : tile<[64, 32], i32>",
       "exp2 %20: the operand is not a float: it is tile<[64, 32], i32>; cast it first"},
      {"%20 = neg %6 : i1", "neg %20: the operand is not a number: it is i1"},
      {"%20 = bit_not %5 : f32", "bit_not %20: the operand is not an integer: it is f32"},
      {"%20 = neg %0 : f32",
       "neg %20: the operand is a view: it is view<[?, 64], f32, contiguous, align 4>; load from it first"},
      {"%20 = neg %5 : f64", "neg %20: the result type is wrong: it is f64, the type implied is f32"},
      {"%20 = cast %10 : tile<[32, 64], f16>",
       "cast %20: the shape changes: the operand is tile<[64, 32], f32>, the result is tile<[32, 64], f16>"},
      {"%20 = bitcast %10 : tile<[64, 32], f16>",
       "bitcast %20: the widths differ: the operand is tile<[64, 32], f32>, the result is tile<[64, 32], f16>"},
  });
}

TEST_CASE("verifier: binary operations", "[jit][ir]") {
  check_cases({
      {"%20 = add %10, %15 : tile<[64, 32], f32>",
       "add %20: the operands differ: a is tile<[64, 32], f32>, b is tile<[64, 32], f16>; "
       "cast, expand or broadcast one of them"},
      {"%20 = fma %5, %5, %4 : f32",
       "fma %20: the operands differ: a is f32, c is i64; cast, expand or broadcast one of them"},
      {"%20 = mul %6, %6 : i1", "mul %20: the operands are not numbers: a is i1"},
      {"%20 = bit_and %5, %5 : f32", "bit_and %20: the operands are not integers: a is f32"},
      {"%20 = shl %6, %6 : i1", "shl %20: the operands are not integers: a is i1"},
      {"%20 = rem %5, %5 : f32", "rem %20: the operands are not integers: a is f32"},
      {"%20 = pow %4, %4 : i64", "pow %20: the operands are not floats: a is i64"},
      {"%20 = add %0, %0 : f32",
       "add %20: an operand is a view: it is view<[?, 64], f32, contiguous, align 4>; load from it first"},
      {"%20 = cmp %4, %4 {predicate = \"less\"} : i1", "cmp %20: predicate 'less' is not one of eq ne lt le gt ge"},
      {"%20 = cmp %4, %4 : i1", "cmp %20: the string attribute 'predicate' is missing"},
      {"%20 = cmp %4, %4 {predicate = \"lt\"} : i64",
       "cmp %20: the result type is wrong: it is i64, the type implied is i1"},
  });
}

TEST_CASE("verifier: select", "[jit][ir]") {
  check_cases({
      {"%20 = select %6, %4, %5 : i64",
       "select %20: the operands differ: a is i64, b is f32; cast, expand or broadcast one of them"},
      {"%20 = select %14, %12, %12 : tile<[64, 64], f32>",
       "select %20: the condition is neither an i1 scalar nor an i1 tile of the operands' shape: "
       "the condition is tile<[64, 32], i1>, a is tile<[64, 64], f32>"},
      {"%20 = select %6, %0, %1 : view<[?, 64], f32, contiguous, align 4>",
       "select %20: the views differ in rank or dtype: a is view<[?, 64], f32, contiguous, align 4>, "
       "b is view<[?, 64], f16, contiguous, align 2>"},
      {"%20 = select %4, %0, %0 : view<[?, 64], f32, contiguous, align 4>",
       "select %20: the condition is not an i1 scalar: it is i64"},
      {"%20 = select %6, %0, %0 : view<[?, 64], f32, contiguous, align 16>",
       "select %20: the result promises more than both views: a is view<[?, 64], f32, contiguous, align 4>, "
       "b is view<[?, 64], f32, contiguous, align 4>, the result is view<[?, 64], f32, contiguous, align 16>"},
      {"%20 = select %6, %0, %0 : view<[?, 64], f32, align 4>", ""},
  });
}

TEST_CASE("verifier: reductions", "[jit][ir]") {
  check_cases({
      {"%20 = reduce %5 {axis = 0, kind = \"sum\"} : f32", "reduce %20: the operand is not a tile: it is f32"},
      {"%20 = reduce %10 {axis = 2, kind = \"sum\"} : tile<[64], f32>", "reduce %20: axis 2 is not in 0..1"},
      {"%20 = reduce %10 {axis = -1, kind = \"sum\"} : tile<[64], f32>", "reduce %20: axis -1 is not in 0..1"},
      {"%20 = reduce %10 {axis = 1, kind = \"mean\"} : tile<[64], f32>",
       "reduce %20: kind 'mean' is not one of sum max min prod any"},
      {"%20 = reduce %10 {axis = 1, kind = \"any\"} : tile<[64], f32>",
       "reduce %20: kind any is for i1 tiles, the other kinds for numbers: the operand is tile<[64, 32], f32>"},
      {"%20 = reduce %10 {axis = 1, kind = \"sum\"} : tile<[32], f32>",
       "reduce %20: the result type is wrong: it is tile<[32], f32>, the type implied is tile<[64], f32>"},
      {"%20, %21 = argreduce %10 {axis = 1, kind = \"sum\"} : tile<[64], f32>, tile<[64], i32>",
       "argreduce %20: kind 'sum' is not one of max min"},
      {"%20, %21 = argreduce %10 {axis = 1, kind = \"max\"} : tile<[64], f32>, tile<[64], i64>",
       "argreduce %20: the index result is not i32 of the value's shape: the index is tile<[64], i64>, "
       "the value is tile<[64], f32>"},
      {"%20 = scan %14 {axis = 1, kind = \"sum\"} : tile<[64, 32], i1>",
       "scan %20: the operand is not a tile of numbers: it is tile<[64, 32], i1>"},
      {"%20 = scan %10 {axis = 1, kind = \"min\"} : tile<[64, 32], f32>", "scan %20: kind 'min' is not one of sum max"},
  });
}

TEST_CASE("verifier: dot", "[jit][ir]") {
  check_cases({
      {"%17000 = dot %10, %11, %12 {precision = \"native\"} : tile<[64, 64], f32>",
       "dot %17000: inner dimensions differ: a is tile<[64, 32], f32>, b is tile<[16, 64], f32>; "
       "both must agree on k"},
      {"%20 = dot %18, %12, %12 {precision = \"native\"} : tile<[64, 64], f32>",
       "dot %20: outer dimensions differ: a is tile<[32, 64], f32>, c is tile<[64, 64], f32>; both must agree on m"},
      {"%20 = dot %12, %12, %10 {precision = \"native\"} : tile<[64, 32], f32>",
       "dot %20: outer dimensions differ: b is tile<[64, 64], f32>, c is tile<[64, 32], f32>; both must agree on n"},
      {"%20 = dot %15, %18, %12 {precision = \"native\"} : tile<[64, 64], f32>",
       "dot %20: the element types differ: a is tile<[64, 32], f16>, b is tile<[32, 64], f32>; cast one of them"},
      {"%20 = dot %13, %13, %12 {precision = \"native\"} : tile<[64, 64], f32>",
       "dot %20: the element type is not f32, bf16 or f16: a is tile<[64, 32], i32>"},
      {"%20 = dot %10, %18, %15 {precision = \"native\"} : tile<[64, 32], f16>",
       "dot %20: the accumulator is not f32: c is tile<[64, 32], f16>"},
      {"%20 = dot %10, %18, %12 {precision = \"exact\"} : tile<[64, 64], f32>",
       "dot %20: precision 'exact' is not one of native tf32"},
      {"%20 = dot %10, %18, %5 {precision = \"native\"} : f32",
       "dot %20: the operands are not tiles of rank 2: a is tile<[64, 32], f32>, b is tile<[32, 64], f32>, c is f32"},
  });
}

TEST_CASE("verifier: views", "[jit][ir]") {
  check_cases({
      {"%20 = size %5 {axis = 0} : i64", "size %20: operand 0 is not a view: it is f32"},
      {"%20 = size %0 {axis = 2} : i64", "size %20: axis 2 is not in 0..1"},
      {"%20 = address %5 : i64", "address %20: operand 0 is not a view: it is f32"},
      {"%20 = address %0 : f32", "address %20: the result is not i64: it is f32"},
      {"%20 = slice %0, %4, %4, %4 : view<[?, ?], f32, align 4>",
       "slice %20: view<[?, 64], f32, contiguous, align 4> takes 4 offsets and sizes, and 0 more operands; "
       "3 are given"},
      {"%20 = slice %0, %4, %4, %19, %4 : view<[3, ?], f32, align 4>",
       "slice %20: the result promises more than the slice keeps: the result is view<[3, ?], f32, align 4>, "
       "what is known is view<[2, ?], f32, contiguous, align 4>"},
      {"%20 = slice %0, %4, %4, %19, %4 : view<[2, ?], f32, contiguous, align 4, noalias>",
       "slice %20: the result promises more than the slice keeps: "
       "the result is view<[2, ?], f32, contiguous, align 4, noalias>, "
       "what is known is view<[2, ?], f32, contiguous, align 4>"},
      {"%20 = slice %0, %4, %4, %4, %4 : tile<[2, 2], f32>",
       "slice %20: the result promises more than the slice keeps: the result is tile<[2, 2], f32>, "
       "what is known is view<[?, ?], f32, contiguous, align 4>"},
      {"%20 = at %2, %4 {axis = 0} : view<[8], i64, align 8>",
       "at %20: operand 0 is not a view of rank 2 or more: it is view<[8], i64, contiguous, align 8>"},
      {"%20 = at %0, %7 {axis = 0} : view<[64], f32, contiguous, align 4>",
       "at %20: the index is not an i64 scalar: it is i32"},
      {"%20 = at %0, %4 {axis = 1} : view<[?], f32, contiguous, align 4>",
       "at %20: the result is not the view without the axis: the result is view<[?], f32, contiguous, align 4>, "
       "what is known is view<[?], f32, align 4>"},
      {"%20 = load_scalar %0, %4 : f32",
       "load_scalar %20: view<[?, 64], f32, contiguous, align 4> takes 2 offsets and sizes, and 0 more operands; "
       "1 are given"},
      {"%20 = neg %5 : view<[3], f32, align 6>",
       "neg %20: the result view<[3], f32, align 6>: the alignment must be a power of two of at least the element's "
       "4 bytes"},
  });
}

TEST_CASE("verifier: loads and stores", "[jit][ir]") {
  check_cases({
      {"%20 = load %0, %4, %7 {fill = 0.0} : tile<[4, 4], f32>",
       "load %20: an offset or size is not an i64 scalar: it is i32; cast it to i64"},
      {"%20 = load %0, %4, %4 {fill = 0.0} : tile<[4], f32>",
       "load %20: the tile does not have the view's rank and dtype: the tile is tile<[4], f32>, "
       "the view is view<[?, 64], f32, contiguous, align 4>"},
      {"%20 = load %0, %4, %4 : tile<[4, 4], f32>", "load %20: the float attribute 'fill' is missing"},
      {"%20 = load %2, %4 {fill = 0.5} : tile<[4], i64>",
       "load %20: fill 0.500000 is not a whole number, but the elements are i64"},
      {"%20 = load_scalar %0, %4, %4 : f64",
       "load_scalar %20: the scalar does not have the view's dtype: the scalar is f64, "
       "the view is view<[?, 64], f32, contiguous, align 4>"},
      {"store %0, %4, %4, %15",
       "store of %0: the tile does not have the view's rank and dtype: the tile is tile<[64, 32], f16>, "
       "the view is view<[?, 64], f32, contiguous, align 4>"},
      {"store %5, %4, %4, %10", "store of %5: operand 0 is not a view: it is f32"},
      {"store", "store: the view is missing"},
      {"store_scalar %0, %4, %4, %4",
       "store_scalar of %0: the scalar does not have the view's dtype: the scalar is i64, "
       "the view is view<[?, 64], f32, contiguous, align 4>"},
      {"%20 = gather %0, %17 {fill = 0.0} : tile<[64, 4], f32>", "gather %20: takes 3 operands here, not 2"},
      {"%20 = gather %2, %17, %4 {fill = 0.0} : tile<[64, 4], i64>",
       "gather %20: operand 0 is not a view of rank 2: it is view<[8], i64, contiguous, align 8>"},
      {"%20 = gather %0, %10, %4 {fill = 0.0} : tile<[64, 4], f32>",
       "gather %20: the rows are not a tile<[m], i32> or tile<[m], i64>: the operand is tile<[64, 32], f32>"},
      {"%20 = gather %0, %17, %7 {fill = 0.0} : tile<[64, 4], f32>",
       "gather %20: the column is not an i64 scalar: it is i32"},
      {"%20 = gather %0, %17, %4 {fill = 0.0} : tile<[32, 4], f32>",
       "gather %20: the tile does not have one row for each row index: the tile is tile<[32, 4], f32>, "
       "the rows is tile<[64], i32>"},
      {"scatter %0, %17, %4, %15",
       "scatter of %0: the tile does not have the view's rank and dtype: the tile is tile<[64, 32], f16>, "
       "the view is view<[?, 64], f32, contiguous, align 4>"},
      {"prefetch %0, %4",
       "prefetch of %0: view<[?, 64], f32, contiguous, align 4> takes 2 offsets and sizes, and 0 more operands; "
       "1 are given"},
  });
  CHECK(verify_text("kernel @k(%0 x: view<[4], i1, align 1>, %1 n: i64, %2 c: i1) {\n"
                    "  %3 = full %2 : tile<[4], i1>\n  store_add %0, %1, %3\n}") ==
        "store_add of %0: i1 elements cannot be added: the view is view<[4], i1, align 1>");
}

TEST_CASE("verifier: synchronisation", "[jit][ir]") {
  check_cases({
      {"fence {order = \"relaxed\", scope = \"gpu\"}", "fence: order 'relaxed' is not one of acquire release acq_rel"},
      {"fence {order = \"release\", scope = \"world\"}", "fence: scope 'world' is not one of cta gpu sys"},
      {"griddep {kind = \"stop\"}", "griddep: kind 'stop' is not one of wait launch"},
      {"%20 = atomic %2, %4, %4 {kind = \"and\", order = \"relaxed\", scope = \"gpu\"} : i64",
       "atomic %20: kind 'and' is not one of add max min exchange"},
      {"%20 = atomic %3, %4, %4 {kind = \"add\", order = \"relaxed\", scope = \"gpu\"} : i8",
       "atomic %20: the elements are not i32, i64, f32 or f64: the view is view<[8], i8, contiguous, align 1>"},
      {"%20 = atomic %2, %4, %7 {kind = \"add\", order = \"relaxed\", scope = \"gpu\"} : i64",
       "atomic %20: the scalar does not have the view's dtype: the scalar is i32, "
       "the view is view<[8], i64, contiguous, align 8>"},
      {"%20 = atomic %2, %4, %4 {kind = \"add\", order = \"seq_cst\", scope = \"gpu\"} : i64",
       "atomic %20: order 'seq_cst' is not one of relaxed acquire release acq_rel"},
      {"%20 = cas %0, %4, %4, %5, %5 {order = \"relaxed\", scope = \"gpu\"} : f32",
       "cas %20: the elements are not i32 or i64: the view is view<[?, 64], f32, contiguous, align 4>"},
      {"%20 = cas %2, %4, %4 {order = \"relaxed\", scope = \"gpu\"} : i64",
       "cas %20: view<[8], i64, contiguous, align 8> takes 1 offsets and sizes, and 2 more operands; 2 are given"},
      {"%20 = clock %0, %4, %4 : i64",
       "clock %20: the addresses are not i64: the view is view<[?, 64], f32, contiguous, align 4>"},
      {"%20 = clock %2 : i64",
       "clock %20: view<[8], i64, contiguous, align 8> takes 1 offsets and sizes, and 0 more operands; 0 are given"},
      {"wait_ge %2, %4, %4 {order = \"release\", scope = \"gpu\"}",
       "wait_ge of %2: order 'release' is not one of relaxed acquire"},
      {"signal %2, %4, %4 {kind = \"add\", order = \"acquire\", scope = \"gpu\"}",
       "signal of %2: order 'acquire' is not one of relaxed release"},
      {"signal %2, %4, %4 {kind = \"max\", order = \"release\", scope = \"gpu\"}",
       "signal of %2: kind 'max' is not one of set add"},
  });
}

TEST_CASE("verifier: debugging", "[jit][ir]") {
  check_cases({
      {"assert_true %4 {message = \"m\"}", "assert_true of %4: the condition is not an i1 scalar: it is i64"},
      {"assert_true %6", "assert_true of %6: the string attribute 'message' is missing"},
      {"print %10 {message = \"m\"}", "print of %10: the operand is not a scalar: it is tile<[64, 32], f32>"},
  });
}

TEST_CASE("verifier: parameters and names", "[jit][ir]") {
  CHECK(verify_text("kernel @k(%0 x: tile<[4], f32>) {}") ==
        "function k: parameter x: parameters are views or scalars, not tile<[4], f32>");
  CHECK(verify_text("kernel @k(%0 x: f32, %1 x: f32) {}") ==
        "function k: parameter 1: the name 'x' must be unique and consist of letters, digits, '_', '.' and '$'");
  CHECK(verify_text("kernel @k(%0 x: view<[4], f64, align 4>) {}") ==
        "function k: parameter x: view<[4], f64, align 4>: the alignment must be a power of two of at least the "
        "element's 8 bytes");

  Function unnamed("a b");
  CHECK_THROWS_WITH(verify(unnamed), "function a b: the name must consist of letters, digits, '_', '.' and '$'");
  Function function("k");
  function.append(&function.body(), OpKind::fence, {}, {},
                  {{"order", "release"}, {"scope", "cta"}, {"two words", int64_t{1}}});
  CHECK_THROWS_WITH(verify(function),
                    "fence: the attribute's name 'two words' must consist of letters, digits, '_', '.' and '$'");
}

TEST_CASE("verifier: a value of another function is not defined", "[jit][ir]") {
  Function other("other"), function("k");
  Value* foreign = other.add_param("x", scalar_type(DType::f32));
  function.append(&function.body(), OpKind::neg, {foreign}, {scalar_type(DType::f32)});
  CHECK_THROWS_WITH(verify(function), Catch::Contains("operand %0 is not defined before this operation"));
}

}  // namespace seqtile::ir

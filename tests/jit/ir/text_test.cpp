// tests/jit/ir/text_test.cpp -- printer and parser: round trips, golden text, errors, damaged text.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "seqtile/builder.h"
#include "seqtile/error.h"
#include "tests/support/kernels/sample_kernels.h"
#include "tests/support/references/golden.h"

namespace seqtile::ir {
namespace {

void collect_kinds(const Block& block, std::set<OpKind>& kinds) {
  for (const Op* op : block.ops) {
    kinds.insert(op->kind);
    for (const Block* region : op->regions) collect_kinds(*region, kinds);
  }
}

std::string parse_error(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    return error.what();
  }
  return "parsed";
}

}  // namespace

TEST_CASE("text: a function with every operation round-trips", "[jit][ir]") {
  const auto function = testing::sample_every_op();
  std::set<OpKind> kinds;
  collect_kinds(function->body(), kinds);
#define SEQTILE_OP(name, group, operands, results, regions, effects) \
  if (!kinds.contains(OpKind::name)) FAIL_CHECK("sample_every_op does not use " #name);
#include "seqtile/ops.def"
#undef SEQTILE_OP

  const std::string text = print(*function);
  const auto parsed = parse(text);
  CHECK_NOTHROW(verify(*parsed));
  CHECK(print(*parsed) == text);
}

TEST_CASE("text: the matmul and softmax kernels read as their golden files", "[jit][ir]") {
  const std::string matmul = print(*testing::sample_matmul(4096, 512, 64, 64, 32));
  CHECK(testing::compare_golden("ir/matmul.txt", matmul) == "");
  CHECK(print(*parse(matmul)) == matmul);
  const std::string softmax = print(*testing::sample_softmax(1024));
  CHECK(testing::compare_golden("ir/softmax.txt", softmax) == "");
  CHECK(print(*parse(softmax)) == softmax);
}

TEST_CASE("text: attributes of every kind and unusual values round-trip", "[jit][ir]") {
  const std::string text =
      "kernel @k(%0 x.1: view<[?, 3, 7], bf16, align 2>, %7 $s: f16) {\n"
      "  %3 = constant {value = -9223372036854775808} : i64\n"
      "  %4 = constant {value = -inf} : f32\n"
      "  %5 = constant {value = nan} : f64\n"
      "  %6 = constant {value = -0.0} : f32\n"
      "  %9 = constant {value = 1e+300} : f64\n"
      "  print %7 {empty = [], list = [-1, 2], message = \"a \\\"quote\\\", \\\\ and \\x0a\\xff\"}\n"
      "}\n";
  const auto function = parse(text);
  verify(*function);
  CHECK(print(*function) == text);
  CHECK(function->body().ops.back()->string_attr("message") == "a \"quote\", \\ and \n\xff");
}

TEST_CASE("text: facts about how a program is run round-trip", "[jit][ir]") {
  const std::string text =
      "kernel @k(%0 x: view<[?, 64], f32, contiguous, align 16>) {num_warps = 4, order = \"rows\"} {\n"
      "  %1 = constant {value = 0} : i64\n"
      "  prefetch %0, %1, %1\n"
      "}\n";
  const auto function = parse(text);
  CHECK(std::get<int64_t>(function->attributes.at("num_warps")) == 4);
  CHECK(print(*function) == text);

  KernelBuilder b("scheduled");
  b.schedule({{"num_warps", int64_t{8}}});
  const auto built = b.finish();
  CHECK(print(*built) == "kernel @scheduled() {num_warps = 8} {\n}\n");
  CHECK(parse(print(*built))->attributes == built->attributes);
}

TEST_CASE("text: numbers of values survive, and values made after parsing get new ones", "[jit][ir]") {
  const auto function = parse("kernel @k() {\n  %40 = iota : tile<[4], i32>\n}");
  Op* op = function->append(&function->body(), OpKind::neg, {function->body().ops[0]->results[0]},
                            {tile_type({4}, DType::i32)});
  CHECK(op->results[0]->id > 40);
  CHECK_NOTHROW(parse(print(*function)));
}

TEST_CASE("text: comments and free layout are accepted", "[jit][ir]") {
  const auto function = parse("// a kernel\nkernel@k(%0 x:f32){ // body\n print %0{message=\"x\"}}");
  CHECK(print(*function) == "kernel @k(%0 x: f32) {\n  print %0 {message = \"x\"}\n}\n");
}

TEST_CASE("text: errors give line, column and what was expected", "[jit][ir]") {
  CHECK(parse_error("") == "tile IR text, line 1:1: expected 'kernel', found the end of the text");
  CHECK(parse_error("kernel @k(%0 x: f31) {}") == "tile IR text, line 1:17: expected an element type, found 'f31'");
  CHECK(parse_error("kernel @k() {\n  %1 = frobnicate\n}") ==
        "tile IR text, line 2:8: expected an operation, found 'frobnicate'");
  CHECK(parse_error("kernel @k() {\n  assume %3\n}") ==
        "tile IR text, line 2:10: expected a value that is defined above, found '%'");
  CHECK(parse_error("kernel @k() {\n  %1 = iota\n}") == "tile IR text, line 3:1: expected ':', found '}'");
  CHECK(parse_error("kernel @k() {\n  %1 = iota : tile<[0], i32>\n}") ==
        "tile IR text, line 2:21: expected a size in 1..9223372036854775807, found '0'");
  CHECK(parse_error("kernel @k() {\n  %1 = iota : tile<[1, 2, 3, 4], i32>\n}") ==
        "tile IR text, line 2:30: expected fewer dimensions, found '4'");
  CHECK(parse_error("kernel @k(%0 x: view<[?], f32, packed>) {}") ==
        "tile IR text, line 1:32: expected contiguous, noalias or align, found 'packed'");
  CHECK(parse_error("kernel @k() {\n  fence {order = 1.5.2}\n}") ==
        "tile IR text, line 2:18: expected a number, found '1.5.2'");
  CHECK(parse_error("kernel @k() {\n  fence {order = \"a}\n}") ==
        "tile IR text, line 3:2: expected '\"', found the end of the text");
  CHECK(parse_error("kernel @k() {} x") == "tile IR text, line 1:16: expected the end of the text, found 'x'");
  CHECK(parse_error("kernel @k() {\n  %1, %2 = iota : tile<[4], i32>\n}").find("expected 2 result types, not 1") !=
        std::string::npos);
  CHECK(parse_error("kernel @k(%0 a: f32, %0 b: f32) {}").find("%0 is defined twice") != std::string::npos);
  CHECK(parse_error("kernel @k() {\n  fence {a = 1, a = 2}\n}").find("'a' is given twice") != std::string::npos);
}

TEST_CASE("text: deep nesting is an error, not a crash", "[jit][ir]") {
  std::string text = "kernel @k() {";
  for (int i = 0; i < 100000; ++i) text += "if_then {";
  CHECK(parse_error(text).find("at most 64 nested blocks") != std::string::npos);
}

TEST_CASE("text: damaged text parses or throws Error, and what verifies still round-trips", "[jit][ir]") {
  const std::string original = print(*testing::sample_every_op());
  std::mt19937 random(20240611);
  int parsed = 0, refused = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::string text = original;
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t position = random() % text.size();
      switch (random() % 4) {
        case 0: text.erase(position, 1 + random() % 8); break;
        case 1: text[position] = static_cast<char>(random() % 256); break;
        case 2: text[position] = "0123456789%{}[]<>,:=\" "[random() % 23]; break;
        default: text.insert(position, text.substr(random() % text.size(), random() % 12)); break;
      }
    }
    try {
      const auto function = parse(text);
      const std::string printed = print(*function);
      REQUIRE(print(*parse(printed)) == printed);
      verify(*function);
      ++parsed;
    } catch (const Error& error) {
      REQUIRE(error.code() == ErrorCode::compile_failed);
      ++refused;
    }
  }
  CHECK(parsed > 40);
  CHECK(refused > 1000);
}

}  // namespace seqtile::ir

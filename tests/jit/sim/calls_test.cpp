// tests/jit/sim/calls_test.cpp -- functions that a kernel calls, tables of branches, and the rest of a module's text.
// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "seqtile/error.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

/// Puts each lane's address in b0 into %rd1. Its number is in %r0.
const std::string kAddress = "mul.wide.u32 %rd2, %r0, 4;\nadd.s64 %rd1, %rd0, %rd2;\n";

std::vector<uint32_t> run_on_iota(const std::string& text, LaunchResult* result = nullptr) {
  std::vector<uint32_t> data(32);
  std::iota(data.begin(), data.end(), 0);
  Bench bench;
  bench.add(data);
  const LaunchResult launch = bench.run(text);
  if (result != nullptr) *result = launch;
  else CHECK(messages(launch) == "");
  return data;
}

std::string error_of(const std::string& text) {
  try {
    decode_text(text, "k");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    return error.what();
  }
  return "";
}

/// Calls `f` with %r1 and puts its result into %r1.
std::string call_of(const std::string& name, const std::string& guard = "") {
  return "{\n.param .b32 param0;\nst.param.b32 [param0+0], %r1;\n.param .b32 retval0;\n" + guard +
         "call.uni (retval0), " + name + ", (param0);\nld.param.b32 %r1, [retval0+0];\n}\n";
}

const std::string kTriple = R"(.func (.param .b32 func_retval0) triple(.param .b32 triple_param_0)
{
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [triple_param_0];
  mul.lo.s32 %r2, %r1, 3;
  st.param.b32 [func_retval0+0], %r2;
  ret;
}
)";

TEST_CASE("ptx calls: a function gets its argument and gives its result", "[jit][sim]") {
  const auto data = run_on_iota(kernel_text(
      kAddress + "ld.global.u32 %r1, [%rd1];\n" + call_of("triple") + call_of("triple") + "st.global.u32 [%rd1], %r1;",
      1, kTriple));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == 9 * i);
}

TEST_CASE("ptx calls: the caller's registers outlive a call", "[jit][sim]") {
  const auto data = run_on_iota(
      kernel_text(kAddress + "ld.global.u32 %r1, [%rd1];\nadd.s32 %r2, %r1, 100;\nadd.s32 %r3, %r1, 7;\n" +
                      call_of("triple") + "add.s32 %r1, %r1, %r2;\nadd.s32 %r1, %r1, %r3;\nst.global.u32 [%rd1], %r1;",
                  1, kTriple));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == 5 * i + 107);
}

TEST_CASE("ptx calls: registers and numbers are arguments, a register takes the result", "[jit][sim]") {
  const std::string add = R"(.func (.param .b32 out) sum(.param .b32 a, .param .b64 b)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u32 %r1, [a];
  ld.param.u64 %rd1, [b];
  cvt.u32.u64 %r2, %rd1;
  add.s32 %r3, %r1, %r2;
  st.param.b32 [out], %r3;
  ret;
}
)";
  const auto data =
      run_on_iota(kernel_text(kAddress + "call (%r1), sum, (%r0, 1000);\nst.global.u32 [%rd1], %r1;", 1, add));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == i + 1000);
}

TEST_CASE("ptx calls: lanes that call from different places come back to their own", "[jit][sim]") {
  // Odd lanes call once, even lanes twice. Lanes outside the guard of a call stay where they are.
  const auto data = run_on_iota(kernel_text(kAddress + R"(
  ld.global.u32 %r1, [%rd1];
  and.b32 %r2, %r0, 1;
  setp.eq.u32 %p1, %r2, 1;
  setp.lt.u32 %p2, %r0, 8;
  @%p1 bra ODD;
)" + call_of("triple") + "bra JOIN;\nODD:\nadd.s32 %r1, %r1, 1;\nJOIN:\n" +
                                                call_of("triple") + R"(
  @!%p2 bra END;
)" + call_of("triple") + "END:\nst.global.u32 [%rd1], %r1;",
                                            1, kTriple));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == ((i & 1) ? 3 * (i + 1) : 9 * i) * (i < 8 ? 3 : 1));
}

TEST_CASE("ptx calls: a call that its guard leaves out in some lanes", "[jit][sim]") {
  const auto data = run_on_iota(kernel_text(kAddress + R"(
  setp.lt.u32 %p1, %r0, 5;
  mov.u32 %r1, %r0;
  @%p1 call (%r1), triple, (%r1);
  st.global.u32 [%rd1], %r1;)",
                                            1, kTriple));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == (i < 5 ? 3 * i : i));
}

const std::string kFibonacci = R"(.func (.param .b32 func_retval0) fib(.param .b32 fib_param_0)
{
  .reg .pred %p<2>;
  .reg .b32 %r<10>;
  ld.param.u32 %r9, [fib_param_0];
  setp.lt.s32 %p1, %r9, 2;
  @%p1 bra DONE;
  add.s32 %r2, %r9, -1;
  {
  .param .b32 param0;
  st.param.b32 [param0+0], %r2;
  .param .b32 retval0;
  call.uni (retval0), fib, (param0);
  ld.param.b32 %r3, [retval0+0];
  }
  add.s32 %r4, %r9, -2;
  {
  .param .b32 param0;
  st.param.b32 [param0+0], %r4;
  .param .b32 retval0;
  call.uni (retval0), fib, (param0);
  ld.param.b32 %r5, [retval0+0];
  }
  add.s32 %r9, %r3, %r5;
DONE:
  st.param.b32 [func_retval0+0], %r9;
  ret;
}
)";

TEST_CASE("ptx calls: recursion, with another depth in each lane", "[jit][sim]") {
  const auto data = run_on_iota(
      kernel_text(kAddress + "and.b32 %r1, %r0, 15;\n" + call_of("fib") + "st.global.u32 [%rd1], %r1;", 1, kFibonacci));
  std::vector<uint32_t> expected = {0, 1};
  while (expected.size() < 16) expected.push_back(expected[expected.size() - 1] + expected[expected.size() - 2]);
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == expected[i & 15]);
}

TEST_CASE("ptx calls: a local variable of a recursive function is another one in each call", "[jit][sim]") {
  // sum(n, p) adds its caller's variable, through a pointer, to its own: 1 + 2 + ... + n
  const std::string sum = R"(.func (.param .b32 out) sum(.param .b32 n, .param .b64 caller)
{
  .local .align 4 .b8 own[4];
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<6>;
  ld.param.u32 %r1, [n];
  ld.param.u64 %rd1, [caller];
  ld.u32 %r2, [%rd1];
  mov.u64 %rd2, own;
  cvta.local.u64 %rd3, %rd2;
  add.s32 %r3, %r2, %r1;
  st.local.u32 [%rd2], %r3;
  setp.eq.s32 %p1, %r1, 0;
  @%p1 bra DONE;
  sub.s32 %r4, %r1, 1;
  call (%r5), sum, (%r4, %rd3);
  ld.local.u32 %r6, [%rd2];
  setp.ne.s32 %p1, %r6, %r3;
  @%p1 trap;
  st.param.b32 [out], %r5;
  ret;
DONE:
  st.param.b32 [out], %r3;
  ret;
}
)";
  const auto data = run_on_iota(kernel_text(kAddress + R"(
  .local .align 4 .b8 start[4];
  mov.u64 %rd3, start;
  st.local.u32 [%rd3], 0;
  cvta.local.u64 %rd4, %rd3;
  call (%r1), sum, (%r0, %rd4);
  st.global.u32 [%rd1], %r1;)",
                                            1, sum));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == i * (i + 1) / 2);
}

TEST_CASE("ptx calls: recursion without end is a report", "[jit][sim]") {
  const std::string endless = replaced(kFibonacci, "setp.lt.s32 %p1, %r9, 2;", "setp.lt.s32 %p1, %r9, -2000000000;");
  LaunchResult result;
  run_on_iota(kernel_text(call_of("fib"), 1, endless), &result);
  REQUIRE(has(result, ReportKind::limit));
  CHECK_THAT(messages(result),
             Catch::Contains("calls within each other") && Catch::Contains("call.uni (retval0), fib"));
}

TEST_CASE("ptx calls: structures by value, at any offset", "[jit][sim]") {
  const std::string swap = R"(.func (.param .align 8 .b8 out[16]) swap(.param .align 8 .b8 in[16])
{
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [in+8];
  st.param.v2.b64 [out+0], {%rd2, %rd1};
  ret;
}
)";
  const auto data = run_on_iota(kernel_text(kAddress + R"(
  {
  .param .align 8 .b8 param0[16];
  cvt.u64.u32 %rd4, %r0;
  st.param.b64 [param0+0], %rd4;
  add.s64 %rd4, %rd4, 50;
  st.param.b64 [param0+8], %rd4;
  .param .align 8 .b8 retval0[16];
  call.uni (retval0), swap, (param0);
  ld.param.b64 %rd5, [retval0+0];
  ld.param.b64 %rd6, [retval0+8];
  }
  sub.s64 %rd5, %rd5, %rd6;
  cvt.u32.u64 %r1, %rd5;
  cvt.u32.u64 %r2, %rd6;
  mad.lo.s32 %r1, %r1, 100, %r2;
  st.global.u32 [%rd1], %r1;)",
                                            1, swap));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == 5000 + i);
}

TEST_CASE("ptx calls: a barrier in a function, for lanes that called it from different places", "[jit][sim]") {
  const std::string meet = R"(.shared .align 4 .b8 board[256];
.func (.param .b32 out) meet(.param .b32 value)
{
  .reg .b32 %r<8>;
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %tid.x;
  shl.b32 %r3, %r2, 2;
  mov.u32 %r4, board;
  add.s32 %r5, %r4, %r3;
  st.shared.u32 [%r5], %r1;
  bar.sync 0;
  xor.b32 %r3, %r3, 128;
  add.s32 %r5, %r4, %r3;
  ld.shared.u32 %r6, [%r5];
  bar.sync 0;
  st.param.b32 [out], %r6;
  ret;
}
)";
  std::vector<uint32_t> data(64, 0);
  Bench bench;
  bench.shape.threads = 64;
  bench.add(data);
  const LaunchResult result = bench.run(kernel_text(kAddress + R"(
  setp.lt.u32 %p1, %r0, 32;
  @%p1 bra LOW;
  call (%r1), meet, (%r0);
  bra END;
LOW:
  add.s32 %r2, %r0, 500;
  call (%r1), meet, (%r2);
END:
  st.global.u32 [%rd1], %r1;)",
                                                    1, meet));
  CHECK(messages(result) == "");
  for (uint32_t i = 0; i < 64; ++i) CHECK(data[i] == (i < 32 ? i + 32 : i - 32 + 500));
}

TEST_CASE("ptx calls: exit in a function ends the thread, trap the kernel", "[jit][sim]") {
  const std::string leaver = R"(.func leaver(.param .b32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  ld.param.u32 %r1, [value];
  setp.lt.u32 %p1, %r1, 4;
  @%p1 exit;
  ret;
}
)";
  const auto data = run_on_iota(kernel_text(kAddress + "call leaver, (%r0);\nst.global.u32 [%rd1], 77;", 1, leaver));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == (i < 4 ? i : 77));
}

TEST_CASE("ptx calls: printf and assertions", "[jit][sim]") {
  const std::string module = R"(
.extern .func (.param .b32 func_retval0) vprintf(.param .b64 a, .param .b64 b);
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e) .noreturn;
.global .align 1 .b8 format[] = {37, 100, 32, 37, 46, 50, 102, 32, 37, 115, 32, 37, 108, 108, 120, 37, 37, 10, 0};
.global .align 1 .b8 word[3] = {111, 107, 0};
.global .align 1 .b8 text[2] = {120, 0};
)";
  const std::string body = R"(
  .local .align 8 .b8 buffer[32];
  mov.u64 %rd1, buffer;
  sub.s32 %r1, %r0, 5;
  st.local.u32 [%rd1], %r1;
  st.local.f64 [%rd1+8], 0d3FF8000000000000;
  mov.u64 %rd2, word;
  cvta.global.u64 %rd2, %rd2;
  st.local.u64 [%rd1+16], %rd2;
  st.local.u64 [%rd1+24], 255;
  cvta.local.u64 %rd3, %rd1;
  mov.u64 %rd4, format;
  cvta.global.u64 %rd4, %rd4;
  setp.lt.u32 %p1, %r0, 2;
  @!%p1 bra SKIP;
  {
  .param .b64 param0;
  st.param.b64 [param0+0], %rd4;
  .param .b64 param1;
  st.param.b64 [param1+0], %rd3;
  .param .b32 retval0;
  call.uni (retval0), vprintf, (param0, param1);
  ld.param.b32 %r2, [retval0+0];
  }
SKIP:
)";
  LaunchResult result;
  run_on_iota(kernel_text(body, 1, module), &result);
  CHECK(messages(result) == "");
  CHECK(result.printed == std::vector<std::string>{"-5 1.50 ok ff%\n", "-4 1.50 ok ff%\n"});

  const std::string failing = R"(
  mov.u64 %rd2, word;
  cvta.global.u64 %rd2, %rd2;
  mov.u64 %rd3, text;
  cvta.global.u64 %rd3, %rd3;
  .param .b64 param0;
  .param .b64 param1;
  .param .b32 param2;
  .param .b64 param3;
  .param .b64 param4;
  st.param.b64 [param0], %rd2;
  st.param.b64 [param1], %rd3;
  st.param.b32 [param2], 12;
  st.param.b64 [param3], %rd3;
  st.param.b64 [param4], 1;
  setp.eq.u32 %p1, %r0, 9;
  @%p1 call.uni __assertfail, (param0, param1, param2, param3, param4);
)";
  run_on_iota(kernel_text(failing, 1, module), &result);
  CHECK_THAT(messages(result), Catch::Contains("lane 9: the assertion `ok` fails, x:12 in x"));
  CHECK(result.num_reports == 1);
}

TEST_CASE("ptx calls: a kernel is refused only for what it reaches", "[jit][sim]") {
  const std::string other = R"(
.visible .entry other() { frobnicate.b32 %nothing; }
.visible .entry worse() .strange 7 { .what .is this }
.func unreached() { tcgen05.alloc.cta_group::1.sync.aligned.b32 [x], 32; }
.func half_known(.reg .b32 x) { ret; }
.extern .func outside();
.extern .global .b32 elsewhere;
.shared .b8 enormous[1000000];
.func (.reg .b32 r) in_register() { ret; }
.extern .func (.reg .b32 r) outside_register(.reg .b32 a);
)";
  CHECK(error_of(kernel_text("", 1, other)) == "");
  CHECK_THAT(error_of(kernel_text("call (%r1), in_register, ();", 1, other)),
             Catch::Contains("PTX line 12: parameters in registers are not executed"));
  CHECK_THROWS_WITH(decode_text(kernel_text("", 1, other), "worse"), Catch::Contains(".strange"));
  CHECK_THROWS_WITH(decode_text(kernel_text("", 1, other), "other"),
                    Catch::Contains("PTX line 5") && Catch::Contains("%nothing"));
  CHECK_THAT(error_of(kernel_text("call unreached;", 1, other)),
             Catch::Contains("PTX line 7: ") && Catch::Contains("'x'"));
  CHECK_THAT(error_of(kernel_text("call half_known, (%r1);", 1, other)),
             Catch::Contains("PTX line 8: parameters in registers are not executed"));
  CHECK_THAT(error_of(kernel_text("call outside;", 1, other)),
             Catch::Contains("function 'outside' is only declared here; link what defines it into the text in 'k'"));
  CHECK_THAT(error_of(kernel_text("ld.global.u32 %r1, [elsewhere];", 1, other)),
             Catch::Contains("variable 'elsewhere' is only declared"));
  CHECK_THAT(error_of(kernel_text("call nowhere;", 1, other)), Catch::Contains("no function 'nowhere'"));
  CHECK_THAT(error_of(kernel_text("call %rd1, ();", 1, other)), Catch::Contains("a call by the address in %rd1"));
  CHECK_THAT(error_of(kernel_text("mov.u64 %rd1, outside;", 1, other)),
             Catch::Contains("the address of function 'outside' is taken"));
  CHECK_THAT(error_of(kernel_text("call triple, (%r1);", 1, kTriple)),
             Catch::Contains("1 arguments and 0 results, 'triple' has 1 and 1"));
  // the unknown function is one call further away
  const std::string chain = other + ".func middle() { call unreached; }\n";
  CHECK_THAT(error_of(kernel_text("call middle;", 1, chain)), Catch::Contains("PTX line 7"));
}

TEST_CASE("ptx calls: aliases, declarations before definitions, and prototypes", "[jit][sim]") {
  const std::string declared = ".func (.param .b32 r) triple(.param .b32 p);\n" + kTriple + ".alias thrice, triple;\n";
  const auto data = run_on_iota(kernel_text(kAddress + "P : .callprototype (.param .b32 _) _ (.param .b32 _);\ncall "
                                                       "(%r1), thrice, (%r0);\nst.global.u32 [%rd1], %r1;",
                                            1, declared));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == 3 * i);
}

TEST_CASE("ptx branches: a table sends each lane to its own target", "[jit][sim]") {
  const std::string body = kAddress + R"(
  and.b32 %r1, %r0, 3;
  mov.u32 %r2, 0;
$L_table: .branchtargets
  $A,
  $B, $C, $A;
  brx.idx %r1, $L_table;
$A:
  add.s32 %r2, %r2, 1;
$B:
  add.s32 %r2, %r2, 10;
$C:
  add.s32 %r2, %r2, 100;
  st.global.u32 [%rd1], %r2;)";
  const auto data = run_on_iota(kernel_text(body));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == ((i & 3) == 1 ? 110u : (i & 3) == 2 ? 100u : 111u));
  LaunchResult result;
  run_on_iota(kernel_text(replaced(body, "%r0, 3;", "%r0, 7;")), &result);
  CHECK_THAT(messages(result), Catch::Contains("lane 4: target 4 of a table of 4"));
}

TEST_CASE("ptx variables: first values hold addresses", "[jit][sim]") {
  const std::string module = R"(
.global .align 4 .b32 numbers[4] = {10, 20, 30, 40};
.const .align 8 .u64 table[2] = {numbers, generic(numbers)+8};
.global .align 8 .u64 end = numbers+12;
)";
  const auto data = run_on_iota(kernel_text(kAddress + R"(
  and.b32 %r1, %r0, 1;
  mul.wide.u32 %rd2, %r1, 8;
  mov.u64 %rd3, table;
  add.s64 %rd3, %rd3, %rd2;
  ld.const.u64 %rd4, [%rd3];
  ld.global.u32 %r2, [%rd4];
  ld.global.u64 %rd5, [end];
  ld.global.u32 %r3, [%rd5];
  add.s32 %r2, %r2, %r3;
  st.global.u32 [%rd1], %r2;)",
                                            1, module));
  for (uint32_t i = 0; i < 32; ++i) CHECK(data[i] == ((i & 1) ? 70 : 50));
}

}  // namespace
}  // namespace seqtile::sim

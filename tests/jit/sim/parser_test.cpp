// tests/jit/sim/parser_test.cpp -- PTX text becomes instructions with resolved names, or an error with its line.
// SPDX-License-Identifier: Apache-2.0
#include "jit/error.h"
#include "jit/sim/ptx_module.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

std::string parse_error(const std::string& text) {
  try {
    parse_ptx(text);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    return error.what();
  }
  return "";
}

std::string decode_error(const std::string& body) {
  try {
    decode_text(kernel_text(body), "k");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    return error.what();
  }
  return "";
}

TEST_CASE("ptx parser: a module's facts, parameters and directives", "[jit][sim]") {
  const PtxModule module = parse_ptx(R"(
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.global .align 4 .u32 table[3] = {1, 2, 0x10};
.visible .entry f(
  .param .align 64 .b8 map[128],
  .param .u32 n,
  .param .u64 .ptr .global .align 16 x
)
.reqntid 384, 1, 1
.minnctapersm 1
{
  .reg .b32 %r<4>;
  ret;
})");
  CHECK(module.version == "8.0");
  CHECK(module.target == "sm_90a");
  REQUIRE(module.kernels.size() == 1);
  const PtxKernel& kernel = module.kernels[0];
  CHECK(kernel.required_threads == 384);
  REQUIRE(kernel.params.size() == 3);
  CHECK(kernel.params[0].align == 64);
  CHECK(kernel.params[1].offset == 128);
  CHECK(kernel.params[2].offset == 136);
  CHECK(kernel.param_bytes == 144);
  CHECK(module.variables[1].initial == std::vector<uint8_t>{1, 0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0});
}

TEST_CASE("ptx parser: inline assembly has registers and labels of its own", "[jit][sim]") {
  const PtxModule module = parse_ptx(kernel_text(R"(
  // begin inline asm
  {
  .reg .pred p;
  W0:
  setp.ne.b32 p, %r0, 0;
  @!p bra W0;
  }
  {
  .reg .pred p;
  W0: setp.eq.b32 p, %r0, 0;
  @p bra W0;
  })"));
  const auto& code = module.kernels[0].instructions;
  REQUIRE(code.size() == 7);
  CHECK(code[3].guard != code[5].guard);
  CHECK(code[3].is_guard_negated);
  CHECK(code[3].operands[0].target == 2);
  CHECK(code[5].operands[0].target == 4);
}

TEST_CASE("ptx parser: operands of every kind, over several lines", "[jit][sim]") {
  const PtxModule module = parse_ptx(kernel_text(R"(
  fma.rn.f32 %f0,
     0f3F800000,
     %f1, 0fBF800000;
  ld.global.v2.u32 {%r1, _}, [%rd0+-8];
  mov.u32 %r2, %ctaid.x;
  add.s32 %r3, %r2, -12; /* a comment
  of two lines */ sub.s32 %r3, %r3, 0x1F;)"));
  const auto& code = module.kernels[0].instructions;
  CHECK(code[2].operands[1].bits == 0x3f800000);
  CHECK(code[2].operands[1].is_float);
  CHECK(code[3].operands[0].elements[1].kind == PtxOperand::Kind::sink);
  CHECK(code[3].operands[1].offset == -8);
  CHECK(code[4].operands[1].kind == PtxOperand::Kind::special);
  CHECK(static_cast<int64_t>(code[5].operands[2].bits) == -12);
  CHECK(code[6].operands[2].bits == 31);
  CHECK(code[6].line == code[5].line + 1);
}

TEST_CASE("ptx parser: errors name the line and what was found", "[jit][sim]") {
  CHECK(parse_error(".version 8.0\n.frob x\n") == "PTX line 2: expected a directive, found 'x'");
  CHECK_THAT(parse_error(kernel_text("add.s32 %r1, %r2, %q7;")), Catch::Contains("%q7") || Catch::Equals(""));
  CHECK_THAT(parse_error(kernel_text("bra nowhere;")), Catch::Contains("unknown name 'nowhere'"));
  CHECK_THAT(parse_error(kernel_text("@%r1 bra x;\nx:")), Catch::Contains("not a predicate"));
  CHECK_THAT(parse_error(kernel_text("add.s32 %r1, %r2 %r3;")), Catch::Contains("expected ';', found '%r3'"));
  CHECK_THAT(parse_error(".visible .func f() { ret; }"), Catch::Contains("calls are not supported"));
  CHECK(parse_error("\x1b[31m") == "PTX line 1: expected a directive, found byte 27");
  CHECK_THAT(parse_error(".version\n 8.x"), Catch::Equals("PTX line 2: expected a version, found '8.x'"));
}

TEST_CASE("ptx parser: versions and targets that are not executed are refused", "[jit][sim]") {
  const auto error_of = [](const std::string& version, const std::string& target) {
    return parse_error("//\n.version " + version + "\n.target " + target + "\n.address_size 64\n");
  };
  CHECK_THAT(error_of("99.9", "sm_80"), Catch::StartsWith("PTX line 2: .version 99.9 is newer than 8.6"));
  CHECK_THAT(error_of("8.7", "sm_80"), Catch::Contains("newer than 8.6"));
  CHECK_THAT(error_of("8.6", "sm_100a"), Catch::StartsWith("PTX line 3: .target sm_100a is not executed here") &&
                                             Catch::Contains("sm_80, sm_86") && Catch::Contains("sm_90a"));
  CHECK_THAT(error_of("7.4", "sm_75"), Catch::Contains(".target sm_75"));
  for (const char* target : {"sm_80", "sm_89", "sm_90", "sm_90a, debug"}) CHECK(error_of("7.4", target) == "");
}

TEST_CASE("ptx decoder: a form that the machine does not know is an error with its line", "[jit][sim]") {
  CHECK_THAT(decode_error("add.rz.f32 %f1, %f2, %f3;"),
             Catch::Contains("does not know the form add.rz.f32") && Catch::StartsWith("PTX line 14"));
  CHECK_THROWS_WITH(decode_text(kernel_text(""), "f"), Catch::Contains("no kernel 'f'; it has 'k'"));
  CHECK_THAT(decode_error("tcgen05.alloc.cta_group::1.sync.aligned.b32 [%r1], 32;"), Catch::Contains("tcgen05"));
  CHECK_THAT(decode_error("add.s32 %r1, %rd2, %r3;"), Catch::Contains("%rd2 of type .b64 does not fit"));
  CHECK_THAT(decode_error("add.s32 %r1, %r2;"), Catch::Contains("operands"));
  CHECK_THAT(decode_error("mov.u32 %r1, %frobnicate;"), Catch::Contains("%frobnicate"));
  CHECK_THAT(decode_error("ld.global.weird.u32 %r1, [%rd0];"), Catch::Contains(".weird"));
  CHECK_THAT(decode_error("cp.async.wait_group %r1, %r2;"), Catch::Contains("operands"));
}

TEST_CASE("ptx decoder: registers that are never live together share a slot", "[jit][sim]") {
  std::string body = "mov.u32 %r1, 1;\n";
  for (int i = 1; i < 60; ++i) body += "add.s32 %r" + std::to_string(i + 1) + ", %r" + std::to_string(i) + ", 1;\n";
  const Program program = decode_text(kernel_text(body + "st.global.u32 [%rd0], %r60;"), "k");
  CHECK(program.num_slots < 20);
}

}  // namespace
}  // namespace seqtile::sim

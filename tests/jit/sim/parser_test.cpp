// tests/jit/sim/parser_test.cpp -- PTX text becomes instructions with resolved names, or an error with its line.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ptx/ptx_module.h"
#include "seqtile/error.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

std::string parse_error(const std::string& text) {
  try {
    const PtxModule module = parse_ptx(text);
    for (const auto* list : {&module.kernels, &module.functions})
      for (const PtxKernel& kernel : *list)
        if (!kernel.problem.empty()) return kernel.problem;
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
  CHECK(module.target == PtxTarget::sm_90a);
  REQUIRE(module.kernels.size() == 1);
  const PtxKernel& kernel = module.kernels[0];
  CHECK(kernel.required_block == std::array{384, 1, 1});
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
  const PtxModule decimal = parse_ptx(kernel_text("mul.f32 %f1, %f2, -1.5e-1;"));
  CHECK(std::bit_cast<double>(decimal.kernels[0].instructions[2].operands[2].bits) == -0.15);
}

TEST_CASE("ptx parser: errors name the line and what was found", "[jit][sim]") {
  CHECK(parse_error(".version 8.0\n.frob x\n") == "PTX line 2: expected a directive, found 'x'");
  CHECK_THAT(parse_error(kernel_text("add.s32 %r1, %r2, %q7;")), Catch::Contains("%q7") || Catch::Equals(""));
  CHECK_THAT(parse_error(kernel_text("bra nowhere;")), Catch::Contains("unknown name 'nowhere'"));
  CHECK_THAT(parse_error(kernel_text("@%r1 bra x;\nx:")), Catch::Contains("not a predicate"));
  CHECK_THAT(parse_error(kernel_text("add.s32 %r1, %r2 %r3;")), Catch::Contains("expected ';', found '%r3'"));
  CHECK(parse_error("\x1b[31m") == "PTX line 1: expected a directive, found byte 27");
  CHECK_THAT(parse_error(".version\n 8.x"), Catch::Equals("PTX line 2: expected a version, found '8.x'"));
}

TEST_CASE("ptx parser: any version is read, and any target that there is", "[jit][sim]") {
  const auto header = [](const std::string& version, const std::string& target) {
    return "//\n.version " + version + "\n.target " + target + "\n.address_size 64\n";
  };
  for (const char* version : {"1.0", "6.3", "8.6", "8.8", "9.0", "9.4", "99.9"})
    CHECK(parse_error(header(version, "sm_80")) == "");
  const std::pair<const char*, PtxTarget> targets[] = {
      {"sm_52", PtxTarget::sm_80},    {"sm_75", PtxTarget::sm_80},   {"sm_80", PtxTarget::sm_80},
      {"sm_89", PtxTarget::sm_89},    {"sm_90", PtxTarget::sm_90},   {"sm_90a, debug", PtxTarget::sm_90a},
      {"sm_100a", PtxTarget::sm_100}, {"sm_120f", PtxTarget::sm_100}};
  for (const auto& [name, target] : targets) CHECK(parse_ptx(header("9.0", name)).target == target);
  for (const char* name : {"sm_", "sm_80x", "sm_1", "compute_80", "gfx90a"})
    CHECK_THAT(parse_error(header("9.0", name)),
               Catch::StartsWith("PTX line 3: .target ") && Catch::Contains("is no architecture that is known here"));
}

TEST_CASE("ptx parser: the directives of other compilers", "[jit][sim]") {
  const std::string text = R"(
.version 9.0
.target sm_75, debug
.address_size 64
.file 1 "/tmp/{x}.cu", 1692, 17
@@DWARF .byte 0x2b
.visible .global .attribute(.managed) .align 8 .u64 x = 0;
.const .align 4 .b8 bytes[] = {1, 2, 3};
.global .texref picture;
.weak .func (.param .b64 r) f(.param .align 8 .b8 s[16]) .noreturn ;
.visible .entry k(.param .u64 .ptr .align 4 k_param_0)
.maxntid 128, 1, 1
.minnctapersm 2
{
  .loc 1 2 3, function_name $L__info_string0, inlined_at 1 5 0
  .pragma "nounroll";
  {.reg.b16 c; mov.b16 c, 0; }
$L__tmp0:
  ret;
}
.section .debug_abbrev
{
.b8 1 // }
.b8 0
}
)";
  const PtxModule module = parse_ptx(text);
  REQUIRE(module.kernels.size() == 1);
  CHECK(module.kernels[0].problem == "");
  CHECK(module.kernels[0].max_threads == 128);
  CHECK(module.kernels[0].params[0].is_pointer);
  CHECK(module.functions[0].results[0].bytes == 8);
  CHECK(module.variables[1].bytes == 3);
  CHECK(decode(module, "k").param_bytes == 8);
}

TEST_CASE("ptx decoder: a form that the machine does not know is an error with its line", "[jit][sim]") {
  CHECK_THAT(decode_error("add.rq.f32 %f1, %f2, %f3;"),
             Catch::Contains("does not know the form add.rq.f32; write it in one that docs/ptx_machine.md") &&
                 Catch::StartsWith("PTX line 14"));
  CHECK_THROWS_WITH(decode_text(kernel_text(""), "f"), Catch::Contains("no kernel 'f'; it has 'k'"));
  CHECK_THAT(decode_error("tcgen05.alloc.cta_group::1.sync.aligned.b32 [%r1], 32;"), Catch::Contains("tcgen05"));
  CHECK_THAT(decode_error("add.s32 %r1, %rd2, %r3;"), Catch::Contains("%rd2 of type .b64 does not fit"));
  CHECK_THAT(decode_error("add.s32 %r1, %r2;"), Catch::Contains("operands"));
  CHECK_THAT(decode_error("mov.u32 %r1, %frobnicate;"), Catch::Contains("%frobnicate"));
  CHECK_THAT(decode_error("ld.global.weird.u32 %r1, [%rd0];"), Catch::Contains(".weird"));
  CHECK_THAT(decode_error("cp.async.wait_group %r1, %r2;"), Catch::Contains("operands"));
}

TEST_CASE("ptx parser: what a text gets wrong is named", "[jit][sim]") {
  const auto module_error = [](const std::string& lines) {
    return parse_error(".version 8.0\n.target sm_80\n.address_size 64\n" + lines);
  };
  CHECK(
      parse_error(".visible .entry k()\n{\nret;\n}\n") ==
      "PTX line 1: a kernel stands before .version; begin the text with .version 8.0, .target sm_80 and .address_size "
      "64");
  CHECK_THAT(parse_error(".version 8.0\n.entry k() { ret; }"), Catch::Contains("stands before .target"));
  CHECK_THAT(module_error(".entry k() { ret; }\n.entry k() { ret; }"),
             Catch::Equals("PTX line 5: kernel 'k' stands twice"));
  CHECK_THAT(parse_error(kernel_text("mov.b64 %rd1, {%r1, nobody};")), Catch::Contains("unknown name 'nobody'"));
  CHECK_THAT(parse_error(kernel_text("ld.global.u32 %r1, [nothing+4];")), Catch::Contains("unknown name 'nothing'"));
  CHECK_THAT(parse_error(kernel_text("HERE:\nmov.b64 %rd1, {%r1, HERE};")),
             Catch::Contains("label 'HERE' stands where a value is expected"));
  CHECK_THAT(parse_error(kernel_text("add.s32 %r1, %r2, %r4294967295;")),
             Catch::Equals(""));  // the decoder refuses it
  CHECK_THAT(decode_error("add.s32 %r1, %r2, %r4294967295;"), Catch::Contains("'%r4294967295' is not known"));
  CHECK_THAT(parse_error(kernel_text("mov.u32 %r1, 99999999999999999999;")), Catch::Contains("does not fit 64 bits"));
  CHECK_THAT(parse_error(kernel_text("ld.global.u32 %r1, [%rd0+99999999999999999999];")),
             Catch::Contains("an offset of 99999999999999999999 does not fit"));
  CHECK_THAT(parse_error(kernel_text("mov.u32 %r1, " + std::string(100'000, '{') + ";")), Catch::Contains("too deep"));
  CHECK_THAT(parse_error(kernel_text("mov.u32 %r1, " + std::string(100'000, '[') + ";")), Catch::Contains("too deep"));
  CHECK_THAT(parse_error(kernel_text(".reg .b32 %x;\n.reg .b32 %x;")),
             Catch::Contains("register '%x' is declared twice"));
  CHECK_THAT(parse_error(kernel_text(".reg .b32 %x<9999999>;")),
             Catch::Contains("%x<9999999>: 0 to 1000000 registers"));
  for (const char* align : {"0", "3", "-16", "99999999999"})
    CHECK_THAT(module_error(".shared .align " + std::string(align) + " .b8 x[16];"),
               Catch::StartsWith("PTX line 4: .align " + std::string(align) + ": a power of two"));
  CHECK_THAT(module_error(".global .b8 x[-1];"), Catch::Contains("'x' has -1 elements"));
  CHECK_THAT(module_error(".global .b64 x[4294967296][4294967296];"), Catch::Contains("at most 4294967296 bytes"));
  CHECK_THAT(module_error(".global .b32 x[1] = {1, 2};"), Catch::Contains("more values than the 4 bytes of 'x' hold"));
  CHECK_THAT(module_error(".entry k(.param .b8 x[40000]) { ret; }"),
             Catch::Contains("need 40000 bytes, at most 32764"));
  CHECK_THAT(module_error(".entry k() .reqntid 1024, 1024, 1024 { ret; }"), Catch::Contains(".reqntid 1024: a number"));
  CHECK_THAT(module_error(".entry k() .reqntidx 32 { ret; }"), Catch::Contains("directive .reqntidx of a kernel"));
  CHECK_THAT(module_error(".entry k() { ret }"), Catch::Equals("PTX line 4: expected ';', found '}'"));
  CHECK_THAT(parse_error(kernel_text("add.f32 %f1, %f2, 1.x;")), Catch::Contains("expected a number, found '1.x'"));
  CHECK_THAT(module_error(".target sm_90\n"), Catch::Equals("PTX line 4: .target stands twice"));
  CHECK_THAT(module_error(".address_size 32\n"), Catch::Contains(".address_size 32 is not executed here"));
  CHECK_THAT(module_error(".shared .b8 x[4];\n.shared .b8 x[8];"), Catch::Equals("PTX line 5: 'x' is declared twice"));
  CHECK_THAT(module_error(".entry k(.param .u64 a, .param .u64 a) { ret; }"), Catch::Contains("'a' is declared twice"));
  CHECK_THAT(parse_error(kernel_text(".reg .foo %x;")), Catch::Contains("expected a register type, found '.foo'"));
  CHECK_THAT(parse_error(kernel_text("call (%r1, f;")), Catch::Contains("expected ')', found ';'"));
  CHECK_THAT(parse_error(kernel_text("::;")), Catch::Equals(""));  // an unknown opcode
  CHECK_THAT(decode_error("::;"), Catch::Contains("does not know the form ::"));
  for (const char* access : {"ld.global.u32 %r1, %rd0;", "st.global.u32 %rd0, %r1;", "st.global.u32 [%rd0], [%r1];"})
    CHECK_THAT(decode_error(access), Catch::Contains("the address, and nothing else, is expected in brackets"));
  CHECK_THAT(decode_error("add.u64 %rd1, [%rd0], 1;"), Catch::Contains("an address in brackets stands where a value"));
  CHECK_THAT(decode_error("ld.global.u64 %r1, [%rd0];"), Catch::Contains("a register of 4 bytes does not fit .u64"));
  CHECK_THAT(decode_error("ld.global.v2.u32 {%r1, %rd1}, [%rd0];"), Catch::Contains("a register of 4 bytes does not"));
  CHECK_THAT(decode_error("ld.global.u32 %rs1, [%rd0];"), Catch::Contains("a register of 2 bytes does not fit .u32"));
  CHECK_THAT(decode_error("red.global.add.u8 [%rd0], %rs1;"), Catch::Contains("type .u8"));
  CHECK(decode_error("add.u32 " + std::string(9999, ' ') + "%r1;").size() < 200);
  CHECK_THAT(decode_error("ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd0];"),
             Catch::Contains("a vector of more than 16 bytes"));
}

TEST_CASE("ptx decoder: variables that no device holds are refused before they are made", "[jit][sim]") {
  const auto refusal = [](const std::string& module_text, const std::string& body) -> std::string {
    try {
      decode_text(kernel_text(body, 1, module_text), "k");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::out_of_resources);
      return error.what();
    }
    return "";
  };
  CHECK(refusal("", ".local .b8 big[524288];") == "");
  CHECK(refusal("", ".local .b8 big[4294967296];") ==
        "kernel k: its .local variables need 4294967296 bytes, 524288 are available; declare smaller ones");
  CHECK_THAT(refusal(".shared .b8 big[300000];\n", "mov.u32 %r1, big;"),
             Catch::Contains(".shared variables need 300000 bytes, 232448"));
  CHECK_THAT(refusal(".global .b64 big[500000000];\n", "mov.u64 %rd1, big;"),
             Catch::Contains("need 4000000000 bytes, 1073741824"));

  const Program program = decode_text(kernel_text(".local .b8 big[524288];"), "k");
  Machine machine;
  LaunchShape shape;
  shape.threads = 1024, shape.grid = {64, 1, 1}, shape.cooperative = true;
  const std::vector<std::byte> params(8);
  CHECK_THROWS_WITH(
      machine.launch(program, shape, params),
      Catch::Contains("64 blocks of 1024 threads with 524288 bytes of .local each need 34359738368 bytes at "
                      "once, 4294967296 are available"));
}

TEST_CASE("ptx decoder: registers that are never live together share a slot", "[jit][sim]") {
  std::string body = "mov.u32 %r1, 1;\n";
  for (int i = 1; i < 60; ++i) body += "add.s32 %r" + std::to_string(i + 1) + ", %r" + std::to_string(i) + ", 1;\n";
  const Program program = decode_text(kernel_text(body + "st.global.u32 [%rd0], %r60;"), "k");
  CHECK(program.num_slots < 20);
}

}  // namespace
}  // namespace seqtile::sim

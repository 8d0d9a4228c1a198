// tests/jit/codegen/cpu/blob_test.cpp -- the permitted and refused contents of a blob, and its run at any address.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/blob.h"

#include <catch2/catch.hpp>

#include <bit>
#include <string>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/error.h"
#include "tests/support/fakes/emulated_device.h"
#include "tests/support/ptx/llvm_kernel.h"

namespace seqtile {
namespace {

/// Text and constants that refer to each other: a table, a vector constant, a jump table and a local function.
constexpr const char* kConstants = R"(
@table = internal constant [4 x i64] [i64 11, i64 22, i64 33, i64 44]
define internal i64 @twice(i64 %x) noinline optnone {
  %y = mul i64 %x, 2
  ret i64 %y
}
define void @constants(ptr %slots, ptr %pid, ptr %grid, ptr %arena) {
entry:
  %out = load ptr, ptr %slots
  %i = load i64, ptr %pid
  %place = getelementptr [4 x i64], ptr %out, i64 %i
  switch i64 %i, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c  i64 3, label %d  i64 4, label %e ]
a:
  store volatile i64 1, ptr %arena
  br label %other
b:
  store volatile i64 20, ptr %arena
  br label %other
c:
  %three = call i64 @twice(i64 150)
  store volatile i64 %three, ptr %arena
  br label %other
d:
  store volatile i64 4000, ptr %arena
  br label %other
e:
  store volatile i64 50000, ptr %arena
  br label %other
other:
  %seen = load volatile i64, ptr %arena
  %index = and i64 %i, 3
  %entry_of_table = getelementptr [4 x i64], ptr @table, i64 0, i64 %index
  %from_table = load volatile i64, ptr %entry_of_table
  %sum = add i64 %seen, %from_table
  %vector = insertelement <4 x i64> <i64 0, i64 1001, i64 1002, i64 1003>, i64 %sum, i64 0
  store <4 x i64> %vector, ptr %place, align 8
  ret void
}
)";

void check_constants(Device& device, const Target& target, std::span<int64_t> out) {
  INFO(target.name);
  KernelBinary binary = testing::compile_llvm(kConstants, target, 1);
  binary.arena_bytes = 64;
  const auto kernel = device.load(std::move(binary));
  const uint64_t slots[] = {std::bit_cast<uint64_t>(out.data())};
  device.launch(*kernel, {5, 1, 1}, slots);
  CHECK(std::vector(out.begin(), out.end()) == std::vector<int64_t>{12,   1001, 1002,  1003, 42,   1001, 1002,
                                                                    1003, 333,  1001,  1002, 1003, 4044, 1001,
                                                                    1002, 1003, 50011, 1001, 1002, 1003});
}

TEST_CASE("blob: constants, jump tables and local calls work where the blob is mapped", "[jit][codegen]") {
  const auto device = make_cpu_device(1);
  for (const std::string& name : cpu_target_names()) {
    std::vector<int64_t> out(5 * 4);
    if (is_executable(cpu_target(name))) check_constants(*device, cpu_target(name), out);
  }
}

TEST_CASE("blob: constants, jump tables and local calls work on AArch64", "[jit][codegen]") {
  const auto device = testing::make_emulated_device();
  if (!device) return;
  std::vector<int64_t> out(5 * 4);
  device->register_memory(std::as_writable_bytes(std::span(out)));
  check_constants(*device, device->target(), out);
}

TEST_CASE("blob: every target can be compiled for on every machine", "[jit][codegen]") {
  for (const std::string& name : cpu_target_names()) {
    INFO(name);
    std::vector<std::string> stages;
    std::string assembly;
    const auto dump = [&](std::string_view stage, std::string_view text) {
      stages.emplace_back(stage);
      if (stage == "asm") assembly = text;
    };
    const KernelBinary binary = testing::compile_llvm(kConstants, cpu_target(name), 1, dump);
    CHECK(binary.symbol == "constants");
    CHECK(binary.target == "cpu:" + name);
    CHECK(binary.stage == "blob");
    CHECK(binary.code.size() % 64 == 0);
    CHECK(stages == std::vector<std::string>{"ll", "asm"});
    CHECK_THAT(assembly, Catch::Contains(name == "neon" ? "adrp" : "%rip"));
  }
}

TEST_CASE("blob: the same kernel compiles to the same bytes", "[jit][codegen]") {
  const KernelBinary once = testing::compile_llvm(kConstants, host_target(), 1);
  const KernelBinary again = testing::compile_llvm(kConstants, host_target(), 1);
  CHECK(once.code == again.code);
}

std::string compile_error(const std::string& text, const char* target) {
  try {
    testing::compile_llvm(text, cpu_target(target), 0);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    return error.what();
  }
  return "no error";
}

TEST_CASE("blob: an external symbol is a compile error that names it", "[jit][codegen]") {
  const std::string direct = R"(
declare void @helper()
define void @needs_helper(ptr %s, ptr %p, ptr %g, ptr %a) { call void @helper() ret void }
)";
  const std::string hidden = R"(
declare float @llvm.exp2.f32(float)
define void @needs_libm(ptr %s, ptr %p, ptr %g, ptr %a) {
  %x = load float, ptr %s
  %y = call float @llvm.exp2.f32(float %x)
  store float %y, ptr %s
  ret void
}
)";
  for (const char* target : {"avx512", "generic", "neon"}) {
    CHECK_THAT(compile_error(direct, target),
               Catch::Contains("kernel needs_helper") && Catch::Contains("symbol helper;"));
    CHECK_THAT(compile_error(hidden, target), Catch::Contains("kernel needs_libm") && Catch::Contains("symbol exp2f;"));
  }
}

TEST_CASE("blob: writable data and absolute addresses are compile errors", "[jit][codegen]") {
  const std::string state = R"(
@counter = internal global i64 7
define void @has_state(ptr %s, ptr %p, ptr %g, ptr %a) {
  %x = load i64, ptr @counter
  %y = add i64 %x, 1
  store i64 %y, ptr @counter
  ret void
}
)";
  const std::string address = R"(
@name = internal constant [2 x i8] c"ab"
@pointers = internal constant [2 x ptr] [ptr @name, ptr @has_address]
define void @has_address(ptr %s, ptr %p, ptr %g, ptr %a) {
  %i = load i64, ptr %p
  %at = getelementptr [2 x ptr], ptr @pointers, i64 0, i64 %i
  %x = load volatile ptr, ptr %at
  store ptr %x, ptr %s
  ret void
}
)";
  for (const char* target : {"avx512", "neon"}) {
    CHECK_THAT(compile_error(state, target), Catch::Contains("kernel has_state") && Catch::Contains("writable data"));
    CHECK_THAT(compile_error(address, target),
               Catch::Contains("kernel has_address: writable data in section .data.rel.ro"));
  }
}

TEST_CASE("blob: LLVM IR that breaks a rule is an error of ours, not a crash", "[jit][codegen]") {
  const std::string text = R"(
define void @use_before_definition(ptr %s, ptr %p, ptr %g, ptr %a) {
  %y = add i64 %x, 1
  %x = add i64 1, 2
  store i64 %y, ptr %s
  ret void
}
)";
  try {
    testing::compile_llvm(text, host_target(), 0);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::internal);
    CHECK_THAT(error.what(), Catch::Contains("kernel use_before_definition: invalid LLVM IR") &&
                                 Catch::Contains("does not dominate"));
  }
}

TEST_CASE("blob: bytes that are not an object are refused", "[jit][codegen]") {
  for (const size_t size : {0, 10, 64, 4096}) {
    const std::vector<char> bytes(size, 'x');
    CHECK_THROWS_AS(cpu::link_blob(bytes, "kernel"), Error);
  }
}

}  // namespace
}  // namespace seqtile

// tests/jit/compiler_test.cpp -- the compiler's stages in order, from any number of threads, with clear refusals.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/compiler.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/error.h"
#include "tests/support/kernels/sample_kernels.h"

namespace seqtile {
namespace {

TEST_CASE("compiler: every stage is dumped once, in order, for every target", "[jit][compiler]") {
  const auto function = testing::sample_softmax(64);
  for (const std::string& name : cpu_target_names()) {
    if (!can_compile_for(cpu_target(name))) continue;
    INFO(name);
    std::vector<std::string> stages, texts;
    const KernelBinary binary =
        compile(*function, cpu_target(name), [&](std::string_view stage, std::string_view text) {
          stages.emplace_back(stage);
          texts.emplace_back(text);
        });
    REQUIRE(stages == std::vector<std::string>{"tile", "ll", "asm"});
    CHECK(texts[0] == ir::print(*function));
    CHECK_THAT(texts[1], Catch::Contains("define") && Catch::Contains(function->name()));
    CHECK_THAT(texts[2], Catch::Contains(function->name()));
    CHECK(binary.symbol == function->name());
    CHECK(binary.num_slots == static_cast<uint32_t>(ir::num_slots(*function)));
    CHECK_FALSE(binary.code.empty());
  }
}

TEST_CASE("compiler: many threads compile at once, to the same bytes", "[jit][compiler]") {
  const auto expected = compile(*testing::sample_softmax(64), host_target());
  std::vector<KernelBinary> binaries(4);
  std::vector<std::thread> threads;
  for (KernelBinary& binary : binaries)
    threads.emplace_back([&binary] {
      const auto function = testing::sample_softmax(64);
      for (int repeat = 0; repeat < 3; ++repeat) binary = compile(*function, host_target());
    });
  for (std::thread& thread : threads) thread.join();
  for (const KernelBinary& binary : binaries) CHECK(binary.code == expected.code);
}

TEST_CASE("compiler: every target of this machine computes the same function", "[jit][compiler]") {
  constexpr int64_t kRows = 3, kColumns = 45;
  std::vector<float> x(kRows * kColumns), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  const auto device = make_cpu_device(1);
  const auto function = testing::sample_softmax(64);
  const auto address = [](std::vector<float>& v) { return std::bit_cast<uint64_t>(v.data()); };
  for (const std::string& name : cpu_target_names()) {
    if (!is_executable(cpu_target(name))) continue;
    INFO(name);
    std::fill(y.begin(), y.end(), -1.0f);
    const auto kernel = device->load(compile(*function, cpu_target(name)));
    const std::vector<uint64_t> slots = {address(x), kRows, kColumns, kColumns, 1,
                                         address(y), kRows, kColumns, kColumns, 1};
    device->launch(*kernel, {kRows, 1, 1}, slots);
    for (int64_t row = 0; row < kRows; ++row) {
      double sum = 0;
      for (int64_t c = 0; c < kColumns; ++c) sum += std::exp(static_cast<double>(x[row * kColumns + c]));
      for (int64_t c = 0; c < kColumns; ++c)
        REQUIRE(y[row * kColumns + c] == Approx(std::exp(static_cast<double>(x[row * kColumns + c])) / sum));
    }
  }
}

TEST_CASE("compiler: tile IR that does not verify is refused before anything is generated", "[jit][compiler]") {
  ir::Function function("broken");
  ir::Value* x = function.add_param("x", ir::scalar_type(DType::i64));
  function.append(&function.body(), ir::OpKind::add, {x}, {ir::scalar_type(DType::i64)});
  try {
    compile(function, host_target());
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    CHECK_THAT(error.what(), Catch::Contains("add"));
  }
}

TEST_CASE("compiler: the toolchain version names all that machine code depends on", "[jit][compiler]") {
  CHECK_THAT(std::string(toolchain_version()),
             Catch::StartsWith("seqtile ") && Catch::Contains("LLVM 19.") && Catch::Contains("codegen "));
}

}  // namespace
}  // namespace seqtile

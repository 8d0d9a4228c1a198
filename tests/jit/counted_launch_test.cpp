// tests/jit/counted_launch_test.cpp -- the work of a launch is counted, without the launch before it.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/device/counted_launch.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "seqtile/error.h"

using namespace seqtile;

namespace {

KernelBinary binary_of(const std::string& body) {
  const std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f(.param .u64 p)\n{\n"
      ".reg .b64 %rd<2>;\n.reg .b32 %r<2>;\nld.param.u64 %rd1, [p];\nmov.u32 %r1, 7;\n" +
      body + "\nret;\n}\n";
  KernelBinary binary{.symbol = "f", .target = "sm_80", .stage = "ptx", .code = {}, .num_slots = 1, .gpu = {32, 0}};
  const auto bytes = std::as_bytes(std::span(text));
  binary.code.assign(bytes.begin(), bytes.end());
  return binary;
}

LaunchCounts count(const KernelBinary& binary, std::span<std::byte> memory) {
  const uint64_t slot = reinterpret_cast<uint64_t>(memory.data());
  return count_launch(binary, {1, 1, 1}, {&slot, 1}, {&memory, 1});
}

}  // namespace

TEST_CASE("counted launch: a launch that begins where the last one ended counts as much", "[jit][sim]") {
  alignas(32) std::byte memory[32] = {};
  const KernelBinary store = binary_of("st.global.u32 [%rd1], %r1;");
  for (int i = 0; i < 3; ++i) CHECK(count(store, memory).global_sectors == 1);
  uint32_t stored = 0;
  std::memcpy(&stored, memory, sizeof stored);
  CHECK(stored == 7);
}

TEST_CASE("counted launch: a loop without end ends by its instructions", "[jit][sim]") {
  alignas(32) std::byte memory[32] = {};
  try {
    // The code could leave the loop, but the values never do.
    count(binary_of(".reg .pred %p1;\nsetp.eq.u32 %p1, %r1, 7;\nagain:\nst.global.u32 [%rd1], %r1;\n@%p1 bra again;"),
          memory);
    FAIL("it ended");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::timeout);
    CHECK_THAT(error.what(), Catch::Contains("still running after 4194304 instructions"));
  }
}

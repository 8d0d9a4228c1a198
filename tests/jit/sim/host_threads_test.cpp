// tests/jit/sim/host_threads_test.cpp -- clusters of one grid on several host threads, and their shared memory.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/device.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

/// Each thread adds to the first word and stores to the second word of its own pairs, one pair after the other.
const std::string kMixed = kernel_text(R"(
mov.u32 %r1, %ctaid.x;
mad.lo.u32 %r2, %r1, 128, %r0;
mul.wide.u32 %rd4, %r2, 160;
add.s64 %rd5, %rd0, %rd4;
mov.u32 %r3, 0;
LOOP:
red.global.add.u32 [%rd5], 1;
st.global.u32 [%rd5+4], %r3;
add.s64 %rd5, %rd5, 8;
add.u32 %r3, %r3, 1;
setp.lt.u32 %p1, %r3, 20;
@%p1 bra LOOP;
)");

}  // namespace

TEST_CASE("ptx machine: plain stores beside atomics in one buffer, on several host threads", "[jit][sim]") {
  constexpr uint32_t kBlocks = 32, kThreads = 128, kPairs = 20;
  const auto executor = make_executor(4);
  std::vector<uint32_t> data(size_t{2} * kBlocks * kThreads * kPairs, 0);
  Bench bench;
  bench.add(data);
  bench.shape.grid = {kBlocks, 1, 1}, bench.shape.threads = kThreads;
  bench.options.executor = executor.get();
  const LaunchResult result = bench.run(kMixed);
  INFO(messages(result));
  REQUIRE(result.ok());
  std::vector<uint32_t> want(data.size());
  for (uint32_t i = 0; i < want.size(); ++i) want[i] = i % 2 == 0 ? 1 : i / 2 % kPairs;
  CHECK(data == want);
}

}  // namespace seqtile::sim

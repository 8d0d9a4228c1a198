// tests/jit/sim/bounds_test.cpp -- addresses so high or boxes so large that their ends wrap around.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/memory/sim_tensor_map.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

LaunchResult run(const std::string& body) {
  std::vector<uint32_t> data(64, 1);
  Bench bench;
  bench.add(data);
  return bench.run(kernel_text(body));
}

/// Loads with the map at %rd0, or with the map that is the next parameter.
LaunchResult load_box(const TensorMap& map, uint64_t visible_bytes, bool from_params) {
  Bench bench;
  bench.machine.register_memory("map", const_cast<TensorMap*>(&map), visible_bytes);
  append_param(bench.params, &map), append_param(bench.params, map);
  bench.shape.shared_bytes = 1024;
  const std::string text = kernel_text(R"(
mov.u32 %r1, smem;
mov.b64 %rd10, m0;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra END;
mbarrier.init.shared::cta.b64 [%r1+512], 1;
fence.mbarrier_init.release.cluster;
cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0, {0, 0, 0, 0}], [%r1+512];
END:)",
                                       1, ".extern .shared .align 1024 .b8 smem[];\n");
  return bench.run(replaced(from_params ? replaced(text, "[%rd0, {", "[%rd10, {") : text, ".param .u64 p0)",
                            ".param .u64 p0, .param .align 64 .b8 m0[128])"));
}

TensorMap map_of(const void* base, uint32_t extent) {
  const uint64_t size[] = {8, 1, 1, 1}, stride[] = {16, 16, 16};
  const uint32_t box[] = {256, extent, extent, extent};
  return encode_tensor_map(TensorElement::bf16, base, size, stride, box, Swizzle::none);
}

}  // namespace

TEST_CASE("ptx machine: an access whose end wraps around to 0 is out of bounds", "[jit][sim]") {
  const std::string first = "ld.global.u32 %r1, [%rd0];\n";  // gives the warp a region
  for (const char* access : {"mov.b64 %rd9, 0;\nld.global.u32 %r2, [%rd9-4];", "st.global.v4.u32 [-16], {1, 1, 1, 1};",
                             "red.global.add.u32 [-4], 1;", "ld.param.u64 %rd9, [p0-8];"}) {
    const LaunchResult result = run(first + access);
    INFO(access << "\n" << messages(result));
    CHECK(has(result, ReportKind::out_of_bounds));
  }
}

TEST_CASE("ptx machine: a tensor map lies in one buffer whole, and its box is no larger than memory", "[jit][sim]") {
  alignas(64) static uint16_t data[8];
  alignas(64) const TensorMap small = map_of(data, 1), huge = map_of(data, 256);
  CHECK(has(load_box(small, 64, false), ReportKind::tensor_map));
  CHECK_FALSE(has(load_box(small, 128, false), ReportKind::tensor_map));
  const LaunchResult result = load_box(huge, 128, true);  // 2^33 bytes
  INFO(messages(result));
  CHECK(has(result, ReportKind::out_of_bounds));
}

}  // namespace seqtile::sim

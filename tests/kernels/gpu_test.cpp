// tests/kernels/gpu_test.cpp -- the same PTX on the GPU of this machine and on a simulated one.
// SPDX-License-Identifier: Apache-2.0
//
// Both must agree with the reference. They may differ in bits, because a GPU rounds approximations and the sums inside
// a matrix instruction in its own way. The test prints the number of different elements.
#include <catch2/catch.hpp>

#include <cstdio>

#include "autotune/call/device_mirror.h"
#include "autotune/call_sizes.h"
#include "jit/ir/row_alignment.h"
#include "tests/support/kernels/guarded_call.h"
#include "tests/support/kernels/kernel_cases.h"

namespace seqtile::testing {
namespace {

/// The bytes of all outputs after one run of the configuration's PTX for `target` on `device`.
std::vector<std::vector<std::byte>> run_on(Device& device, const Target& target, const autotune::OpDef& op,
                                           const autotune::Workload& workload, const autotune::Config& config,
                                           GuardedCall& call) {
  autotune::DeviceMirror mirror(device);
  for (size_t i = 0; i < call.memory().size(); ++i)
    mirror.add(call.memory()[i]->bytes(), call.problem().schema->args[i].name);
  autotune::Problem problem = call.problem();
  problem.tensors = mirror.at(call.problem().tensors);
  call.poison_outputs();
  mirror.upload();
  KernelRunner(op, workload, config, target, Backend::compiled, device).run(problem);
  mirror.download();
  return call.output_bytes();
}

size_t differing_bytes(const std::vector<std::vector<std::byte>>& a, const std::vector<std::vector<std::byte>>& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t at = 0; at < a[i].size(); ++at) count += a[i][at] != b[i][at];
  return count;
}

void compare(const KernelCase& test_case, int64_t length, Device& gpu, Device& simulated) {
  const autotune::OpDef& op = library_op(test_case.operation);
  const autotune::Workload workload = normalized(test_case, DType::bf16, 1);
  const Target& target = simulated.target();
  GuardedCall call(op, workload, autotune::call_symbols(op, workload, op.schema(workload), length), 3, kGpuAlignment);
  const std::vector<int64_t> rows = call.sample_rows(64);
  const auto want = call.want(rows);
  const autotune::Config config = op.default_config(workload, length, target);
  INFO(op.name << " " << workload.json() << " length " << length << " " << target.name << " " << config.json());
  const auto expected = run_on(simulated, target, op, workload, config, call);
  REQUIRE(call.check(rows, want) == "");
  const auto found = run_on(gpu, target, op, workload, config, call);
  REQUIRE(call.check(rows, want) == "");
  std::printf("%s %s length %d: %zu bytes differ from %s\n", op.name.c_str(), target.name.c_str(),
              static_cast<int>(length), differing_bytes(found, expected), simulated.info().name.c_str());
}

}  // namespace

TEST_CASE("gpu: the same PTX does the same on the GPU and simulated", "[kernels][gpu][compare]") {
  const auto gpu = open_gpu();
  if (!gpu) return;
  std::vector<std::string> names{"sim:sm_80"};
  if (gpu->target().name == "sm_90a") names.emplace_back("sim:sm_90a");
  autotune::Fields heads{{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"head_dim", int64_t{128}}};
  autotune::Fields prefill = heads, decode = heads;
  prefill.set("phase", std::string("prefill"));
  decode.set("phase", std::string("decode"));
  for (const std::string& name : names) {
    const auto simulated = open_device(name, 0);
    for (const int64_t length : {65, 256}) {
      compare({"linear", {{"n", int64_t{256}}, {"k", int64_t{512}}}}, length, *gpu, *simulated);
      compare({"attention_forward", prefill}, length, *gpu, *simulated);
      compare({"attention_forward", decode}, length, *gpu, *simulated);
      compare({"rms_norm", {{"n", int64_t{4096}}}}, length, *gpu, *simulated);
      compare({"layer_norm", {{"n", int64_t{1024}}}}, length, *gpu, *simulated);
      compare({"softmax", {{"n", int64_t{1000}}}}, length, *gpu, *simulated);
      compare({"act_and_mul", {{"n", int64_t{1536}}}}, length, *gpu, *simulated);
      compare({"rope", heads}, length, *gpu, *simulated);
      compare({"embedding", {{"vocab", int64_t{1000}}, {"n", int64_t{4096}}}}, length, *gpu, *simulated);
    }
  }
}

}  // namespace seqtile::testing

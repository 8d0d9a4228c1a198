// tests/kernels/gpu_code_test.cpp -- instructions of the emitted GPU code, in PTX and in the assembler's binary.
// SPDX-License-Identifier: Apache-2.0
//
// Spills and lost overlap leave results right, so only these tests notice them. Tests that need the assembler print a
// line and return if there is none.
#include <catch2/catch.hpp>

#include <cstring>
#include <iostream>
#include <regex>

#include "autotune/gpu_model.h"
#include "autotune/worker/count.h"
#include "jit/codegen/nvptx/ptxas.h"
#include "seqtile/compiler.h"
#include "seqtile/op.h"
#include "tests/support/kernels/kernel_cases.h"

namespace seqtile::testing {
namespace {

using autotune::Config;
using autotune::Fields;

const KernelCase kLinear{"linear", {{"n", int64_t{4096}}, {"k", int64_t{4096}}}};
const KernelCase kAttention{"attention_forward",
                            {{"heads", int64_t{32}}, {"kv_heads", int64_t{8}}, {"head_dim", int64_t{128}}}};

KernelBinary compiled(const KernelCase& test_case, const Target& target, const Config& config) {
  const autotune::OpDef& op = library_op(test_case.operation);
  return compile(*autotune::build_kernel(op, normalized(test_case, DType::bf16, 1), config, target), target);
}

std::string ptx(const KernelCase& test_case, const char* target, const Config& config) {
  const KernelBinary binary = compiled(test_case, gpu_target(target), config);
  return {reinterpret_cast<const char*>(binary.code.data()), binary.code.size()};
}

Config linear_config(int64_t block_m, int64_t block_n, int64_t block_k, int64_t num_warps, int64_t num_stages) {
  return {{"block_m", block_m},
          {"block_n", block_n},
          {"block_k", block_k},
          {"num_warps", num_warps},
          {"num_stages", num_stages}};
}

Config attention_config(int64_t block_m, int64_t block_n, int64_t num_warps) {
  return {{"block_m", block_m}, {"block_n", block_n}, {"num_warps", num_warps}, {"num_stages", int64_t{2}}};
}

size_t count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<size_t>(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

/// The assembler's binary; nullopt if there is no assembler.
std::optional<KernelBinary> assembled_kernel(const KernelCase& test_case, const char* name, const Config& config) {
  const auto ptxas = nvptx::find_ptxas();
  if (!ptxas) {
    std::cout << "no ptxas: the assembler's code is not checked\n";
    return std::nullopt;
  }
  Target target = gpu_target(name);
  target.cubin_arch = name;
  target.ptxas = *ptxas;
  return compiled(test_case, target, config);
}

void check_resources(const KernelCase& test_case, const char* target, const Config& config, int most_registers) {
  const auto binary = assembled_kernel(test_case, target, config);
  if (!binary) return;
  INFO(binary->symbol);
  REQUIRE(binary->resources);
  CHECK(binary->resources->registers <= most_registers);
  CHECK(binary->resources->spill_store_bytes == 0);
  CHECK(binary->resources->spill_load_bytes == 0);
  CHECK(binary->resources->warnings == std::vector<std::string>{});
}

/// The order of products and exponentials in a cubin's only kernel, one letter an instruction: 'H' a wgmma, 'M' a
/// transcendental function, '0' a wait for all batches, '1' a wait for all but some.
std::string order_of_work(const KernelBinary& binary) {
  const std::byte* elf = binary.code.data();
  const auto read = [&](size_t at, auto value) {
    std::memcpy(&value, elf + at, sizeof value);
    return value;
  };
  const auto sections = read(0x28, uint64_t{});
  const size_t size = read(0x3a, uint16_t{}), number = read(0x3c, uint16_t{}), names_index = read(0x3e, uint16_t{});
  const auto names = read(sections + names_index * size + 0x18, uint64_t{});
  std::string order;
  for (size_t i = 0; i < number; ++i) {
    const size_t header = sections + i * size;
    const std::string name(reinterpret_cast<const char*>(elf + names + read(header, uint32_t{})));
    if (!name.starts_with(".text.")) continue;
    const auto first = read(header + 0x18, uint64_t{}), bytes = read(header + 0x20, uint64_t{});
    for (size_t at = first; at < first + bytes; at += 16) {
      const auto low = read(at, uint64_t{}), high = read(at + 8, uint64_t{});
      const uint64_t opcode = low & 0x1ff;
      if (opcode == 0x1f0) order += 'H';
      else if (opcode == 0x108) order += 'M';
      else if (opcode == 0x1c5 && (low >> 47 & 1)) order += (high >> 8 & 0xff) == 0 ? '0' : '1';
    }
  }
  return order;
}

}  // namespace

TEST_CASE("gpu code: the portable product copies 16 bytes at a time, stages ahead", "[kernels][nvptx]") {
  const std::string text = ptx(kLinear, "sm_80", linear_config(64, 128, 32, 4, 3));
  CHECK(count(text, "cp\\.async\\.cg\\.shared\\.global[^;]*, 16,") > 0);
  CHECK(count(text, "cp\\.async\\.ca") == 0);
  CHECK(count(text, "cp\\.async\\.wait_group\\s+1;") == 1);
  CHECK(count(text, "ldmatrix\\.sync\\.aligned\\.m8n8\\.x4") > 0);
  CHECK(count(text, "mma\\.sync\\.aligned\\.m16n8k16") > 0);
  CHECK(count(text, "st\\.global\\.v4\\.b32") > 0);
  CHECK(count(text, "st\\.global\\.(b32|b16|u16)") == 0);
}

TEST_CASE("gpu code: attention's weights go from product to product in registers", "[kernels][nvptx]") {
  const std::string text = ptx(kAttention, "sm_80", attention_config(64, 64, 4));
  // Only queries and results are stored to shared memory, once each: the loop stores nothing.
  const size_t loop = text.find("cp.async.wait_group"), end = text.find("cp.async.wait_all");
  REQUIRE(loop != std::string::npos);
  REQUIRE(end != std::string::npos);
  CHECK(count(text.substr(loop, end - loop), "st\\.shared") == 0);
}

TEST_CASE("gpu code: Hopper's product is copied by TMA and multiplied by wgmma", "[kernels][nvptx]") {
  const KernelBinary binary = compiled(kLinear, gpu_target("sm_90a"), linear_config(128, 256, 64, 8, 3));
  const std::string text(reinterpret_cast<const char*>(binary.code.data()), binary.code.size());
  CHECK(count(text, "cp\\.async\\.bulk\\.tensor\\.2d\\.shared::cluster\\.global") == 2);
  CHECK(count(text, "wgmma\\.mma_async\\.sync\\.aligned\\.m64n256k16\\.f32\\.bf16\\.bf16") == 4);
  CHECK(count(text, "setmaxnreg\\.(inc|dec)") == 2);
  CHECK(count(text, "mma\\.sync|ldmatrix|cp\\.async\\.c[ag]") == 0);
  CHECK(binary.gpu.threads == 384);
  CHECK(binary.gpu.tensor_maps.size() == 3);
  // The next program's operands are under way while the results leave.
  CHECK(binary.gpu.is_persistent);
  CHECK(count(text, "stmatrix\\.sync\\.aligned\\.m8n8\\.x4") == 16);
  CHECK(count(text, "cp\\.async\\.bulk\\.tensor\\.2d\\.global\\.shared::cta\\.bulk_group") == 4);
}

TEST_CASE("gpu code: a weight's gradient is copied ahead and multiplied as it lies", "[kernels][nvptx]") {
  const KernelCase wgrad{"linear_wgrad", {{"n", int64_t{4096}}, {"k", int64_t{4096}}}};
  const std::string portable = ptx(wgrad, "sm_80", linear_config(64, 128, 32, 4, 3));
  CHECK(count(portable, "cp\\.async\\.cg\\.shared\\.global[^;]*, 16,") > 0);
  CHECK(count(portable, "ldmatrix\\.sync\\.aligned\\.m8n8\\.x4\\.trans") > 0);
  CHECK(count(portable, "ldmatrix\\.sync\\.aligned\\.m8n8\\.x4\\.shared") == 0);
  const std::string hopper = ptx(wgrad, "sm_90a", linear_config(128, 256, 64, 8, 3));
  CHECK(count(hopper, "cp\\.async\\.bulk\\.tensor\\.2d\\.shared::cluster\\.global") == 6);  // panels of 64 columns
  CHECK(count(hopper, "wgmma\\.mma_async[^;]*, p, 1, 1, 1, 1;") == 4);  // both operands by their rows of k
  check_resources(wgrad, "sm_90a", linear_config(128, 256, 64, 8, 3), 168);
  check_resources(wgrad, "sm_80", linear_config(128, 128, 32, 8, 3), 255);
}

TEST_CASE("gpu code: the assembler spills nothing and warns of nothing", "[kernels][nvptx]") {
  check_resources(kLinear, "sm_80", linear_config(128, 128, 32, 8, 3), 255);
  check_resources(kLinear, "sm_90a", linear_config(128, 256, 64, 8, 3), 168);
  check_resources(kLinear, "sm_90a", linear_config(64, 256, 64, 4, 4), 255);
  check_resources(kAttention, "sm_80", attention_config(64, 64, 4), 255);
  check_resources(kAttention, "sm_90a", attention_config(128, 128, 8), 168);
  check_resources(kAttention, "sm_90a", attention_config(64, 128, 4), 255);
}

TEST_CASE("gpu code: the softmax runs while the tensor cores work", "[kernels][nvptx]") {
  const auto binary = assembled_kernel(kAttention, "sm_90a", attention_config(128, 128, 8));
  if (!binary) return;
  const std::string order = order_of_work(*binary);
  INFO(order);
  // One turn: 8 wgmma of the scores, 8 of the values, the wait for the scores, at least 64 exponentials, the wait for
  // the values.
  CHECK(count(order, "H{16,17}1M{64,80}0") == 1);
  CHECK(count(order, "H") <= 17);  // the loop has no second copy; one more wgmma ends a batch
}

TEST_CASE("gpu code: a block of a cluster counts as much as one alone, but for what both load", "[kernels][sim]") {
  const autotune::OpDef& op = library_op("linear");
  const autotune::Workload workload = normalized(kLinear, DType::bf16, 1);
  const auto counts = [&](int64_t cluster) {
    Config config = linear_config(128, 128, 64, 8, 3);
    config.set("cluster", cluster);
    const autotune::GpuSample sample = op.gpu_samples(workload, config, 8192).front();
    return autotune::count_program(op, sample.workload, config, sample.length, gpu_target("sm_90a"));
  };
  const autotune::ProgramCounts alone = counts(1), paired = counts(2);
  CHECK(paired.warp_instructions == Approx(alone.warp_instructions).epsilon(0.1));
  CHECK(paired.shared_wavefronts == Approx(alone.shared_wavefronts).epsilon(0.1));
  CHECK(paired.global_sectors == 0.8 * alone.global_sectors);  // x has 2 of 5 parts, w 2 (halved by the cluster), y 1
}

}  // namespace seqtile::testing

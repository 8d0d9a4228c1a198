// tests/kernels/attention_test.cpp -- attention in its phases, masks and batches against its reference.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <limits>
#include <memory>

#include "jit/ir/row_alignment.h"
#include "seqtile/kernel.h"
#include "tests/support/kernels/kernel_table.h"

namespace seqtile::testing {
namespace {

KernelCase attention(int64_t heads, int64_t kv_heads, int64_t head_dim, const std::string& phase,
                     std::initializer_list<std::pair<const std::string, autotune::FieldValue>> more = {}) {
  KernelCase result{"attention_forward",
                    {{"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"phase", phase}}};
  for (const auto& [name, value] : more) result.fields.set(name, value);
  return result;
}

void write_index(const GuardedCall& call, const std::string& name, std::initializer_list<int64_t> values) {
  int64_t i = 0;
  for (const int64_t value : values) write_element(call.tensor(name), i++, static_cast<double>(value));
}

/// Three sequences, with keys in another order than queries and gaps of poison between them.
struct Batch {
  KernelCase kernel;
  std::vector<int64_t> q_lengths, kv_lengths;
  int64_t bucket_length;
};

std::unique_ptr<GuardedCall> call_of(const Batch& batch, const autotune::Workload& workload, int64_t alignment) {
  const auto &q_lengths = batch.q_lengths, &kv_lengths = batch.kv_lengths;
  const int64_t tokens = q_lengths[0] + q_lengths[1] + q_lengths[2];
  const int64_t kv_tokens = kv_lengths[0] + kv_lengths[1] + kv_lengths[2] + 20;
  auto call =
      std::make_unique<GuardedCall>(library_op("attention_forward"), workload,
                                    std::vector{batch.bucket_length, tokens, kv_tokens, int64_t{3}}, 5, alignment);
  write_index(*call, "q_start", {0, q_lengths[0], q_lengths[0] + q_lengths[1], tokens});
  const int64_t second = 7, first = second + kv_lengths[1] + 3, third = first + kv_lengths[0] + 4;
  write_index(*call, "kv_start", {first, second, third});
  write_index(*call, "kv_len", {kv_lengths[0], kv_lengths[1], kv_lengths[2]});
  for (const char* name : {"k", "v"})
    for (int64_t token = 0; token < kv_tokens; ++token) {
      const bool used = (token >= second && token < second + kv_lengths[1]) ||
                        (token >= first && token < first + kv_lengths[0]) ||
                        (token >= third && token < third + kv_lengths[2]);
      const Tensor& tensor = call->tensor(name);
      for (int64_t d = 0; !used && d < tensor.sizes[2]; ++d)
        write_element(tensor, token * tensor.strides[0] + d, std::numeric_limits<double>::quiet_NaN());
    }
  return call;
}

void check_batch(const Batch& batch, const Target& target, Backend backend) {
  const autotune::OpDef& op = library_op("attention_forward");
  const auto workload = normalized(batch.kernel, DType::f32);
  const auto call = call_of(batch, workload, 1);
  const auto rows = call->sample_rows(1000);
  const auto want = call->want(rows);
  const auto device = make_cpu_device(2);
  for (const auto& config : diverse_configs(op, workload, batch.bucket_length, target, 4)) {
    INFO(workload.json() << " " << target.name << " " << config.json());
    KernelRunner runner(op, workload, config, target, backend, *device);
    for (int run = 0; run < 2; ++run) {
      call->poison_outputs();
      runner.run(call->problem());
      REQUIRE(call->check(rows, want) == "");
    }
  }
}

void check_batch_on(Device& device, const Batch& batch, DType dtype) {
  const auto workload = normalized(batch.kernel, dtype, 1);
  const auto call = call_of(batch, workload, kGpuAlignment);
  check_call_on(device, *call, workload, batch.bucket_length);
}

/// Batches with `heads` query heads and a third as many key heads.
std::vector<Batch> batches(int64_t heads) {
  return {{attention(heads, heads / 3, 64, "prefill"), {5, 1, 130}, {5, 1, 130}, 130},
          {attention(heads, heads / 3, 64, "extend"), {70, 1, 3}, {200, 1, 18}, 70},
          {attention(heads, heads / 3, 64, "decode"), {1, 1, 1}, {300, 1, 18}, 300}};
}

}  // namespace

TEST_CASE("attention: interpreted, every phase and mask", "[kernels]") {
  for (const DType dtype : kKernelDTypes) {
    check_interpreted(attention(3, 1, 8, "prefill"), dtype, {1, 5, 33});
    check_interpreted(attention(2, 2, 16, "prefill", {{"causal", int64_t{0}}, {"soft_cap", 5.0}}), dtype, {9});
    check_interpreted(attention(2, 1, 8, "extend", {{"window", int64_t{6}}, {"scale", 0.2}}), dtype, {9});
    check_interpreted(attention(6, 2, 8, "decode"), dtype, {1, 40, 130});
    check_interpreted(attention(2, 1, 8, "decode", {{"window", int64_t{33}}}), dtype, {130});
  }
}

TEST_CASE("attention: interpreted, a batch of different lengths with gaps", "[kernels]") {
  for (const Batch& batch : {Batch{attention(2, 1, 8, "prefill"), {5, 1, 18}, {5, 1, 18}, 18},
                             Batch{attention(2, 1, 8, "extend"), {5, 1, 3}, {50, 1, 18}, 5},
                             Batch{attention(2, 1, 8, "decode"), {1, 1, 1}, {70, 1, 18}, 70}})
    check_batch(batch, cpu_target("avx512"), Backend::interpreter);
}

TEST_CASE("attention: every dtype and length at nine heads with three key heads", "[kernels][sweep]") {
  for (const char* group : {"attention prefill", "attention decode", "attention extend"}) check_on_cpus(group);
}

TEST_CASE("attention: head dimensions, windows, soft caps, no mask", "[kernels][sweep]") {
  check_on_cpus("attention variants");
}

TEST_CASE("attention: a batch of different lengths with gaps", "[kernels]") {
  for (const Target& target : executable_targets())
    for (const Batch& batch : batches(9)) check_batch(batch, target, Backend::compiled);
}

TEST_CASE("attention: a batch of different lengths with gaps on simulated GPUs", "[kernels][sim][sweep]") {
  on_simulated_gpus([](Device& device) {
    for (const Batch& batch : batches(3)) check_batch_on(device, batch, DType::bf16);
  });
}

TEST_CASE("attention: a batch of different lengths with gaps on simulated GPUs, every dtype", "[kernels][sim][slow]") {
  on_simulated_gpus([](Device& device) {
    for (const Batch& batch : batches(9))
      for (const DType dtype : kKernelDTypes) check_batch_on(device, batch, dtype);
  });
}

TEST_CASE("attention: a batch of different lengths with gaps on the GPU", "[kernels][gpu]") {
  const auto device = open_gpu();
  if (!device) return;
  for (const Batch& batch : batches(9))
    for (const DType dtype : kKernelDTypes) check_batch_on(*device, batch, dtype);
}

}  // namespace seqtile::testing

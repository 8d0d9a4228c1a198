// tests/kernels/attention_test.cpp -- attention in its phases, masks and batches against its reference.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "kernels/tensor_values.h"
#include "tests/support/guarded_call.h"
#include "tests/support/kernel_cases.h"

namespace seqtile::testing {
namespace {

const DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

KernelCase attention(int64_t heads, int64_t kv_heads, int64_t head_dim, const std::string& phase,
                     std::initializer_list<std::pair<const std::string, autotune::FieldValue>> more = {}) {
  KernelCase result{"attention_forward",
                    {{"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"phase", phase}}};
  for (const auto& [name, value] : more) result.fields.set(name, value);
  return result;
}

void write_index(const GuardedCall& call, const std::string& name, std::initializer_list<int64_t> values) {
  int64_t i = 0;
  for (const int64_t value : values) kernels::write_element(call.tensor(name), i++, static_cast<double>(value));
}

/// Three sequences of different lengths, with keys in another order than queries and gaps of poison between them.
void check_batch(const KernelCase& test_case, const std::vector<int64_t>& q_lengths,
                 const std::vector<int64_t>& kv_lengths, int64_t bucket_length, const Target& target, Backend backend) {
  const autotune::OpDef& op = library_op("attention_forward");
  const auto workload = normalized(test_case, DType::f32);
  const int64_t tokens = q_lengths[0] + q_lengths[1] + q_lengths[2];
  const int64_t kv_tokens = kv_lengths[0] + kv_lengths[1] + kv_lengths[2] + 20;
  GuardedCall call(op, workload, {bucket_length, tokens, kv_tokens, 3}, 5);
  write_index(call, "q_start", {0, q_lengths[0], q_lengths[0] + q_lengths[1], tokens});
  const int64_t second = 7, first = second + kv_lengths[1] + 3, third = first + kv_lengths[0] + 4;
  write_index(call, "kv_start", {first, second, third});
  write_index(call, "kv_len", {kv_lengths[0], kv_lengths[1], kv_lengths[2]});
  for (const char* name : {"k", "v"})
    for (int64_t token = 0; token < kv_tokens; ++token) {
      const bool used = (token >= second && token < second + kv_lengths[1]) ||
                        (token >= first && token < first + kv_lengths[0]) ||
                        (token >= third && token < third + kv_lengths[2]);
      const Tensor& tensor = call.tensor(name);
      for (int64_t d = 0; !used && d < tensor.sizes[2]; ++d)
        kernels::write_element(tensor, token * tensor.strides[0] + d, std::numeric_limits<double>::quiet_NaN());
    }
  const auto rows = call.sample_rows(1000);
  const auto want = call.want(rows);
  const auto device = make_cpu_device(2);
  for (const auto& config : diverse_configs(op, workload, bucket_length, target, 4)) {
    INFO(workload.json() << " " << target.name << " " << config.json());
    KernelRunner runner(op, workload, config, target, backend, *device);
    for (int run = 0; run < 2; ++run) {
      call.poison_outputs();
      runner.run(call.problem());
      REQUIRE(call.check(rows, want) == "");
    }
  }
}

}  // namespace

TEST_CASE("attention: interpreted, every phase and mask", "[kernels]") {
  for (const DType dtype : kDTypes) {
    check_interpreted(attention(3, 1, 8, "prefill"), dtype, {1, 5, 33});
    check_interpreted(attention(2, 2, 16, "prefill", {{"causal", int64_t{0}}, {"soft_cap", 5.0}}), dtype, {9});
    check_interpreted(attention(2, 1, 8, "extend", {{"window", int64_t{6}}, {"scale", 0.2}}), dtype, {9});
    check_interpreted(attention(6, 2, 8, "decode"), dtype, {1, 40, 130});
    check_interpreted(attention(2, 1, 8, "decode", {{"window", int64_t{33}}}), dtype, {130});
  }
}

TEST_CASE("attention: interpreted, a batch of different lengths with gaps", "[kernels]") {
  const Target target = cpu_target("avx512");
  check_batch(attention(2, 1, 8, "prefill"), {5, 1, 18}, {5, 1, 18}, 18, target, Backend::interpreter);
  check_batch(attention(2, 1, 8, "extend"), {5, 1, 3}, {50, 1, 18}, 5, target, Backend::interpreter);
  check_batch(attention(2, 1, 8, "decode"), {1, 1, 1}, {70, 1, 18}, 70, target, Backend::interpreter);
}

TEST_CASE("attention: every dtype and length at nine heads with three key heads", "[kernels][sweep]") {
  for (const DType dtype : kDTypes) {
    check_compiled(attention(9, 3, 64, "prefill"), dtype);
    check_compiled(attention(9, 3, 64, "decode"), dtype);
    check_compiled(attention(9, 3, 64, "extend"), dtype, {1, 7, 64, 127});
  }
}

TEST_CASE("attention: head dimensions, windows, soft caps, no mask", "[kernels][sweep]") {
  const std::vector<int64_t> lengths = {1, 17, 65, 127};
  for (const DType dtype : kDTypes) {
    check_compiled(attention(4, 2, 96, "prefill", {{"window", int64_t{40}}}), dtype, lengths);
    check_compiled(attention(2, 1, 128, "prefill", {{"soft_cap", 10.0}, {"scale", 0.1}}), dtype, lengths);
    check_compiled(attention(2, 1, 256, "prefill", {{"causal", int64_t{0}}}), dtype, lengths);
    check_compiled(attention(4, 1, 96, "extend", {{"window", int64_t{40}}}), dtype, lengths);
    check_compiled(attention(8, 1, 128, "decode", {{"window", int64_t{100}}, {"soft_cap", 10.0}}), dtype, {1, 64, 257});
  }
}

TEST_CASE("attention: a batch of different lengths with gaps", "[kernels]") {
  for (const Target& target : executable_targets()) {
    check_batch(attention(9, 3, 64, "prefill"), {5, 1, 130}, {5, 1, 130}, 130, target, Backend::compiled);
    check_batch(attention(9, 3, 64, "extend"), {70, 1, 3}, {200, 1, 18}, 70, target, Backend::compiled);
    check_batch(attention(9, 3, 64, "decode"), {1, 1, 1}, {300, 1, 18}, 300, target, Backend::compiled);
  }
}

}  // namespace seqtile::testing

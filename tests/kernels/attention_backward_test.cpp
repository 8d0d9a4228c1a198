// tests/kernels/attention_backward_test.cpp -- attention's gradients against a reference that is checked by slopes.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <limits>
#include <memory>

#include "jit/base/tensor_runs.h"
#include "jit/ir/row_alignment.h"
#include "seqtile/kernel.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/kernels/kernel_table.h"

namespace seqtile::testing {
namespace {

KernelCase backward(int64_t heads, int64_t kv_heads, int64_t head_dim, bool causal = true) {
  return {"attention_backward",
          {{"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"causal", int64_t{causal}}}};
}

void write_index(const GuardedCall& call, const std::string& name, std::initializer_list<int64_t> values) {
  int64_t i = 0;
  for (const int64_t value : values) write_element(call.tensor(name), i++, static_cast<double>(value));
}

constexpr int64_t kBatchLength = 40;

/// Three sequences of different lengths, with keys in another order than queries, and more or fewer keys than queries.
std::unique_ptr<GuardedCall> batch_call(const autotune::Workload& workload, int64_t alignment) {
  constexpr int64_t kTokens = 5 + 1 + 33, kKvTokens = 40 + 1 + 20;
  auto call = std::make_unique<GuardedCall>(library_op("attention_backward"), workload,
                                            std::vector<int64_t>{kBatchLength, kTokens, kKvTokens, 3}, 5, alignment);
  write_index(*call, "q_start", {0, 5, 6, kTokens});
  write_index(*call, "kv_start", {1, 0, 41});
  write_index(*call, "kv_len", {40, 1, 20});
  // The forward pass leaves -inf for the last sequence's first queries, which see no key.
  if (workload.fields.get_int("causal")) {
    const Tensor& lse = call->tensor("lse");
    for (int64_t token = 6; token < 6 + 33 - 20; ++token)
      for (int64_t head = 0; head < lse.sizes[1]; ++head)
        write_element(lse, token * lse.strides[0] + head, -std::numeric_limits<double>::infinity());
  }
  return call;
}

void check_batch(const KernelCase& test_case, const Target& target, Backend backend) {
  const autotune::OpDef& op = library_op("attention_backward");
  const auto workload = normalized(test_case, DType::f32);
  const auto call = batch_call(workload, 1);
  const auto rows = call->sample_rows(1000);
  const auto want = call->want(rows);
  const auto device = make_cpu_device(2);
  for (const auto& config : diverse_configs(op, workload, kBatchLength, target, 4)) {
    INFO(workload.json() << " " << target.name << " " << config.json());
    KernelRunner runner(op, workload, config, target, backend, *device);
    call->poison_outputs();
    runner.run(call->problem());
    REQUIRE(call->check(rows, want) == "");
  }
}

/// The sum of out * dout over one call of the forward pass's reference.
double forward_sum(const GuardedCall& forward, const Tensor& dout) {
  const auto rows = forward.sample_rows(1000);
  const std::vector<double> out = forward.want(rows)[0];
  double sum = 0;
  size_t e = 0;
  for (const int64_t row : rows)
    for (const double gradient : read_row(dout, row)) sum += out[e++] * gradient;
  return sum;
}

}  // namespace

TEST_CASE("attention_backward: the reference's gradients are the forward pass's slopes", "[kernels]") {
  const autotune::OpDef &forward_op = library_op("attention_forward"), &op = library_op("attention_backward");
  for (const bool causal : {true, false}) {
    const KernelCase test_case = backward(4, 2, 8, causal);
    GuardedCall forward(forward_op, normalized({"attention_forward", test_case.fields}, DType::f32), {6, 6, 6, 1}, 3);
    GuardedCall call(op, normalized(test_case, DType::f32), {6, 6, 6, 1}, 4);
    const auto copy = [](const Tensor& to, const std::vector<double>& values) {
      size_t e = 0;
      for_each_run(to, [&](int64_t offset, int64_t count) {
        for (int64_t i = 0; i < count; ++i) write_element(to, offset + i, values[e++]);
      });
    };
    const auto all = forward.sample_rows(1000);
    const auto results = forward.want(all);
    copy(call.tensor("out"), results[0]);
    copy(call.tensor("lse"), results[1]);
    for (const char* name : {"q", "k", "v"}) {
      std::vector<double> values;
      for (const int64_t row : all)
        for (const double value : read_row(forward.tensor(name), row)) values.push_back(value);
      copy(call.tensor(name), values);
    }
    const auto gradients = call.want(all);
    size_t output = 0;
    for (const char* name : {"q", "k", "v"}) {
      const Tensor& tensor = forward.tensor(name);
      const std::vector<double>& gradient = gradients[output++];
      for (const int64_t row : {0, 3, 5})
        for (int64_t d = 0; d < tensor.sizes[2]; d += 3) {
          constexpr double kStep = 0x1p-8;
          const int64_t at = row * tensor.strides[0] + tensor.strides[1] + d;  // head 1
          const double middle = read_element(tensor, at);
          write_element(tensor, at, middle + kStep);
          const double up = forward_sum(forward, call.tensor("dout"));
          write_element(tensor, at, middle - kStep);
          const double down = forward_sum(forward, call.tensor("dout"));
          write_element(tensor, at, middle);
          INFO(name << " row " << row << " element " << d);
          const auto place = static_cast<size_t>(row * tensor.sizes[1] * tensor.sizes[2] + tensor.sizes[2] + d);
          CHECK(gradient[place] == Approx((up - down) / (2 * kStep)).margin(1e-4));
        }
    }
  }
}

TEST_CASE("attention_backward: interpreted, causal or not, with groups", "[kernels]") {
  for (const DType dtype : kKernelDTypes) {
    check_interpreted(backward(4, 2, 8), dtype, {1, 5, 33});
    check_interpreted(backward(2, 2, 16, false), dtype, {1, 19});
  }
}

TEST_CASE("attention_backward: a batch of different lengths, also with fewer keys than queries", "[kernels]") {
  check_batch(backward(2, 1, 8), cpu_target("avx512"), Backend::interpreter);
  for (const Target& target : executable_targets())
    for (const bool causal : {true, false}) check_batch(backward(4, 2, 32, causal), target, Backend::compiled);
}

TEST_CASE("attention_backward: a batch of different lengths on simulated GPUs", "[kernels][sim]") {
  on_simulated_gpus([](Device& device) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const auto workload = normalized(backward(4, 2, 32, dtype == DType::bf16), dtype, 1);
      const auto call = batch_call(workload, kGpuAlignment);
      check_call_on(device, *call, workload, kBatchLength);
    }
  });
}

TEST_CASE("attention_backward: every dtype, head dimension and length, no mask", "[kernels][sweep]") {
  check_on_cpus("attention_backward");
}

TEST_CASE("attention_backward: configurations of GPUs compile", "[kernels][nvptx]") {
  size_t next = 0;  // the test compiles a third of all; with an assembler the slow tests compile all
  const autotune::OpDef& op = library_op("attention_backward");
  for (const char* name : {"sm_80", "sm_90a"})
    for (const DType dtype : kKernelDTypes)
      for (const int64_t head_dim : {64, 128}) {
        const Target target = gpu_target(name);
        const auto workload = normalized(backward(4, 2, head_dim), dtype, 1);
        for (const auto& config : op.config_space(workload, 512, target).enumerate()) {
          if (next++ % 3 != 0) continue;
          INFO(name << " " << workload.json() << " " << config.json());
          CHECK_NOTHROW(compiled(*autotune::build_kernel(op, workload, config, target), target));
        }
      }
}

}  // namespace seqtile::testing

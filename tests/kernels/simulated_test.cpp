// tests/kernels/simulated_test.cpp -- every kernel compiled for GPUs, against the reference: simulated with all checks,
// and on the GPU where there is one.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <functional>

#include "tests/support/kernel_cases.h"

namespace seqtile::testing {
namespace {

using Fields = autotune::Fields;
/// Checks one case in every dtype at some lengths.
using Check = std::function<void(const KernelCase&, const std::vector<int64_t>&)>;

const DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};
const std::vector<int64_t> kFewLengths = {1, 7, 65};

void simulated(const KernelCase& test_case, const std::vector<int64_t>& lengths) {
  for (const DType dtype : kDTypes) check_simulated(test_case, dtype, lengths);
}

KernelCase attention(int64_t heads, int64_t kv_heads, int64_t head_dim, const char* phase) {
  return {"attention_forward",
          {{"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"phase", std::string(phase)}}};
}

void check_rms_norm(const Check& check) {
  check({"rms_norm", {{"n", int64_t{576}}}}, kTestLengths);
  check({"rms_norm", {{"n", int64_t{896}}, {"residual", int64_t{1}}}}, kTestLengths);
  check({"rms_norm", {{"n", int64_t{2304}}, {"residual", int64_t{1}}, {"weight_offset", 1.0}}}, kFewLengths);
}

void check_rms_norm_backward(const Check& check) {
  check({"rms_norm_backward", {{"n", int64_t{576}}}}, {1, 7, 65, 300});
  check({"rms_norm_backward", {{"n", int64_t{897}}, {"residual", int64_t{1}}, {"weight_offset", 1.0}}}, {1, 65});
}

void check_layer_norm(const Check& check) {
  check({"layer_norm", {{"n", int64_t{576}}}}, kTestLengths);
  check({"layer_norm", {{"n", int64_t{897}}, {"bias", int64_t{0}}}}, kFewLengths);
}

void check_softmax(const Check& check) {
  check({"softmax", {{"n", int64_t{576}}}}, kTestLengths);
  check({"softmax", {{"n", int64_t{2305}}}}, kFewLengths);
}

void check_silu_and_mul(const Check& check) {
  check({"silu_and_mul", {{"n", int64_t{896}}}}, kTestLengths);
  check({"silu_and_mul", {{"n", int64_t{1537}}}}, kFewLengths);
}

void check_silu_and_mul_backward(const Check& check) {
  check({"silu_and_mul_backward", {{"n", int64_t{576}}}}, kFewLengths);
  check({"silu_and_mul_backward", {{"n", int64_t{1537}}}}, {1, 65});
  check({"silu_and_mul_backward", {{"n", int64_t{8960}}}}, {3});
}

void check_embedding(const Check& check) {
  check({"embedding", {{"vocab", int64_t{499}}, {"n", int64_t{576}}}}, kTestLengths);
  check({"embedding", {{"vocab", int64_t{499}}, {"n", int64_t{901}}, {"scale", 3.0}}}, kFewLengths);
}

void check_rope(const Check& check) {
  Fields half{{"heads", int64_t{9}}, {"kv_heads", int64_t{3}}, {"head_dim", int64_t{64}}};
  Fields interleaved = half, scaled = half, inverse = half;
  inverse.set("inverse", int64_t{1});
  interleaved.set("style", std::string("interleaved"));
  scaled.set("scaling", std::string("llama3"));
  scaled.set("original_max_position", int64_t{256});
  check({"rope", half}, kTestLengths);
  check({"rope", interleaved}, kFewLengths);
  check({"rope", scaled}, kFewLengths);
  check({"rope", inverse}, {7});
  check({"rope",
         {{"heads", int64_t{4}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{96}}, {"rotary_dim", int64_t{72}}}},
        kFewLengths);
}

void check_linear(const Check& check) {
  check({"linear", {{"n", int64_t{576}}, {"k", int64_t{576}}}}, kTestLengths);
  check({"linear", {{"n", int64_t{192}}, {"k", int64_t{2304}}}}, {1, 64});
}

void check_fused_linear(const Check& check) {
  const std::vector<int64_t> lengths = {1, 7, 65, 257};
  check({"linear",
         {{"n", int64_t{200}},
          {"k", int64_t{896}},
          {"bias", int64_t{1}},
          {"residual", int64_t{1}},
          {"activation", std::string("silu")}}},
        lengths);
  check(
      {"linear", {{"n", int64_t{300}}, {"k", int64_t{96}}, {"gated", int64_t{1}}, {"activation", std::string("gelu")}}},
      lengths);
  check({"linear",
         {{"n", int64_t{150}}, {"n2", int64_t{13}}, {"n3", int64_t{100}}, {"k", int64_t{37}}, {"bias", int64_t{1}}}},
        lengths);
}

void check_linear_wgrad(const Check& check) {
  const auto wgrad = [](int64_t n, int64_t k, bool accumulate, const char* gradient) {
    return KernelCase{"linear_wgrad",
                      {{"n", n}, {"k", k}, {"accumulate", int64_t{accumulate}}, {"gradient", std::string(gradient)}}};
  };
  check(wgrad(72, 96, false, "operand"), {1, 17, 130});
  check(wgrad(37, 51, true, "f32"), {1, 65});
  check(wgrad(256, 136, true, "operand"), {33, 200});
}

void check_attention_backward(const Check& check) {
  const auto backward = [](int64_t heads, int64_t kv_heads, int64_t head_dim, bool causal) {
    return KernelCase{"attention_backward",
                      {{"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"causal", int64_t{causal}}}};
  };
  check(backward(4, 2, 64, true), {1, 17, 65});
  check(backward(2, 1, 32, false), {1, 33});
  check(backward(2, 1, 128, true), {7, 70});
}

void check_prefill(const Check& check) { check(attention(9, 3, 64, "prefill"), kTestLengths); }
void check_extend(const Check& check) { check(attention(9, 3, 64, "extend"), {1, 7, 64, 127}); }
void check_decode(const Check& check) { check(attention(9, 3, 64, "decode"), kTestLengths); }

void check_attention_variants(const Check& check) {
  for (const int64_t head_dim : {96, 128, 256}) {
    check(attention(2, 1, head_dim, "prefill"), kFewLengths);
    check(attention(2, 1, head_dim, "decode"), kFewLengths);
  }
  KernelCase whole = attention(2, 2, 64, "prefill"), window = attention(2, 1, 64, "prefill");
  whole.fields.set("causal", int64_t{0});
  whole.fields.set("soft_cap", 5.0);
  window.fields.set("window", int64_t{33});
  check(whole, kFewLengths);
  check(window, {1, 65, 127});
}

}  // namespace

TEST_CASE("simulated: rms_norm, with and without residual", "[kernels][sim][sweep]") { check_rms_norm(simulated); }
TEST_CASE("simulated: rms_norm_backward", "[kernels][sim][sweep]") { check_rms_norm_backward(simulated); }
TEST_CASE("simulated: silu_and_mul_backward", "[kernels][sim][sweep]") { check_silu_and_mul_backward(simulated); }
TEST_CASE("simulated: layer_norm, with and without bias", "[kernels][sim][sweep]") { check_layer_norm(simulated); }
TEST_CASE("simulated: softmax", "[kernels][sim][sweep]") { check_softmax(simulated); }
TEST_CASE("simulated: silu_and_mul", "[kernels][sim][sweep]") { check_silu_and_mul(simulated); }
TEST_CASE("simulated: embedding", "[kernels][sim][sweep]") { check_embedding(simulated); }
TEST_CASE("simulated: rope, half and interleaved, partial and scaled", "[kernels][sim][slow]") {
  check_rope(simulated);
}
TEST_CASE("simulated: linear at the models' awkward dimensions", "[kernels][sim][slow]") { check_linear(simulated); }
TEST_CASE("simulated: linear with everything that is fused into it", "[kernels][sim][sweep]") {
  check_fused_linear(simulated);
}
TEST_CASE("simulated: linear_wgrad", "[kernels][sim][sweep]") { check_linear_wgrad(simulated); }
TEST_CASE("simulated: attention_backward", "[kernels][sim][sweep]") { check_attention_backward(simulated); }
TEST_CASE("simulated: attention prefill", "[kernels][sim][slow]") { check_prefill(simulated); }
TEST_CASE("simulated: attention extend", "[kernels][sim][sweep]") { check_extend(simulated); }
TEST_CASE("simulated: attention decode", "[kernels][sim][sweep]") { check_decode(simulated); }
TEST_CASE("simulated: attention, head dimensions, windows, soft caps, no mask", "[kernels][sim][sweep]") {
  check_attention_variants(simulated);
}

TEST_CASE("gpu: every kernel agrees with the reference", "[kernels][gpu]") {
  const auto device = open_gpu();
  if (!device) return;
  const Check on_gpu = [&](const KernelCase& test_case, const std::vector<int64_t>& lengths) {
    for (const DType dtype : kDTypes) check_on(*device, test_case, dtype, lengths);
  };
  for (const auto group :
       {check_rms_norm, check_layer_norm, check_softmax, check_silu_and_mul, check_embedding, check_rope, check_linear,
        check_fused_linear, check_linear_wgrad, check_attention_backward, check_rms_norm_backward,
        check_silu_and_mul_backward, check_prefill, check_extend, check_decode, check_attention_variants})
    group(on_gpu);
}

}  // namespace seqtile::testing

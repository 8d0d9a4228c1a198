// tests/kernels/simulated_test.cpp -- every kernel compiled to PTX, and the text executed with all checks.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "tests/support/kernel_cases.h"

namespace seqtile::testing {
namespace {

using Fields = autotune::Fields;

const DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};
const std::vector<int64_t> kFewLengths = {1, 7, 65};

void check_all(const KernelCase& test_case, const std::vector<int64_t>& lengths = kTestLengths) {
  for (const DType dtype : kDTypes) check_simulated(test_case, dtype, lengths);
}

KernelCase attention(int64_t heads, int64_t kv_heads, int64_t head_dim, const char* phase) {
  return {"attention_forward",
          {{"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"phase", std::string(phase)}}};
}

}  // namespace

TEST_CASE("simulated: rms_norm, with and without residual", "[kernels][sim]") {
  check_all({"rms_norm", {{"n", int64_t{576}}}});
  check_all({"rms_norm", {{"n", int64_t{896}}, {"residual", int64_t{1}}}});
  check_all({"rms_norm", {{"n", int64_t{2304}}, {"residual", int64_t{1}}, {"weight_offset", 1.0}}}, kFewLengths);
}

TEST_CASE("simulated: layer_norm, with and without bias", "[kernels][sim]") {
  check_all({"layer_norm", {{"n", int64_t{576}}}});
  check_all({"layer_norm", {{"n", int64_t{897}}, {"bias", int64_t{0}}}}, kFewLengths);
}

TEST_CASE("simulated: softmax", "[kernels][sim]") {
  check_all({"softmax", {{"n", int64_t{576}}}});
  check_all({"softmax", {{"n", int64_t{2305}}}}, kFewLengths);
}

TEST_CASE("simulated: silu_and_mul", "[kernels][sim]") {
  check_all({"silu_and_mul", {{"n", int64_t{896}}}});
  check_all({"silu_and_mul", {{"n", int64_t{1537}}}}, kFewLengths);
}

TEST_CASE("simulated: embedding", "[kernels][sim]") {
  check_all({"embedding", {{"vocab", int64_t{499}}, {"n", int64_t{576}}}});
  check_all({"embedding", {{"vocab", int64_t{499}}, {"n", int64_t{901}}, {"scale", 3.0}}}, kFewLengths);
}

TEST_CASE("simulated: rope, half and interleaved, partial and scaled", "[kernels][sim][slow]") {
  Fields half{{"heads", int64_t{9}}, {"kv_heads", int64_t{3}}, {"head_dim", int64_t{64}}};
  Fields interleaved = half, scaled = half;
  interleaved.set("style", std::string("interleaved"));
  scaled.set("scaling", std::string("llama3"));
  scaled.set("original_max_position", int64_t{256});
  check_all({"rope", half});
  check_all({"rope", interleaved}, kFewLengths);
  check_all({"rope", scaled}, kFewLengths);
  check_all({"rope",
             {{"heads", int64_t{4}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{96}}, {"rotary_dim", int64_t{72}}}},
            kFewLengths);
}

TEST_CASE("simulated: linear at the models' awkward dimensions", "[kernels][sim][slow]") {
  check_all({"linear", {{"n", int64_t{576}}, {"k", int64_t{576}}}});
  check_all({"linear", {{"n", int64_t{192}}, {"k", int64_t{2304}}}}, {1, 64});
}

TEST_CASE("simulated: linear with everything that is fused into it", "[kernels][sim]") {
  const std::vector<int64_t> lengths = {1, 7, 65, 257};
  check_all({"linear",
             {{"n", int64_t{200}},
              {"k", int64_t{896}},
              {"bias", int64_t{1}},
              {"residual", int64_t{1}},
              {"activation", std::string("silu")}}},
            lengths);
  check_all(
      {"linear", {{"n", int64_t{300}}, {"k", int64_t{96}}, {"gated", int64_t{1}}, {"activation", std::string("gelu")}}},
      lengths);
  check_all(
      {"linear",
       {{"n", int64_t{150}}, {"n2", int64_t{13}}, {"n3", int64_t{100}}, {"k", int64_t{37}}, {"bias", int64_t{1}}}},
      lengths);
}

TEST_CASE("simulated: attention prefill", "[kernels][sim][slow]") { check_all(attention(9, 3, 64, "prefill")); }

TEST_CASE("simulated: attention extend", "[kernels][sim]") {
  check_all(attention(9, 3, 64, "extend"), {1, 7, 64, 127});
}

TEST_CASE("simulated: attention decode", "[kernels][sim]") { check_all(attention(9, 3, 64, "decode")); }

TEST_CASE("simulated: attention, head dimensions, windows, soft caps, no mask", "[kernels][sim]") {
  for (const int64_t head_dim : {96, 128, 256}) {
    check_all(attention(2, 1, head_dim, "prefill"), kFewLengths);
    check_all(attention(2, 1, head_dim, "decode"), kFewLengths);
  }
  KernelCase whole = attention(2, 2, 64, "prefill"), window = attention(2, 1, 64, "prefill");
  whole.fields.set("causal", int64_t{0});
  whole.fields.set("soft_cap", 5.0);
  window.fields.set("window", int64_t{33});
  check_all(whole, kFewLengths);
  check_all(window, {1, 65, 127});
}

}  // namespace seqtile::testing

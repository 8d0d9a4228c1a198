// tests/kernels/row_kernels_test.cpp -- norms, softmax, activations, rope and embedding against their references.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "tests/support/kernel_cases.h"

namespace seqtile::testing {
namespace {

const DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

/// Interpreted at a narrow shape, compiled at the models' awkward ones.
void check_rows(const KernelCase& narrow, const std::vector<KernelCase>& wide) {
  for (const DType dtype : kDTypes) {
    check_interpreted(narrow, dtype, {1, 3, 17});
    for (const KernelCase& test_case : wide) check_compiled(test_case, dtype);
  }
}

}  // namespace

TEST_CASE("rms_norm: every dtype and length, with and without residual", "[kernels][sweep]") {
  check_rows({"rms_norm", {{"n", int64_t{37}}, {"residual", int64_t{1}}, {"weight_offset", 1.0}}},
             {{"rms_norm", {{"n", int64_t{576}}}},
              {"rms_norm", {{"n", int64_t{896}}, {"residual", int64_t{1}}}},
              {"rms_norm", {{"n", int64_t{2304}}, {"residual", int64_t{1}}, {"weight_offset", 1.0}, {"eps", 1e-6}}}});
}

TEST_CASE("rms_norm_backward: every dtype and length, with and without residual", "[kernels][sweep]") {
  check_rows(
      {"rms_norm_backward", {{"n", int64_t{37}}, {"residual", int64_t{1}}, {"weight_offset", 1.0}}},
      {{"rms_norm_backward", {{"n", int64_t{576}}}},
       {"rms_norm_backward", {{"n", int64_t{897}}, {"residual", int64_t{1}}, {"weight_offset", 1.0}, {"eps", 1e-6}}}});
}

TEST_CASE("layer_norm: every dtype and length, with and without bias", "[kernels][sweep]") {
  check_rows({"layer_norm", {{"n", int64_t{37}}}},
             {{"layer_norm", {{"n", int64_t{576}}}}, {"layer_norm", {{"n", int64_t{897}}, {"bias", int64_t{0}}}}});
}

TEST_CASE("softmax: every dtype and length", "[kernels][sweep]") {
  check_rows({"softmax", {{"n", int64_t{37}}}},
             {{"softmax", {{"n", int64_t{576}}}}, {"softmax", {{"n", int64_t{2305}}}}});
}

TEST_CASE("silu_and_mul: every dtype and length", "[kernels][sweep]") {
  check_rows({"silu_and_mul", {{"n", int64_t{37}}}},
             {{"silu_and_mul", {{"n", int64_t{896}}}}, {"silu_and_mul", {{"n", int64_t{1537}}}}});
}

TEST_CASE("silu_and_mul_backward: every dtype and length", "[kernels][sweep]") {
  check_rows({"silu_and_mul_backward", {{"n", int64_t{37}}}},
             {{"silu_and_mul_backward", {{"n", int64_t{896}}}}, {"silu_and_mul_backward", {{"n", int64_t{1537}}}}});
  check_compiled({"silu_and_mul_backward", {{"n", int64_t{8960}}}}, DType::bf16, {1, 17});  // rows in parts
}

TEST_CASE("embedding: every dtype and length, scaled or not", "[kernels][sweep]") {
  check_rows({"embedding", {{"vocab", int64_t{11}}, {"n", int64_t{37}}, {"scale", 3.0}}},
             {{"embedding", {{"vocab", int64_t{499}}, {"n", int64_t{576}}}},
              {"embedding", {{"vocab", int64_t{499}}, {"n", int64_t{901}}, {"scale", 3.0}}}});
}

TEST_CASE("rope: half and interleaved, whole and partial, plain and scaled", "[kernels][sweep]") {
  const autotune::Fields nine_heads{{"heads", int64_t{9}}, {"kv_heads", int64_t{3}}, {"head_dim", int64_t{64}}};
  autotune::Fields interleaved = nine_heads, scaled = nine_heads, inverse = nine_heads;
  inverse.set("inverse", int64_t{1});
  interleaved.set("style", std::string("interleaved"));
  scaled.set("scaling", std::string("llama3"));
  scaled.set("theta", 500000.0);
  scaled.set("original_max_position", int64_t{256});
  const autotune::Fields partial{
      {"heads", int64_t{4}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{96}}, {"rotary_dim", int64_t{72}}};
  check_rows({"rope",
              {{"heads", int64_t{2}},
               {"kv_heads", int64_t{1}},
               {"head_dim", int64_t{10}},
               {"rotary_dim", int64_t{6}},
               {"scaling", std::string("llama3")}}},
             {{"rope", nine_heads}, {"rope", interleaved}, {"rope", scaled}, {"rope", partial}, {"rope", inverse}});
}

}  // namespace seqtile::testing

// tests/kernels/row_kernels_test.cpp -- norms, softmax, activations, rope and embedding against their references.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "tests/support/kernels/kernel_table.h"

namespace seqtile::testing {
namespace {

/// Checks interpreted kernels at a narrow shape and compiled ones at the models' awkward shapes.
void check_rows(const KernelCase& narrow) {
  for (const DType dtype : kKernelDTypes) check_interpreted(narrow, dtype, {1, 3, 17});
  check_on_cpus(narrow.operation);
}

}  // namespace

TEST_CASE("rms_norm: every dtype and length, with and without residual", "[kernels][sweep]") {
  check_rows({"rms_norm", {{"n", 37}, {"residual", 1}, {"weight_offset", 1.0}, {"normed", "both"}}});
}

TEST_CASE("rms_norm_backward: every dtype and length, with and without residual", "[kernels][sweep]") {
  check_rows({"rms_norm_backward", {{"n", 37}, {"residual", 1}, {"weight_offset", 1.0}}});
}

TEST_CASE("layer_norm: every dtype and length, with and without bias", "[kernels][sweep]") {
  check_rows({"layer_norm", {{"n", 37}}});
}

TEST_CASE("softmax: every dtype and length", "[kernels][sweep]") { check_rows({"softmax", {{"n", 37}}}); }

TEST_CASE("silu_and_mul: every dtype and length", "[kernels][sweep]") { check_rows({"silu_and_mul", {{"n", 37}}}); }

TEST_CASE("silu_and_mul_backward: every dtype and length", "[kernels][sweep]") {
  check_rows({"silu_and_mul_backward", {{"n", 37}}});
}

TEST_CASE("embedding: every dtype and length, scaled or not", "[kernels][sweep]") {
  check_rows({"embedding", {{"vocab", 11}, {"n", 37}, {"scale", 3.0}}});
}

TEST_CASE("rope: half and interleaved, whole and partial, plain and normed", "[kernels][sweep]") {
  check_rows({"rope", {{"heads", 2}, {"kv_heads", 1}, {"head_dim", 10}, {"rotary_dim", 6}, {"norm", 1}}});
}

}  // namespace seqtile::testing

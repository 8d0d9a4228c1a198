// tests/kernels/linear_test.cpp -- linear in all its variants against its reference; weight packing.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstring>
#include <vector>

#include "jit/error.h"
#include "kernels/linear.h"
#include "kernels/tensor_values.h"
#include "tests/support/kernel_cases.h"

namespace seqtile::testing {
namespace {

const DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};
using Text = std::string;

KernelCase linear(int64_t n, int64_t k,
                  std::initializer_list<std::pair<const std::string, autotune::FieldValue>> more = {}) {
  KernelCase result{"linear", {{"n", n}, {"k", k}}};
  for (const auto& [name, value] : more) result.fields.set(name, value);
  return result;
}

}  // namespace

TEST_CASE("linear: interpreted, every variant", "[kernels]") {
  for (const DType dtype : kDTypes) {
    check_interpreted(linear(21, 37), dtype, {1, 5, 18});
    check_interpreted(linear(21, 37, {{"bias", int64_t{1}}, {"activation", Text("silu")}, {"residual", int64_t{1}}}),
                      dtype, {5});
    check_interpreted(linear(21, 37, {{"gated", int64_t{1}}, {"activation", Text("gelu")}, {"bias", int64_t{1}}}),
                      dtype, {5});
    check_interpreted(linear(150, 37, {{"n2", int64_t{13}}, {"n3", int64_t{100}}, {"bias", int64_t{1}}}), dtype, {5});
    check_interpreted(linear(21, 37, {{"weight_layout", Text("packed")}, {"activation", Text("gelu_tanh")}}), dtype,
                      {5});
  }
}

TEST_CASE("linear: every dtype and length at the models' awkward dimensions", "[kernels][sweep]") {
  for (const DType dtype : kDTypes) {
    check_compiled(linear(576, 576), dtype);
    check_compiled(linear(192, 2304), dtype, {1, 7, 64, 257});
  }
}

TEST_CASE("linear: bias, activation and residual are fused", "[kernels]") {
  const auto fused = [](const char* activation) {
    return linear(200, 896, {{"bias", int64_t{1}}, {"activation", Text(activation)}, {"residual", int64_t{1}}});
  };
  for (const DType dtype : kDTypes) check_compiled(fused("silu"), dtype, {1, 7, 65, 257});
  for (const char* activation : {"gelu", "gelu_tanh"}) check_compiled(fused(activation), DType::f32, {3, 127});
}

TEST_CASE("linear: a gated pair and up to three weights in one launch", "[kernels][sweep]") {
  const std::vector<int64_t> lengths = {1, 16, 63, 257};
  for (const DType dtype : kDTypes) {
    check_compiled(linear(300, 576, {{"gated", int64_t{1}}, {"activation", Text("silu")}}), dtype, lengths);
    check_compiled(linear(576, 576, {{"n2", int64_t{192}}, {"n3", int64_t{200}}, {"bias", int64_t{1}}}), dtype,
                   lengths);
    check_compiled(linear(72, 96, {{"n2", int64_t{24}}}), dtype, lengths);
  }
}

TEST_CASE("linear: transposed weights, as gradients of inputs need them", "[kernels]") {
  for (const DType dtype : kDTypes) {
    check_interpreted(linear(21, 37, {{"weight_layout", Text("transposed")}}), dtype, {1, 5, 17});
    check_compiled(linear(200, 576, {{"weight_layout", Text("transposed")}, {"residual", int64_t{1}}}), dtype,
                   {1, 17, 64, 257});
  }
}

TEST_CASE("linear: transposed weights on simulated GPUs", "[kernels][sim]") {
  for (const DType dtype : kDTypes)
    check_simulated(linear(72, 96, {{"weight_layout", Text("transposed")}}), dtype, {1, 17, 130});
}

TEST_CASE("linear: packed weights give the same product", "[kernels]") {
  for (const DType dtype : kDTypes)
    check_compiled(linear(200, 576, {{"weight_layout", Text("packed")}, {"panel", int64_t{16}}}), dtype,
                   {1, 7, 64, 257});
}

TEST_CASE("pack_linear_weight: panels of columns, the last one padded with zeros", "[kernels]") {
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};  // [5, 3]
  std::vector<float> packed(static_cast<size_t>(kernels::packed_linear_elements(5, 3, 4)), -1.0f);
  REQUIRE(packed.size() == 24);
  const Tensor from = make_tensor(const_cast<float*>(weight.data()), DType::f32, {5, 3});
  kernels::pack_linear_weight(from, make_tensor(packed.data(), DType::f32, {2, 3, 4}));
  CHECK(packed == std::vector<float>{1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12, 13, 0, 0, 0, 14, 0, 0, 0, 15, 0, 0, 0});
  CHECK_THROWS_AS(kernels::pack_linear_weight(from, make_tensor(packed.data(), DType::f32, {1, 3, 4})), Error);
  CHECK_THROWS_AS(kernels::pack_linear_weight(from, make_tensor(packed.data(), DType::bf16, {2, 3, 4})), Error);
}

TEST_CASE("linear: the default is in the space, dot for few rows and another for many", "[kernels]") {
  const auto& op = library_op("linear");
  for (const std::string& name : cpu_target_names()) {
    const Target target = cpu_target(name);
    for (const KernelCase& test_case : {linear(4096, 4096), linear(576, 576, {{"gated", int64_t{1}}}),
                                        linear(960, 576, {{"n2", int64_t{192}}, {"n3", int64_t{192}}})}) {
      const auto workload = normalized(test_case, DType::f32);
      for (const int64_t length : {1, 2, 5, 16, 37, 64, 128, 512, 4096}) {
        INFO(name << " " << workload.json() << " length " << length);
        const auto config = op.default_config(workload, length, target);
        const auto space = op.config_space(workload, length, target);
        CHECK(!space.refusal(config));
        CHECK(space.enumerate().size() <= 400);
        if (length <= 5) CHECK(config.get_string("form") == "dot");
        if (length >= 512) CHECK(config.get_string("form") != "dot");
      }
    }
  }
}

}  // namespace seqtile::testing

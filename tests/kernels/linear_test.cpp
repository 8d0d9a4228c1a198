// tests/kernels/linear_test.cpp -- linear in all its variants against its reference; weight packing.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

#include "kernels/linear/linear_config.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/linear.h"
#include "tests/support/kernels/kernel_table.h"

namespace seqtile::testing {
namespace {

using Text = std::string;

KernelCase linear(int64_t n, int64_t k,
                  std::initializer_list<std::pair<const std::string, autotune::FieldValue>> more = {}) {
  KernelCase result{"linear", {{"n", n}, {"k", k}}};
  for (const auto& [name, value] : more) result.fields.set(name, value);
  return result;
}

}  // namespace

TEST_CASE("linear: interpreted, every variant", "[kernels]") {
  for (const DType dtype : kKernelDTypes) {
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
  check_on_cpus("linear");
}

TEST_CASE("linear: bias, activation, residual, a gated pair and up to three weights in one launch",
          "[kernels][sweep]") {
  check_on_cpus("linear with all that is fused");
  for (const char* activation : {"gelu", "gelu_tanh"})
    check_compiled(linear(200, 896, {{"bias", int64_t{1}}, {"activation", Text(activation)}, {"residual", int64_t{1}}}),
                   DType::f32, {3, 127});
}

TEST_CASE("linear: a gated pair and three weights at the models' awkward dimensions", "[kernels][slow]") {
  check_on_cpus("linear, wide and fused");
}

TEST_CASE("linear: transposed weights, as gradients of inputs need them", "[kernels]") {
  for (const DType dtype : kKernelDTypes)
    check_interpreted(linear(21, 37, {{"weight_layout", Text("transposed")}}), dtype, {1, 5, 17});
  check_on_cpus("linear, transposed");
}

TEST_CASE("linear: tf32 on request, within what ten bits of mantissa allow", "[kernels][sim]") {
  check_simulated(linear(72, 96, {{"precision", Text("tf32")}}), DType::f32, {1, 17, 130});
  check_compiled(linear(72, 96, {{"precision", Text("tf32")}}), DType::f32, {17});
}

TEST_CASE("linear: packed weights give the same product", "[kernels]") {
  for (const DType dtype : kKernelDTypes)
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
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const auto workload = normalized(test_case, dtype);
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
}

TEST_CASE("linear: the busiest thread has the work that taking programs in turn gives it", "[kernels]") {
  const auto in_turn = [](int64_t column_blocks, int64_t length, int64_t block_m, int threads) {
    const int64_t row_blocks = (length + block_m - 1) / block_m;
    const double last = static_cast<double>(length - (row_blocks - 1) * block_m) / static_cast<double>(block_m);
    std::vector<double> ends(static_cast<size_t>(threads));
    for (int64_t i = 1; i <= column_blocks * row_blocks; ++i)
      *std::min_element(ends.begin(), ends.end()) += i % row_blocks == 0 ? last : 1;
    return *std::max_element(ends.begin(), ends.end());
  };
  for (const int threads : {1, 2, 3, 8, 64, 100})
    for (const int64_t column_blocks : {1, 2, 3, 5, 16, 33})
      for (const int64_t length : {1, 5, 48, 49, 100, 335, 1000, 2048}) {
        if (column_blocks * ((length + 47) / 48) > 16 * threads) continue;
        INFO(threads << " threads, " << column_blocks << " column blocks, length " << length);
        CHECK(kernels::linear_op::busiest_thread(column_blocks, length, 48, threads) ==
              in_turn(column_blocks, length, 48, threads));
      }
}

TEST_CASE("linear: form matrix is for bf16 in whole registers, on CPUs with AMX", "[kernels]") {
  const auto reason = [](const char* target, DType dtype, int64_t k, int64_t mr, int64_t nr) {
    const kernels::Linear op{.n = 192, .k = k, .dtype = dtype};
    return kernels::linear_op::refusal(op, {"matrix", 96, 96, mr, nr, 96}, 1, cpu_target(target)).value_or("");
  };
  CHECK(reason("amx", DType::bf16, 96, 32, 32).empty());
  CHECK_THAT(reason("avx512bf16", DType::bf16, 96, 32, 32), Catch::Contains("on CPUs with AMX"));
  CHECK_THAT(reason("amx", DType::f32, 96, 32, 32), Catch::Contains("for bf16"));
  CHECK_THAT(reason("amx", DType::bf16, 80, 32, 32), Catch::Contains("k a multiple of 32"));
  CHECK_THAT(reason("amx", DType::bf16, 96, 24, 32), Catch::Contains("mr = 24, nr = 32: form = matrix takes"));
  CHECK_THAT(reason("amx", DType::bf16, 96, 32, 24), Catch::Contains("multiples of 16"));
  CHECK_THAT(reason("amx", DType::bf16, 96, 32, 48), Catch::Contains("needs 11 registers, 8 exist"));
}

}  // namespace seqtile::testing

// tests/kernels/workload_test.cpp -- static fields: defaults, strict errors, operation structs, configuration spaces.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "seqtile/error.h"
#include "seqtile/op.h"
#include "seqtile/operations.h"
#include "seqtile/ops/attention.h"
#include "seqtile/ops/linear.h"
#include "seqtile/ops/rows.h"
#include "tests/support/kernels/kernel_cases.h"

namespace seqtile::testing {
namespace {

using autotune::Fields;
using autotune::Workload;
using Catch::Matchers::Contains;
using Text = std::string;

/// The message with which normalize() refuses the fields; empty if it accepts them.
std::string refusal(const std::string& operation, const Fields& fields, DType dtype = DType::f32, int threads = 1) {
  try {
    library_op(operation).normalize({operation, dtype, threads, fields});
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

const int64_t one = 1;

}  // namespace

TEST_CASE("workloads: a refusal names field, value, limit and next step", "[kernels]") {
  CHECK(refusal("linear", {{"n", int64_t{8}}}) ==
        "linear: field k is missing, give a number of 1..1048576, as in --set k=64");
  CHECK(refusal("linear", {{"n", int64_t{0}}, {"k", one}}) ==
        "linear: field n is 0, must be a whole number of 1..1048576");
  CHECK(refusal("linear", {{"n", 1.5}, {"k", one}}) == "linear: field n is 1.5, must be a whole number of 1..1048576");
  CHECK(refusal("linear", {{"n", one}, {"k", one}, {"activation", Text("relu")}}) ==
        "linear: field activation is relu, must be one of none, silu, gelu, gelu_tanh, "
        "relu_squared; did you mean relu_squared?");
  CHECK_THAT(refusal("linear", {{"n", one}, {"k", one}, {"m", one}}),
             Contains("no such field; it has activation, bias"));
  CHECK_THAT(refusal("linear", {{"n", one}, {"k", one}, {"n3", one}}), Contains("needs n2"));
  CHECK(refusal("fused_linear_and_reducescatter", {{"world_size", one}, {"n", int64_t{0}}, {"k", one}}) ==
        "fused_linear_and_reducescatter: field n is 0, must be a whole number of 1..1048576");
  CHECK_THAT(
      refusal("linear_and_allreduce", {{"world_size", one}, {"n", one}, {"k", one}, {"norms", one}}),
      Contains("linear_and_allreduce: field norms is 1, but the operation has no such field; it has activation") &&
          Contains("norm, panel") && Contains("transport") && Contains("world_size"));
  CHECK_THAT(refusal("linear_and_allreduce", {{"world_size", one}, {"n", one}, {"k", one}, {"n2", one}}),
             Contains("needs to be 0"));
  CHECK_THAT(
      refusal("fused_allgather_and_linear", {{"world_size", one}, {"n", one}, {"k", one}, {"transport", Text("f32")}}),
      Contains("no such field"));
  CHECK_THAT(refusal("linear", {{"n", one}, {"k", one}, {"n2", one}, {"gated", one}}), Contains("needs n2 = 0"));
  CHECK_THAT(refusal("linear", {{"n", one}, {"k", one}, {"n2", one}, {"residual", one}}), Contains("needs n2 = 0"));
  CHECK_THAT(refusal("linear", {{"n", one}, {"k", one}}, DType::i32),
             Contains("dtype i32 is not served; use f32, bf16 or f16"));
  CHECK_THAT(refusal("linear", {{"n", one}, {"k", one}}, DType::f32, 0), Contains("threads is 0"));
  CHECK_THAT(refusal("context_attention_forward",
                     {{"world_size", one}, {"heads", int64_t{4}}, {"kv_heads", int64_t{3}}, {"head_dim", int64_t{64}}}),
             Contains("context_attention_forward: field kv_heads is 3, must divide heads (4)"));
  CHECK_THAT(refusal("context_attention_backward",
                     {{"world_size", one}, {"heads", one}, {"kv_heads", one}, {"head_dim", int64_t{64}}, {"lse", one}}),
             Contains("it has causal, fabric, head_dim, heads, kv_heads, layout, scale, world_size"));
  CHECK_THAT(
      refusal("sequence_parallel_rms_norm_backward", {{"world_size", one}, {"n", one}, {"m", one}}),
      Contains("sequence_parallel_rms_norm_backward: field m") && Contains("layout") && Contains("weight_offset"));
  CHECK_THAT(refusal("rms_norm", {{"n", one}, {"eps", -1.0}}), Contains("field eps is -1, must be a number of 0..1"));
  CHECK_THAT(
      refusal("rope", {{"heads", one}, {"kv_heads", one}, {"head_dim", int64_t{64}}, {"rotary_dim", int64_t{33}}}),
      Contains("must be even"));
  CHECK_THAT(
      refusal("rope", {{"heads", one}, {"kv_heads", one}, {"head_dim", int64_t{64}}, {"norm", one}, {"inverse", one}}),
      Contains("needs inverse = 0"));
  CHECK_THAT(refusal("rope", {{"heads", one}, {"kv_heads", one}, {"head_dim", int64_t{64}}, {"eps", 1e-6}}),
             Contains("field eps is 1e-06, must be a number of 0..0"));
  CHECK_THAT(refusal("rms_norm", {{"n", one}, {"normed", Text("x")}}), Contains("needs residual = 1"));
  CHECK_THAT(refusal("linear", {{"n", one}, {"k", one}, {"scale", 0.0}}), Contains("field scale is 0, must not be 0"));
  CHECK_THAT(refusal("linear", {{"n", one}, {"k", one}, {"soft_cap", -1.0}}),
             Contains("must be a number of 0..1000000"));
  CHECK_THAT(refusal("linear", {{"n", one}, {"k", one}, {"soft_cup", 1.0}}),
             Contains("weight_layout, scale, soft_cap"));
  CHECK_THAT(refusal("attention_forward", {{"heads", int64_t{9}}, {"kv_heads", int64_t{2}}, {"head_dim", int64_t{64}}}),
             Contains("must divide heads (9)"));
  CHECK_THAT(refusal("attention_forward", {{"heads", one}, {"kv_heads", one}, {"head_dim", int64_t{63}}}),
             Contains("multiple of 8"));
  CHECK_THAT(
      refusal("attention_forward",
              {{"heads", one}, {"kv_heads", one}, {"head_dim", int64_t{64}}, {"window", one}, {"causal", int64_t{0}}}),
      Contains("needs causal = 1"));
  CHECK_THAT(refusal("linear", {{"n", one}, {"k", one}, {"precision", Text("bf16")}}),
             Contains("must be one of f32, tf32"));
  CHECK_THAT(refusal("attention_forward",
                     {{"heads", one}, {"kv_heads", one}, {"head_dim", int64_t{64}}, {"phase", Text("train")}}),
             Contains("must be one of prefill, extend, decode"));
}

TEST_CASE("workloads: normalizing fills in every default and is idempotent", "[kernels]") {
  const Workload given{"linear", DType::bf16, 2, {{"n", int64_t{64}}, {"k", int64_t{32}}}};
  const Workload full = library_op("linear").normalize(given);
  CHECK(full.json() ==
        R"({"activation":"none","bias":0,"dtype":"bf16","gated":0,"k":32,"n":64,"n2":0,"n3":0,"panel":0,)"
        R"("residual":0,"threads":2,"weight_layout":"plain"})");
  CHECK(library_op("linear").normalize(full) == full);
  Workload plain = given;
  plain.fields.set("scale", int64_t{1}), plain.fields.set("soft_cap", 0.0);
  CHECK(library_op("linear").normalize(plain) == full);
}

TEST_CASE("workloads: every operation struct gives a workload that its operation accepts", "[kernels]") {
  const std::vector<Workload> workloads = {
      kernels::Linear{.n = 64, .n2 = 32, .k = 16, .bias = true}.workload(),
      kernels::Linear{.n = 64, .k = 16, .weight_layout = kernels::WeightLayout::packed}.workload(),
      kernels::AttentionForward{.heads = 4, .kv_heads = 2, .head_dim = 64}.workload(),
      kernels::Linear{.n = 64, .k = 16, .scale = 0.5, .soft_cap = 30}.workload(),
      kernels::RmsNorm{.n = 64, .residual = true}.workload(),
      kernels::RmsNorm{.n = 64, .residual = true, .normed = kernels::RmsNorm::Normed::both}.workload(),
      kernels::LayerNorm{.n = 64}.workload(),
      kernels::Rope{.heads = 4, .kv_heads = 2, .head_dim = 64}.workload(),
      kernels::Rope{.heads = 4, .kv_heads = 2, .head_dim = 64, .norm = true}.workload(),
      kernels::ActAndMul{.n = 64}.workload(),
      kernels::LinearWgrad{.n = 64, .k = 16, .accumulate = true, .f32_gradient = true}.workload(),
      kernels::AttentionBackward{.heads = 4, .kv_heads = 2, .head_dim = 64}.workload(),
      kernels::RmsNormBackward{.n = 64, .residual = true}.workload(),
      kernels::ActAndMulBackward{.n = 64}.workload(),
      kernels::Softmax{.n = 64}.workload(),
      kernels::Embedding{.vocab = 100, .n = 64}.workload()};
  for (const Workload& workload : workloads) {
    const Workload full = library_op(workload.operation).normalize(workload);
    CHECK(library_op(workload.operation).normalize(full) == full);
  }
}

TEST_CASE("workloads: an enumerator without a name is refused", "[kernels]") {
  for (const int value : {99, 100000, -1}) {
    const kernels::Linear op{.n = 1, .k = 1, .activation = static_cast<kernels::Activation>(value)};
    CHECK_THROWS_WITH(op.workload(), Contains("linear: field activation is enumerator " + std::to_string(value)));
    const kernels::Linear other{.n = 1, .k = 1, .dtype = static_cast<DType>(value)};
    CHECK_THROWS_WITH(library_op("linear").normalize(other.workload()), Contains("dtype unknown is not served"));
  }
}

TEST_CASE("calls: absent tensors take no place, the length comes from the first tensor", "[kernels]") {
  float memory[64] = {};
  const auto tensor = [&](std::initializer_list<int64_t> sizes) { return make_tensor(memory, DType::f32, sizes); };
  const autotune::Schema schema = library_op("linear").schema(
      normalized({"linear", {{"n", int64_t{3}}, {"k", int64_t{4}}, {"bias", one}}}, DType::f32));
  kernels::Linear::Args args{.x = tensor({5, 4}), .w = tensor({3, 4}), .bias = tensor({3}), .y = tensor({5, 3})};
  const kernels::Call call = pack(kernels::Linear{.n = 3, .k = 4, .bias = true}, args);
  REQUIRE(call.tensors().size() == schema.args.size());
  CHECK(call.length == 5);
  CHECK(call.tensors()[2].rank == 1);
  CHECK(call.tensors()[3].sizes[1] == 3);
  CHECK(call.scalars().empty());
}

TEST_CASE("calls: a gradient that is added to is an input too", "[kernels]") {
  float memory[64] = {};
  const auto tensor = [&](std::initializer_list<int64_t> sizes) { return make_tensor(memory, DType::f32, sizes); };
  kernels::LinearWgrad::Args wgrad{.dy = tensor({5, 3}), .x = tensor({5, 4}), .dw = tensor({3, 4})};
  CHECK(pack(kernels::LinearWgrad{.n = 3, .k = 4}, wgrad).tensors().size() == 3);
  wgrad.before = wgrad.dw;
  const kernels::Call call = pack(kernels::LinearWgrad{.n = 3, .k = 4, .accumulate = true}, wgrad);
  CHECK((call.length == 5 && call.tensors().size() == 4 && call.tensors()[2].data == memory));
}

TEST_CASE("config spaces: the default is always a member, on every target", "[kernels]") {
  const std::vector<KernelCase> cases = {
      {"rms_norm", {{"n", int64_t{576}}}},
      {"layer_norm", {{"n", int64_t{100000}}}},
      {"softmax", {{"n", int64_t{49152}}}},
      {"act_and_mul", {{"n", int64_t{1536}}}},
      {"embedding", {{"vocab", int64_t{49152}}, {"n", int64_t{576}}}},
      {"rope", {{"heads", int64_t{9}}, {"kv_heads", int64_t{3}}, {"head_dim", int64_t{64}}}},
      {"attention_forward", {{"heads", int64_t{9}}, {"kv_heads", int64_t{3}}, {"head_dim", int64_t{64}}}},
      {"attention_forward",
       {{"heads", int64_t{8}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{256}}, {"phase", Text("decode")}}},
      {"linear", {{"n", int64_t{49152}}, {"k", int64_t{576}}}},
      {"linear_wgrad", {{"n", int64_t{14336}}, {"k", int64_t{4096}}, {"accumulate", int64_t{1}}}},
      {"linear_wgrad", {{"n", int64_t{1}}, {"k", int64_t{1}}}},
      {"rms_norm_backward", {{"n", int64_t{100000}}}},
      {"act_and_mul_backward", {{"n", int64_t{1536}}}},
      {"attention_backward", {{"heads", int64_t{9}}, {"kv_heads", int64_t{3}}, {"head_dim", int64_t{512}}}},
      {"linear", {{"n", int64_t{1}}, {"k", int64_t{1}}}},
      {"linear", {{"n", int64_t{100}}, {"k", int64_t{576}}, {"weight_layout", Text("packed")}, {"panel", int64_t{16}}}},
      {"sequence_parallel_trailing_matmul_backward", {{"n", int64_t{576}}, {"k", int64_t{1}}, {"world_size", one}}},
      {"sequence_parallel_leading_matmul_backward",
       {{"n", int64_t{1}}, {"n2", int64_t{1536}}, {"k", int64_t{576}}, {"world_size", int64_t{16}}}}};
  for (const std::string& name : cpu_target_names())
    for (const KernelCase& test_case : cases) {
      const auto& op = library_op(test_case.operation);
      const Workload workload = normalized(test_case, DType::f32);
      const Target target = cpu_target(name);
      for (const int64_t length : {int64_t{1}, int64_t{3}, int64_t{100}, int64_t{8192}, autotune::kMaxLength}) {
        INFO(name << " " << op.name << " " << workload.json() << " length " << length);
        const auto space = op.config_space(workload, length, target);
        CHECK(!space.refusal(op.default_config(workload, length, target)));
        for (const auto& config : space.enumerate()) CHECK(op.predict_us(workload, config, length, target) > 0);
      }
    }
}

TEST_CASE("kernels: config spaces: packed panels that no register kernel takes are refused", "[kernels]") {
  const KernelCase odd{
      "linear",
      {{"n", int64_t{100}}, {"k", int64_t{576}}, {"weight_layout", std::string("packed")}, {"panel", int64_t{20}}}};
  CHECK_THROWS_WITH(library_op("linear").default_config(normalized(odd, DType::f32), 64, cpu_target("avx2")),
                    Catch::Contains("panel = 20") && Catch::Contains("take 16"));
}

}  // namespace seqtile::testing

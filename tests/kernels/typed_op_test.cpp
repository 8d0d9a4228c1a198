// tests/kernels/typed_op_test.cpp -- operations that are one type: fields, tensors and calls from one declaration.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "kernels/linear/linear.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/rows/embedding.h"
#include "kernels/rows/rope.h"
#include "tests/support/kernels/kernel_cases.h"

using namespace seqtile;
using namespace seqtile::kernels;
using autotune::Workload;
using testing::library_op;

TEST_CASE("typed operations: the workload of a struct is the normalised one, and gives the struct again", "[kernels]") {
  const RmsNorm norm{.n = 96, .eps = 1e-6, .residual = true, .normed = RmsNorm::Normed::both, .dtype = DType::bf16};
  const Workload workload = norm.workload();
  CHECK(library_op("rms_norm").normalize(workload) == workload);
  CHECK(workload.json() == R"({"dtype":"bf16","eps":1e-06,"n":96,"normed":"both","residual":1,"threads":1,)"
                           R"("weight_offset":0.0})");
  const auto again = op_of<RmsNorm>(workload);
  CHECK((again.n == 96 && again.residual && again.normed == RmsNorm::Normed::both && again.eps == 1e-6));
}

TEST_CASE("typed operations: a field whose default depends on another one has it in struct and workload", "[kernels]") {
  const Rope whole{.heads = 4, .kv_heads = 2, .head_dim = 64};
  CHECK(whole.workload().fields.get_int("rotary_dim") == 64);
  CHECK(whole.workload().fields.get_double("eps", -1) == 0);
  const Workload given{"rope", DType::f32, 1, whole.workload().fields};
  CHECK(library_op("rope").normalize(given) == whole.workload());
}

TEST_CASE("typed operations: a field that came late or needs other values is named only where it is set", "[kernels]") {
  const autotune::Fields plain = Linear{.n = 8, .k = 8, .dtype = DType::bf16}.workload().fields;
  CHECK((!plain.contains("scale") && !plain.contains("soft_cap") && !plain.contains("precision")));
  const Linear capped{.n = 8, .k = 8, .tf32 = true, .scale = 0.5, .soft_cap = 30};
  const Workload workload = capped.workload();
  CHECK(library_op("linear").normalize(workload) == workload);
  const auto again = op_of<Linear>(workload);
  CHECK((again.tf32 && again.scale == 0.5 && again.soft_cap == 30));
  const Workload tf32_of_bf16 = Linear{.n = 8, .k = 8, .dtype = DType::bf16, .tf32 = true}.workload();
  CHECK_THROWS_WITH(library_op("linear").normalize(tf32_of_bf16),
                    Catch::Contains("precision is tf32, needs dtype f32"));
  const Workload packed = Linear{.n = 8, .k = 8, .weight_layout = WeightLayout::packed}.workload();
  CHECK(packed.fields.get_int("panel") == default_panel(host_target()));
}

TEST_CASE("typed operations: bad fields are refused with value, limit and next step", "[kernels]") {
  const auto refused = [](const char* operation, autotune::Fields fields, const char* text) {
    INFO(fields.json());
    CHECK_THROWS_WITH(library_op(operation).normalize({operation, DType::f32, 1, std::move(fields)}),
                      Catch::Contains(text));
  };
  refused("rms_norm", {}, "rms_norm: field n is missing, give a number of 1..1048576, as in --set n=1");
  refused("rms_norm", {{"n", int64_t{8}}, {"normed", std::string("y")}}, "must be one of sum, x, both");
  refused("rms_norm", {{"n", int64_t{8}}, {"normed", std::string("x")}}, "needs residual = 1");
  refused("embedding", {{"n", int64_t{8}}, {"vocab", int64_t{8}}, {"scale", 0.0}},
          "must be a number of 1e-06..1000000");
  refused("embedding", {{"n", int64_t{8}}, {"vocab", int64_t{8}}, {"rows", int64_t{1}}}, "it has n, scale, vocab");
}

TEST_CASE("typed operations: a call has the tensors of its fields, and no other", "[kernels]") {
  float memory[64] = {};
  const auto tensor = [&](std::initializer_list<int64_t> sizes) { return make_tensor(memory, DType::f32, sizes); };
  RmsNorm::Args args{.x = tensor({5, 4}), .weight = tensor({4}), .y = tensor({5, 4})};
  const Call call = pack(RmsNorm{.n = 4}, args);
  CHECK((call.length == 5 && call.tensors().size() == 3 && call.tensors()[1].rank == 1));
  args.residual = tensor({5, 4});
  CHECK_THROWS_WITH(pack(RmsNorm{.n = 4}, args),
                    "rms_norm: a tensor is given that these fields do not take; they take x, weight, y");
  CHECK(pack(RmsNorm{.n = 4, .residual = true}, args).tensors().size() == 4);  // the handle misses the fifth
}

TEST_CASE("typed operations: the schema has roles, shapes and what may be in place", "[kernels]") {
  const autotune::Schema norm = schema_of(RmsNorm{.n = 4, .residual = true, .normed = RmsNorm::Normed::x}).schema;
  REQUIRE(norm.args.size() == 4);
  CHECK((norm.args[2].name == "x_weight" && norm.args[2].role == autotune::ArgRole::weight));
  CHECK(norm.args[3].in_place == std::vector<std::string>{"x", "residual"});
  CHECK(schema_of(RmsNorm{.n = 4}).schema.args.back().in_place == std::vector<std::string>{"x"});
  const autotune::Schema rows = schema_of(Embedding{.vocab = 9, .n = 4}).schema;
  REQUIRE(rows.indices.size() == 1);
  CHECK((rows.indices[0].arg == "ids" && rows.indices[0].limit.size == 9));
}

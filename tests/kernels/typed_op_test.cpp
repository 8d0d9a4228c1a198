// tests/kernels/typed_op_test.cpp -- operations that are one type: fields, tensors and calls from one declaration.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <catch2/catch.hpp>

#include "seqtile/kernel.h"
#include "seqtile/ops/attention.h"
#include "seqtile/ops/linear.h"
#include "seqtile/ops/rows.h"
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
  refused("rms_norm", {}, "rms_norm: field n is missing, give a number of 1..1048576, as in --set n=64");
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
  CHECK_THROWS_WITH(pack(RmsNorm{.n = 4, .residual = true}, args),
                    "rms_norm: the tensor 'sum' is not given; these fields take x, residual, weight, y, sum");
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

TEST_CASE("typed operations: dimensions are symbols, and lists of rows have rules", "[kernels]") {
  using autotune::IndexRule;
  const AttentionForward extend{.heads = 4, .kv_heads = 2, .head_dim = 8, .phase = AttentionForward::Phase::extend};
  CHECK(extend.workload().fields.get_string("phase") == "extend");
  CHECK(op_of<AttentionForward>(extend.workload()).phase == AttentionForward::Phase::extend);
  const autotune::Schema schema = schema_of(extend).schema;
  CHECK(schema.symbols == std::vector<std::string>{"length", "tokens", "kv_tokens", "batch"});
  CHECK((schema.args[3].name == "q_start" && schema.args[3].dtype == DType::i32));
  CHECK((schema.args[3].dims[0].symbol == "batch" && schema.args[3].dims[0].size == 1));
  REQUIRE(schema.indices.size() == 2);
  CHECK((schema.indices[0].kind == IndexRule::Kind::borders && schema.indices[0].limit.symbol == "tokens"));
  CHECK((schema.indices[0].most->symbol == "length" && schema.indices[0].least == 0));
  CHECK((schema.indices[1].kind == IndexRule::Kind::spans && schema.indices[1].counts == "kv_len"));
  CHECK(!schema.indices[1].most);
}

TEST_CASE("typed operations: a length that no shape shows is said by the call", "[kernels]") {
  float memory[64] = {};
  AttentionForward::Args args{.length = 7};
  for (Tensor* tensor : {&args.q, &args.k, &args.v, &args.q_start, &args.kv_start, &args.kv_len, &args.out, &args.lse})
    *tensor = make_tensor(memory, DType::f32, {1, 1, 8});
  const Call call = pack(AttentionForward{.heads = 1, .kv_heads = 1, .head_dim = 8}, args);
  CHECK((call.length == 7 && call.tensors().size() == 8));
}

TEST_CASE("typed operations: generated lists are equally long and lie one after the other", "[kernels]") {
  const autotune::Workload workload = AttentionForward{.heads = 1, .kv_heads = 1, .head_dim = 8}.workload();
  const autotune::OpDef& op = library_op("attention_forward");
  const autotune::Schema schema = op.schema(workload);
  int32_t numbers[3][4] = {};
  autotune::Problem problem{&workload, &schema, {5, 11, 9, 3}, std::vector<Tensor>(schema.args.size())};
  for (const auto& [arg, size] : {std::pair{3, 4}, {4, 3}, {5, 3}}) {
    problem.tensors[arg] = make_tensor(numbers[arg - 3], DType::i32, {size});
    CHECK(op.fill(problem, arg, 1));
  }
  CHECK(std::ranges::equal(numbers[0], std::vector{0, 3, 7, 11}));
  CHECK(std::ranges::equal(numbers[1], std::vector{0, 3, 6, 0}));
  CHECK(std::ranges::equal(numbers[2], std::vector{3, 3, 3, 0}));
  CHECK(!op.fill(problem, 0, 1));
}

TEST_CASE("typed operations: a tile is a configuration, and the configuration that tile again", "[kernels]") {
  const AttentionForward decode{.heads = 4, .kv_heads = 2, .head_dim = 8, .phase = AttentionForward::Phase::decode};
  const autotune::Config config = config_of(decode, {.splits = 2, .block_n = 64});
  CHECK(config.json() == R"({"block_n":64,"splits":2})");
  const auto tile = tile_of(decode, {{"block_n", int64_t{32}}, {"splits", int64_t{4}}, {"num_warps", int64_t{8}}});
  CHECK((tile.block_n == 32 && tile.splits == 4 && tile.num_warps == 8 && !tile.num_stages));
  CHECK_THROWS_WITH(tile_of(decode, {{"block_m", int64_t{32}}}), Catch::Contains("splits"));
}

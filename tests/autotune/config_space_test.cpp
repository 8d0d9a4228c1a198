// tests/autotune/config_space_test.cpp -- enumeration, refusals and hashes of configuration spaces; the registry.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ir.h"
#include "seqtile/op.h"

#include <catch2/catch.hpp>

#include "seqtile/error.h"
#include "tests/support/fakes/toy_ops.h"

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

ConfigSpace sample() {
  ConfigSpace space;
  space.parameter("m", {int64_t{1}, int64_t{2}, int64_t{4}})
      .parameter("form", {std::string("dot"), std::string("outer")});
  space.constraint([](const Config& c) -> std::optional<std::string> {
    if (c.get_int("m") == 4 && c.get_string("form") == "dot") return "m = 4 needs the outer form";
    return std::nullopt;
  });
  return space;
}

}  // namespace

TEST_CASE("config space: the product without what the constraints refuse", "[autotune][space]") {
  const auto configs = sample().enumerate();
  REQUIRE(configs.size() == 5);
  CHECK(configs[0].json() == R"({"form":"dot","m":1})");
  CHECK(configs[4].json() == R"({"form":"outer","m":4})");
  for (const Config& config : configs) CHECK_FALSE(sample().refusal(config));
}

TEST_CASE("config space: a list of configurations says that one is not in it", "[autotune][space]") {
  ConfigSpace space;
  space.add({{"m", int64_t{4}}});
  space.add({{"m", int64_t{8}}});
  CHECK_FALSE(space.refusal({{"m", int64_t{4}}}));
  CHECK(*space.refusal({{"m", int64_t{5}}}) == "it is none of the 2 that the operation lists");
}

TEST_CASE("config space: a refusal names the rule", "[autotune][space]") {
  const ConfigSpace space = sample();
  CHECK(*space.refusal({{"m", int64_t{4}}, {"form", std::string("dot")}}) == "m = 4 needs the outer form");
  CHECK(*space.refusal({{"m", int64_t{3}}, {"form", std::string("dot")}}) == "parameter m cannot be 3");
  CHECK(*space.refusal({{"form", std::string("dot")}}) == "parameter m is missing");
  CHECK(*space.refusal({{"m", int64_t{1}}, {"form", std::string("dot")}, {"x", int64_t{1}}}) ==
        "there is no parameter x");
}

TEST_CASE("config space: alternatives and single configurations join, each once", "[autotune][space]") {
  ConfigSpace space = sample();
  ConfigSpace other;
  other.parameter("k", {int64_t{8}, int64_t{16}});
  space.alternative(other).add({{"k", int64_t{8}}}).add({{"special", int64_t{1}}});
  CHECK(space.enumerate().size() == 8);
  for (const Config& config : space.enumerate()) CHECK_FALSE(space.refusal(config));
  CHECK(space.refusal({{"k", int64_t{9}}}));
  CHECK(space.refusal({{"special", int64_t{2}}}));
}

TEST_CASE("config space: nothing declared is one empty configuration", "[autotune][space]") {
  CHECK(ConfigSpace{}.enumerate() == std::vector<Config>{{}});
  CHECK_FALSE(ConfigSpace{}.refusal({}));
  ConfigSpace only_added;
  only_added.add({{"a", int64_t{1}}});
  CHECK(only_added.enumerate().size() == 1);
  CHECK(only_added.refusal({}));
}

TEST_CASE("config space: the hash follows the set, not the order of declaration", "[autotune][space]") {
  ConfigSpace a, b;
  a.parameter("m", {int64_t{1}, int64_t{2}});
  b.parameter("m", {int64_t{2}, int64_t{1}});
  CHECK(a.hash() == b.hash());
  b.add({{"m", int64_t{3}}});
  CHECK(a.hash() != b.hash());
}

TEST_CASE("registry: names are unique, unknown ones list the known", "[autotune][registry]") {
  Registry registry = test::toy_registry();
  CHECK(registry.find("toy_add").name == "toy_add");
  CHECK_THROWS_WITH(registry.add(test::toy_add_op()), "operation toy_add is registered already");
  CHECK_THROWS_WITH(registry.find("toy"),
                    "no operation is called \"toy\"; there are: toy_add, toy_ranks; did you mean toy_add?");
  OpDef incomplete = test::toy_add_op();
  incomplete.name = "other";
  incomplete.reference = nullptr;
  CHECK_THROWS_WITH(registry.add(std::move(incomplete)), "operation other lacks reference");
}

TEST_CASE("build_kernel: the name is the specialisation", "[autotune][registry]") {
  const auto op = test::toy_add_op();
  const auto function = build_kernel(op, test::toy_add("plain"),
                                     {{"form", std::string("plain")}, {"block", int64_t{16}}}, cpu_target("avx2"));
  CHECK(function->name() == "toy_add_f32_16_plain_avx2");
  CHECK_THROWS_AS(build_kernel(op, test::toy_add("plain"), {{"form", std::string("no_verify")}, {"block", int64_t{16}}},
                               cpu_target("avx2")),
                  Error);
}

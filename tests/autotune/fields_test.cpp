// tests/autotune/fields_test.cpp -- canonical text of fields, workloads and keys.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/op.h"

#include <catch2/catch.hpp>

#include "autotune/keys.h"
#include "jit/base/hash.h"
#include "seqtile/error.h"
#include "tests/support/fakes/toy_ops.h"

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::internal;
}

}  // namespace

TEST_CASE("fields: text is sorted by name and has no spaces", "[autotune][fields]") {
  const Fields fields{{"n", int64_t{4096}}, {"eps", 1e-5}, {"act", std::string("silu")}, {"b", int64_t{-1}}};
  CHECK(fields.json() == R"({"act":"silu","b":-1,"eps":1e-05,"n":4096})");
  CHECK(fields.hash() == sha256_hex(fields.json()));
  CHECK(Fields{}.json() == "{}");
}

TEST_CASE("fields: text round-trips with the types of its values", "[autotune][fields]") {
  const Fields fields{{"one", int64_t{1}},
                      {"one_point", 1.0},
                      {"big", INT64_MAX},
                      {"small", INT64_MIN},
                      {"text", std::string("a\"b\\c\n\t \xC3\xA4")},
                      {"tiny", 0x1.23456789abcdep-1022},
                      {"empty", std::string()}};
  const Fields again = Fields::parse(fields.json());
  CHECK(again == fields);
  CHECK(again.json() == fields.json());
}

TEST_CASE("fields: an integer and a float of one value are different", "[autotune][fields]") {
  CHECK(Fields{{"a", int64_t{1}}}.json() != Fields{{"a", 1.0}}.json());
}

TEST_CASE("fields: text that is not a flat object of numbers and strings is refused", "[autotune][fields]") {
  for (const char* text : {"", "[]", "{", "{\"a\":[1]}", "{\"a\":{}}", "{\"a\":null}", "{\"a\":true}", "3",
                           "{\"a\":18446744073709551615}", "{\"a\":1}x", "{\"a\":1,\"a\":2}", "{\"a\":1,\"a\":1}"})
    CHECK(code_of([&] { Fields::parse(text); }) == ErrorCode::invalid_argument);
  CHECK(code_of([] { Fields{{"a", std::nan("")}}.json(); }) == ErrorCode::invalid_argument);
  CHECK(code_of([] { Fields{{"a", std::string("\xff")}}.json(); }) == ErrorCode::invalid_argument);
}

TEST_CASE("fields: a missing field and a wrong type are named", "[autotune][fields]") {
  const Fields fields{{"n", int64_t{8}}, {"act", std::string("silu")}};
  CHECK(fields.get_int("n") == 8);
  CHECK(fields.get_int("m", 3) == 3);
  CHECK(fields.get_double("n", 0) == 8.0);
  CHECK(fields.get_string("act", "none") == "silu");
  CHECK_THROWS_WITH(fields.get_int("m"), "field m is missing");
  CHECK_THROWS_WITH(fields.get_int("act"), "field act is a text, must be an integer");
  CHECK_THROWS_WITH(fields.get_string("n"), "field n is an integer, must be a text");
  CHECK_THROWS_WITH(fields.get_double("act", 1), "field act is a text, must be a number");
}

TEST_CASE("workload: its text holds dtype, threads and fields", "[autotune][fields]") {
  const Workload workload{"linear", DType::bf16, 2, {{"n", int64_t{64}}, {"k", int64_t{32}}}};
  CHECK(workload.json() == R"({"dtype":"bf16","k":32,"n":64,"threads":2})");
}

TEST_CASE("make_key: every part of it changes the key", "[autotune][keys]") {
  const OpDef op = test::toy_add_op();
  const Workload workload = test::toy_add("plain");
  const DeviceInfo device{"cpu", "Some CPU", {{"cores", "2"}, {"model", "25.1"}}};
  const auto text = [](const cache::TuningKey& key) {
    return key.env_json + key.operation + key.source_hash + key.workload_json + key.device_kind;
  };
  const std::string base = text(make_key(op, workload, device, "cold"));
  CHECK(base == text(make_key(op, workload, device, "cold")));
  CHECK(base != text(make_key(op, workload, device, "warm")));
  CHECK(base != text(make_key(test::toy_add_op(2), workload, device, "cold")));
  CHECK(base != text(make_key(op, test::toy_add("plain", 33), device, "cold")));
  for (const auto& facts : {DeviceInfo{"cpu", "Some CPU", {{"cores", "4"}, {"model", "25.1"}}},
                            DeviceInfo{"cpu", "Some CPU", {{"cores", "2"}, {"model", "26.1"}}},
                            DeviceInfo{"sim", "Some CPU", {{"cores", "2"}, {"model", "25.1"}}}})
    CHECK(base != text(make_key(op, workload, facts, "cold")));
  // The device's name is for people: a renamed device with the same facts keeps its records.
  CHECK(base == text(make_key(op, workload, {"cpu", "Same CPU, new name", device.facts}, "cold")));
}

TEST_CASE("make_artifact_key: operation, version, fields, configuration and target enter", "[autotune][keys]") {
  const OpDef op = test::toy_add_op();
  const Workload workload = test::toy_add("plain");
  const Config config{{"block", int64_t{4}}};
  const Target target = cpu_target("generic");
  const auto base = make_artifact_key(op, workload, config, target);
  CHECK(base.hash == sha256_hex(base.manifest));
  CHECK(base.hash != make_artifact_key(test::toy_add_op(2), workload, config, target).hash);
  CHECK(base.hash != make_artifact_key(op, test::toy_add("plain", 33), config, target).hash);
  CHECK(base.hash != make_artifact_key(op, workload, {{"block", int64_t{8}}}, target).hash);
  CHECK(base.hash != make_artifact_key(op, workload, config, cpu_target("avx2")).hash);
  Target other_cache = target;
  other_cache.l2_bytes *= 2;
  CHECK(base.hash != make_artifact_key(op, workload, config, other_cache).hash);
}

// tests/models/rope_reader_test.cpp -- spellings of rope in model files, and spellings that contradict each other.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/file/model_file.h"
#include "seqtile/error.h"

namespace seqtile::testing {
namespace {

using Catch::Matchers::Contains;
using models::ModelFile;
using models::RopeForm;
using Json = nlohmann::json;

ModelFile parse(const char* type, const Json& fields) {
  Json json = {
      {"model_type", type},       {"hidden_size", 512}, {"num_hidden_layers", 4},         {"num_attention_heads", 8},
      {"num_key_value_heads", 8}, {"head_dim", 64},     {"max_position_embeddings", 8192}};
  json.update(fields);
  return models::parse_model_file(json.dump(), "model.json");
}

RopeForm rope(const Json& fields, const char* type = "llama") {
  const ModelFile file = parse(type, fields);
  CHECK(file.notes.warnings.empty());
  return file.model.kinds.front().rope;
}

void check_refused(const Json& fields, const std::string& what, const char* type = "llama",
                   ErrorCode code = ErrorCode::invalid_argument) {
  try {
    parse(type, fields);
    FAIL_CHECK(fields.dump() << " is accepted");
  } catch (const Error& error) {
    INFO(fields.dump());
    CHECK_THAT(error.what(), Contains(what));
    CHECK(error.code() == code);
  }
}

const Json kLlama3 = {
    {"factor", 32.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 1024}};

Json with(Json json, const Json& changes) {
  if (!changes.is_null()) json.update(changes);  // {} is null
  return json;
}

}  // namespace

TEST_CASE("rope reader: one model in every spelling", "[models]") {
  const RopeForm form = rope({{"rope_theta", 5e5}, {"rope_scaling", with(kLlama3, {{"rope_type", "llama3"}})}});
  CHECK(form.type == "llama3");
  CHECK(form.theta == 5e5);
  CHECK(form.factor == 32);
  CHECK(form.original_max_positions == 1024);
  const Json inside = with(kLlama3, {{"rope_type", "llama3"}, {"rope_theta", 500000}});
  for (const Json& same : std::vector<Json>{
           {{"rope_theta", 5e5}, {"rope_scaling", with(kLlama3, {{"type", "llama3"}})}},
           {{"rope_theta", 5e5}, {"rope_scaling", with(kLlama3, {{"type", "llama3"}, {"rope_type", "llama3"}})}},
           {{"rope_parameters", inside}},
           {{"rope_parameters", inside}, {"rope_theta", nullptr}, {"rope_scaling", nullptr}},
           {{"rope_parameters", inside}, {"rope_theta", 5e5}, {"rope_scaling", Json::object()}},
           {{"rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "llama3"}}}, {"rope_scaling", kLlama3}},
           {{"rope_scaling", inside}},
       })
    CHECK(rope(same) == form);
}

TEST_CASE("rope reader: what is said twice must be the same", "[models]") {
  check_refused({{"rope_theta", 1e4}, {"rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "default"}}}},
                "field rope_theta is 10000.0, but rope_parameters.rope_theta is 500000.0; keep one of them");
  check_refused({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
                 {"rope_parameters", {{"rope_type", "linear"}, {"factor", 4}}}},
                "field rope_scaling.factor is 2, but rope_parameters.factor is 4");
  check_refused(
      {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
       {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}},
      "field rope_scaling.type is \"linear\", but rope_parameters.rope_type is \"default\"; keep one of them");
  check_refused({{"rope_scaling", {{"type", "linear"}, {"rope_type", "dynamic"}, {"factor", 2}}}},
                "rope_scaling: field rope_type is \"dynamic\", but type is \"linear\"");
  check_refused({{"original_max_position_embeddings", 2048},
                 {"rope_scaling", {{"type", "yarn"}, {"factor", 2}, {"original_max_position_embeddings", 4096}}}},
                "original_max_position_embeddings is 2048, but rope_scaling.original_max_position_embeddings is 4096");
  check_refused({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}, {"original_max_position_embeddings", 4096}}}},
                "but dynamic rope counts from max_position_embeddings = 8192");
  check_refused({{"partial_rotary_factor", 0.5}, {"rope_parameters", {{"partial_rotary_factor", 0.75}}}},
                "partial_rotary_factor is 0.5, but rope_parameters.partial_rotary_factor is 0.75", "phi3");
  check_refused({{"rope_parameters", {{"full_attention", Json::object()}, {"rope_theta", 1e4}}}},
                "has rope_theta beside objects for kinds of layers", "olmo3");
}

TEST_CASE("rope reader: kinds of layers have ropes of their own", "[models]") {
  const Json nested = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 3e6}}},
                       {"sliding_attention", {{"rope_theta", 2e4}}}};
  const auto kinds = parse("gemma3_text", {{"num_hidden_layers", 6}, {"rope_parameters", nested}}).model.kinds;
  REQUIRE(kinds.size() == 2);
  CHECK(kinds[0].window == 4096);
  CHECK(kinds[0].rope == RopeForm{.theta = 2e4, .rotary_dim = 64});
  CHECK(kinds[1].rope.type == "linear");
  CHECK(kinds[1].rope.theta == 3e6);
  const auto old = parse("gemma3_text", {{"num_hidden_layers", 6},
                                         {"rope_theta", 3e6},
                                         {"rope_local_base_freq", 2e4},
                                         {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}})
                       .model.kinds;
  CHECK(old == kinds);
  check_refused({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}},
                "must have full_attention and sliding_attention", "gemma3_text");
  check_refused({{"rope_local_base_freq", 1e4}, {"rope_parameters", nested}},
                "rope_local_base_freq is 10000.0, but rope_parameters.sliding_attention.rope_theta is 20000.0",
                "gemma3_text");
  check_refused({{"rope_parameters", {{"full_attention", 1}}}}, "must have an object for full_attention",
                "gemma3_text");
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "gemma2", "smollm3", "granite"})
    for (const char* name : {"rope_parameters", "rope_scaling"})
      for (const char* kind : {"full_attention", "sliding_attention", "chunked_attention", "global"})
        check_refused({{name, {{kind, {{"rope_theta", 1e6}}}}}}, "has objects for kinds of layers, but ", type);
  check_refused({{"rope_local_base_freq", 1e4}}, "rope_local_base_freq", "llama", ErrorCode::unsupported);
}

TEST_CASE("rope reader: layers of olmo3 with a window do not have the base beside", "[models]") {
  const auto kinds = parse("olmo3", {{"rope_theta", 5e5}}).model.kinds;
  REQUIRE(kinds.size() == 2);
  for (const auto& kind : kinds) CHECK(kind.rope.theta == 5e5);
  const Json full = {{"rope_theta", 1e4}}, window = {{"rope_theta", 2e4}};
  const std::string why = "rope_theta is 10000.0, but layers with a window take 500000";
  check_refused({{"rope_theta", 1e4}}, why, "olmo3");
  check_refused({{"rope_theta", 1e4}, {"rope_parameters", {{"full_attention", full}}}}, why, "olmo3");
  const auto nested = parse("olmo3", {{"rope_theta", 1e4},
                                      {"rope_parameters", {{"full_attention", full}, {"sliding_attention", window}}}})
                          .model.kinds;
  REQUIRE(nested.size() == 2);
  CHECK(nested[0].rope.theta == 2e4);
  CHECK(nested[1].rope.theta == 1e4);
  const auto own = parse("olmo3", {{"rope_parameters", {{"full_attention", full}}}}).model.kinds;
  REQUIRE(own.size() == 2);
  CHECK(own[0].rope.theta == 5e5);
  CHECK(rope({{"rope_theta", 1e4}, {"sliding_window", nullptr}}, "olmo3").theta == 1e4);
}

TEST_CASE("rope reader: attention factors of yarn and longrope", "[models]") {
  const auto yarn = [](const Json& fields) {
    return rope({{"rope_scaling", with({{"type", "yarn"}, {"factor", 4.0}}, fields)}});
  };
  CHECK(yarn({}).attention_factor == Approx(0.1 * std::log(4) + 1));
  CHECK(yarn({}).original_max_positions == 8192);
  CHECK(yarn({{"attention_factor", 1.5}}).attention_factor == 1.5);
  CHECK(yarn({{"attention_factor", nullptr}, {"beta_fast", nullptr}}).beta_fast == 32);
  CHECK(yarn({{"mscale", 1.0}, {"mscale_all_dim", 1.0}}).attention_factor == 1);
  CHECK(yarn({{"mscale", 2.0}}).attention_factor == Approx(0.1 * std::log(4) + 1));
  CHECK(yarn({}).truncate);
  CHECK_FALSE(yarn({{"truncate", false}}).truncate);
  CHECK_FALSE(yarn({{"truncate", nullptr}}).truncate);
  CHECK(yarn({{"factor", nullptr}, {"original_max_position_embeddings", 2048}}).factor == 4);
  const std::vector<double> ones(32, 1.0), twos(32, 2.0);
  const Json lists = {{"short_factor", ones}, {"long_factor", twos}};
  const auto longrope = [&](const char* name, const Json& fields, int64_t original) {
    return rope(
        {{"rope_scaling", with(with(lists, {{"type", name}}), fields)}, {"original_max_position_embeddings", original}},
        "phi3");
  };
  for (const char* name : {"longrope", "su", "yarn"}) {
    const RopeForm form = longrope(name, {}, 1024);
    CHECK(form.type == "longrope");
    CHECK(form.long_factor == twos);
    CHECK(form.attention_factor == Approx(std::sqrt(1 + std::log(8) / std::log(1024))));
  }
  CHECK(longrope("longrope", {{"factor", 8.0}}, 1024).attention_factor > 1);
  CHECK(longrope("longrope", {}, 8192).attention_factor == 1);
  const auto inside = [&](int64_t original) {
    return Json{{"rope_scaling", with(lists, {{"type", "longrope"}, {"original_max_position_embeddings", original}})}};
  };
  check_refused(inside(2048), "original_max_position_embeddings is 2048, but Phi3Config takes the field beside",
                "phi3");
  CHECK(rope(inside(4096), "phi3").original_max_positions == 4096);
  CHECK(rope(with(inside(2048), {{"original_max_position_embeddings", 2048}}), "phi3").original_max_positions == 2048);
  check_refused({{"rope_scaling", with(lists, {{"type", "longrope"}, {"factor", 4.0}})},
                 {"original_max_position_embeddings", 1024}},
                "factor is 4.0, but max_position_embeddings", "phi3");
  check_refused({{"rope_scaling", {{"type", "longrope"}, {"short_factor", ones}, {"long_factor", {1, 2}}}}},
                "long_factor is an array, has 2 numbers, must have one for each of the 32 pairs", "phi3");
  check_refused({{"rope_scaling", {{"type", "longrope"}, {"short_factor", ones}}}}, "long_factor is missing", "phi3");
}

TEST_CASE("rope reader: parts of heads, and bases that are scaled once", "[models]") {
  CHECK(rope({{"partial_rotary_factor", 0.75}}, "phi3").rotary_dim == 48);
  CHECK(rope({{"rope_parameters", {{"partial_rotary_factor", 0.75}, {"rope_type", "default"}}}}, "phi3").rotary_dim ==
        48);
  check_refused({{"partial_rotary_factor", 0.55}}, "must leave an even number", "phi3");
  check_refused({{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}, "heads of which a part is rotated", "llama",
                ErrorCode::unsupported);
  const RopeForm scaled = rope({{"rope_scaling", {{"type", "dynamic"}, {"alpha", 1000.0}}}});
  CHECK(scaled.type == "default");
  CHECK(scaled.theta == Approx(10000 * std::pow(1000, 64.0 / 62)));
  check_refused({{"rope_scaling", {{"type", "dynamic"}, {"alpha", 8.0}, {"factor", 2.0}}}}, "factor is given too");
}

TEST_CASE("rope reader: values that are wrong or not known", "[models]") {
  check_refused({{"rope_scaling", 4.0}}, "rope_scaling is 4.0, must be an object or null");
  check_refused({{"rope_scaling", {{"factor", 4.0}}}}, "rope_type is missing; factors need it");
  check_refused({{"rope_scaling", {{"type", "linear"}}}}, "factor is missing; linear rope needs it");
  check_refused({{"rope_scaling", {{"type", "linear"}, {"factor", "4"}}}}, "rope_scaling: field factor is \"4\", must");
  check_refused({{"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}}}, "must be a number of 1 to");
  check_refused({{"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}}},
                "must be one of default, linear", "llama", ErrorCode::unsupported);
  check_refused({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}}}, "low_freq_factor is missing");
  check_refused({{"rope_scaling", with(kLlama3, {{"rope_type", "llama3"}, {"high_freq_factor", 1.0}})}},
                "must be above low_freq_factor");
  check_refused({{"rope_scaling", {{"type", "yarn"}, {"factor", 2}, {"attn_factor", 2.0}}}}, "attn_factor", "llama",
                ErrorCode::unsupported);
  const auto warnings =
      parse("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"beta_fast", 32}, {"swirl", 1}}}})
          .notes.warnings;
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], Contains("beta_fast means nothing to rope of type linear"));
  CHECK_THAT(warnings[1], Contains("swirl is not known"));
}

}  // namespace seqtile::testing

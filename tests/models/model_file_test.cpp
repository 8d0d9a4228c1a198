// tests/models/model_file_test.cpp -- config.json of every type against the transformers package, and refused fields.
// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/model_files/files.json has files and the fields of transformers' classes after reading them
// (tools/python/make_model_files.py).
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "models/file/model_description.h"
#include "models/file/model_file.h"
#include "models/file/model_types.h"
#include "seqtile/error.h"
#include "tests/support/temp_folder.h"

namespace seqtile::testing {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using models::LayerKind;
using models::Model;
using models::ModelFile;
using Json = nlohmann::json;

Json with(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

/// A small file of a type, with the fields that all types share.
Json small(const std::string& type, const Json& changes = Json::object()) {
  return with({{"model_type", type},
               {"hidden_size", 512},
               {"intermediate_size", 768},
               {"num_hidden_layers", 8},
               {"num_attention_heads", 8},
               {"num_key_value_heads", 4},
               {"head_dim", 64},
               {"vocab_size", 1000},
               {"max_position_embeddings", 8192}},
              changes);
}

ModelFile parse(const Json& json) { return models::parse_model_file(json.dump(), "model.json"); }

std::pair<ErrorCode, std::string> refusal(const Json& json) {
  try {
    parse(json);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::internal, "accepted"};
}

void check_refused(const Json& json, ErrorCode code, const std::string& what) {
  const auto [given, message] = refusal(json);
  INFO(json.dump() << "\n" << message);
  CHECK(given == code);
  CHECK_THAT(message, Contains(what));
  CHECK(message.find('\n') == std::string::npos);
}

bool has_default(const ModelFile& file, const std::string& name, const std::string& value) {
  return std::ranges::any_of(file.notes.defaults,
                             [&](const models::FieldNote& note) { return note.name == name && note.text == value; });
}

bool is_ignored(const ModelFile& file, const std::string& name) {
  return std::ranges::any_of(file.notes.ignored, [&](const models::FieldNote& note) { return note.name == name; });
}

void check_rope(const LayerKind& kind, const Json& expected) {
  CHECK(kind.has_rope == !expected.is_null());
  if (expected.is_null()) return;
  CHECK(kind.rope.type == expected["type"]);
  CHECK(kind.rope.theta == Approx(expected["base"].get<double>()).epsilon(1e-12));
  CHECK(kind.rope.rotary_dim == expected["rotary_dim"]);
  CHECK(kind.rope.factor == expected["factor"]);
  CHECK(kind.rope.attention_factor == Approx(expected["attention_factor"].get<double>()).epsilon(1e-12));
}

void check_layers(const Model& model, const Json& expected) {
  REQUIRE(model.kind_of_layer.size() == expected["windows"].size());
  for (size_t layer = 0; layer < model.kind_of_layer.size(); ++layer) {
    INFO("layer " << layer);
    const LayerKind& kind = model.kind_of(static_cast<int64_t>(layer));
    CHECK(kind.window == expected["windows"][layer]);
    check_rope(kind, expected["ropes"][layer]);
  }
}

void check_scales(const Model& model, const Json& expected) {
  CHECK(model.soft_cap == expected["caps"][0]);
  CHECK(model.logits_soft_cap == expected["caps"][1]);
  if (model.type == "granite") {
    const auto factors = expected["multipliers"].get<std::vector<double>>();
    CHECK(model.embedding_scale == factors[0]);
    CHECK(model.residual_scale == factors[1]);
    CHECK(model.attention_scale == factors[2]);
    CHECK(model.logits_scale == Approx(1 / factors[3]));
  }
  const double scalar = expected["query_scalar"];
  if (scalar > 0) CHECK(model.attention_scale == Approx(1 / std::sqrt(scalar)));
}

}  // namespace

TEST_CASE("model files: sizes, windows, rope and scales are those of the class that writes the file", "[models]") {
  std::ifstream file(SEQTILE_SOURCE_DIR "/tests/golden/model_files/files.json");
  const Json golden = Json::parse(file);
  std::set<std::string> types;
  for (const Json& item : golden["cases"]) {
    INFO(item["name"]);
    const ModelFile read = parse(item["config"]);
    const Model& model = read.model;
    const Json& expected = item["expected"];
    types.insert(model.type);
    CHECK(std::vector<int64_t>{model.hidden_size, model.intermediate_size, model.layers, model.vocab_size,
                               model.max_positions, model.heads, model.kv_heads,
                               model.head_dim} == expected["sizes"].get<std::vector<int64_t>>());
    CHECK(model.norm_eps == expected["eps"]);
    CHECK(model.is_tied == expected["tied"]);
    CHECK(read.notes.warnings.empty());
    check_layers(model, expected);
    check_scales(model, expected);
  }
  CHECK(types.size() == models::model_types().size() - 1);  // internlm2's class is not in the package
}

TEST_CASE("model files: what layers of each type compute", "[models]") {
  using models::HeadNorm, models::Norm, models::NormPlace;
  const auto model = [](const char* type, const Json& changes = Json::object()) {
    return parse(small(type, changes)).model;
  };
  CHECK(model("qwen2").qkv_bias);
  CHECK_FALSE(model("qwen2").output_bias);
  CHECK(model("qwen3").head_norm == HeadNorm::each_head);
  CHECK(model("gemma3_text").norm_place == NormPlace::both);
  CHECK(model("gemma2").embedding_scale == Approx(std::sqrt(512.0)));
  CHECK(model("gemma").norm_place == NormPlace::before);
  CHECK(model("gemma", {{"hidden_act", "gelu"}}).activation == "gelu_tanh");
  CHECK(model("olmo2").norm_place == NormPlace::after);
  CHECK(model("olmo2").head_norm == HeadNorm::all_heads);
  const Model starcoder = model("starcoder2");
  CHECK((starcoder.norm == Norm::layer && starcoder.norm_bias && !starcoder.is_gated));
  CHECK((starcoder.qkv_bias && starcoder.output_bias && starcoder.mlp_bias && !starcoder.head_bias));
  CHECK_FALSE(model("starcoder2", {{"use_bias", false}}).mlp_bias);
  CHECK(model("internlm2").output_bias);
  CHECK_FALSE(model("internlm2", {{"bias", false}}).qkv_bias);
  const Model biased = model("llama", {{"attention_bias", true}, {"mlp_bias", true}});
  CHECK((biased.qkv_bias && biased.output_bias && biased.mlp_bias));
  const Model exaone = model("exaone", {{"activation_function", "gelu_new"}, {"layer_norm_epsilon", 1e-4}});
  CHECK((exaone.activation == "gelu_tanh" && exaone.norm_eps == 1e-4));
  CHECK(model("smollm3").kinds.at(1).name == "full_no_rope");
  CHECK(model("smollm3", {{"no_rope_layers", nullptr}}).kinds.at(1).name == "full_no_rope");
}

TEST_CASE("model files: what is left out is noted, null is a value of its own", "[models]") {
  const ModelFile file = parse({{"model_type", "mistral"}});
  CHECK(file.model.hidden_size == 4096);
  CHECK(has_default(file, "hidden_size", "4096"));
  CHECK(has_default(file, "rope_theta", "10000"));
  CHECK(has_default(file, "sliding_window", "4096"));
  CHECK(has_default(file, "torch_dtype", "float32"));
  CHECK(parse(small("mistral", {{"sliding_window", nullptr}})).model.kinds.front().window == 0);
  CHECK(parse(small("mistral", {{"num_key_value_heads", nullptr}})).model.kv_heads == 8);
  CHECK(parse(small("qwen3", {{"head_dim", nullptr}})).model.head_dim == 64);
  CHECK(parse(small("gemma2", {{"attn_logit_softcapping", nullptr}})).model.soft_cap == 0);
  check_refused(small("llama", {{"hidden_size", nullptr}}), ErrorCode::invalid_argument,
                "model.json: field hidden_size is null, must be a whole number of 1..");
}

TEST_CASE("model files: a field that is not known is a warning that names it", "[models]") {
  const ModelFile file = parse(small("llama", {{"swirl_factor", 3},
                                               {"bos_token_id", 1},
                                               {"attention_dropout", 0.1},
                                               {"swiglu_limit", nullptr},
                                               {"use_sliding_window", false}}));
  REQUIRE(file.notes.warnings.size() == 1);
  CHECK_THAT(file.notes.warnings.front(), StartsWith("model.json: field swirl_factor is not known"));
  for (const char* name : {"bos_token_id", "attention_dropout", "swiglu_limit", "use_sliding_window"})
    CHECK(is_ignored(file, name));
  CHECK(parse(small("llama", {{"architectures", {"LlamaForCausalLM"}}})).notes.warnings.empty());
  const ModelFile scores = parse(small("llama", {{"architectures", {"LlamaForSequenceClassification"}}}));
  REQUIRE(scores.notes.warnings.size() == 1);
  CHECK_THAT(scores.notes.warnings.front(), Contains("whose head is not lm_head"));
  CHECK_FALSE(is_ignored(file, "swirl_factor"));
}

/// The only warning of a file; empty without one.
std::string warning_of(const Json& json) {
  const ModelFile file = parse(json);
  CHECK(file.notes.warnings.size() <= 1);
  return file.notes.warnings.empty() ? "" : file.notes.warnings.front();
}

TEST_CASE("model files: a class that is not the type's own is a warning", "[models]") {
  for (const auto& [type, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"llama", "LlamaForCausalLM"},
                                                                  {"llama", "LLaMAForCausalLM"},
                                                                  {"mistral", "MistralModel"},
                                                                  {"gemma3_text", "Gemma3ForCausalLM"},
                                                                  {"gemma3_text", "Gemma3TextModel"},
                                                                  {"gemma3_text", "Gemma3ForConditionalGeneration"},
                                                                  {"smollm3", "SmolLM3ForCausalLM"}}) {
    INFO(name);
    CHECK(warning_of(small(type, {{"architectures", {name}}})) == "");
  }
  CHECK(warning_of(small("llama", {{"architectures", nullptr}})) == "");
  CHECK(warning_of(small("llama", {{"architectures", Json::array()}})) == "");
  for (const char* name :
       {"LlamaForCausalLMEagle3", "MistralForCausalLM", "Llama4ForCausalLM", "Qwen2ForCausalLM", "X"})
    CHECK_THAT(warning_of(small("llama", {{"architectures", {"LlamaForCausalLM", name}}})),
               StartsWith(fmt::format("model.json: architectures has \"{}\", which is no class of type llama", name)));
  CHECK_THAT(warning_of(small("llama", {{"architectures", "LlamaForCausalLM"}})),
             Contains("architectures is \"LlamaForCausalLM\", must be a list of texts"));
  CHECK_THAT(warning_of(small("llama", {{"architectures", {7}}})), Contains("architectures has 7, which is no text"));
}

TEST_CASE("model files: code of the file's own is a warning, but where the type is written for it", "[models]") {
  const auto with_code = [](const char* type, const Json& map) { return small(type, {{"auto_map", map}}); };
  CHECK_THAT(warning_of(with_code("llama", {{"AutoConfig", "configuration_own.OwnConfig"},
                                            {"AutoModelForCausalLM", "modeling_own.OwnForCausalLM"}})),
             Contains("auto_map has \"configuration_own.OwnConfig\", code of the file's own that was not read"));
  CHECK_THAT(warning_of(with_code("qwen2", {{"AutoModel", "modeling_qwen.Qwen2Model"}})), Contains("Qwen2Model"));
  CHECK_THAT(warning_of(with_code("phi3", {{"AutoModel", "modeling_other.Phi3Model"}})), Contains("modeling_other"));
  CHECK_THAT(warning_of(with_code("llama", "modeling_own.py")), Contains("auto_map must be an object"));
  CHECK(warning_of(with_code("llama", {{"AutoTokenizer", {"tokenization_own.OwnTokenizer", nullptr}}})) == "");
  CHECK(warning_of(with_code("phi3", {{"AutoConfig", "configuration_phi3.Phi3Config"},
                                      {"AutoModelForCausalLM", "a/b--modeling_phi3.Phi3ForCausalLM"}})) == "");
}

TEST_CASE("model files: a name's form says what a field is only where its value agrees", "[models]") {
  const Json plain = {{"boi_token_index", 5},     {"image_token", "<image>"},   {"stop_tokens", {"</s>"}},
                      {"mask_token", nullptr},    {"add_bos_token", true},      {"_name_or_path", "a/b"},
                      {"_commit_hash", "c0ffee"}, {"_from_model_config", true}, {"eos_token_ids", {1, 2}},
                      {"use_scaled_init", true}};
  const ModelFile file = parse(small("llama", plain));
  CHECK(file.notes.warnings.empty());
  for (const auto& [name, value] : plain.items()) CHECK(is_ignored(file, name));
  for (const char* name : {"num_meta_tokens", "num_memory_tokens", "_attn_logit_softcapping"})
    check_refused(small("llama", {{name, 128}}), ErrorCode::unsupported, fmt::format("field {} is 128", name));
  for (const char* name : {"num_swirl_tokens", "swirl_token", "_hidden_size", "_rms_norm_eps", "lambda_init"}) {
    const ModelFile other = parse(small("llama", {{name, 128}}));
    REQUIRE(other.notes.warnings.size() == 1);
    CHECK_THAT(other.notes.warnings.front(), Contains(fmt::format("field {} is not known", name)));
  }
}

TEST_CASE("model files: what changes the mathematics is refused by name", "[models]") {
  const auto refused = [](const Json& changes) {
    check_refused(small("llama", changes), ErrorCode::unsupported,
                  fmt::format("model.json: field {} is ", changes.begin().key()));
  };
  for (const char* name : {"kv_lora_rank",
                           "linear_num_key_heads",
                           "mamba_d_state",
                           "cross_attention_layers",
                           "alibi",
                           "attn_logit_softcapping",
                           "final_logit_softcapping",
                           "query_pre_attn_scalar",
                           "clip_qkv",
                           "embedding_multiplier",
                           "logit_scale",
                           "qk_layernorm",
                           "use_bidirectional_attention",
                           "rotary_dim",
                           "parallel_attn",
                           "qkv_bias",
                           "attention_chunk_size",
                           "num_experts",
                           "n_routed_experts",
                           "moe_intermediate_size",
                           "hidden_size_per_layer_input",
                           "kv_cache_scheme",
                           "kv_cache_quant_algo",
                           "kv_cache_quantization",
                           "kv_cache_dtype"})
    refused({{name, 8}});
  refused({{"kv_cache_dtype", "fp8"}});
  refused({{"dual_chunk_attention_config", {{"chunk_size", 1024}}}});
  refused({{"rope_traditional", true}});
  refused({{"rms_norm_unit_offset", true}});
  refused({{"rms_norm_add_unit_offset", true}});
  check_refused(small("gemma", {{"rms_norm_unit_offset", false}}), ErrorCode::unsupported, "norms of type gemma add 1");
  refused({{"is_causal", false}});
  refused({{"position_embedding_type", "alibi"}});
  refused({{"partial_rotary_factor", 0.5}});
  refused({{"no_rope_layers", {1, 1, 0, 1, 1, 1, 1, 1}}});
  refused({{"sliding_window", 1024}});
  refused({{"swiglu_limit", 7.0}});
  refused({{"hidden_act", "relu2"}});
  CHECK(parse(small("llama", {{"sliding_window", 8192}, {"no_rope_layers", {1, 1}}, {"partial_rotary_factor", 1.0}}))
            .notes.warnings.empty());
  CHECK(parse(small("llama", {{"kv_cache_scheme", nullptr},
                              {"kv_cache_quant_algo", nullptr},
                              {"kv_cache_dtype", "auto"},
                              {"dual_chunk_attention_config", nullptr},
                              {"rope_traditional", false},
                              {"rms_norm_unit_offset", false}}))
            .notes.warnings.empty());
  CHECK(parse(small("gemma2", {{"rms_norm_unit_offset", true}})).notes.warnings.empty());
  check_refused(small("phi3", {{"attention_bias", true}}), ErrorCode::unsupported, "attention_bias");
  check_refused(small("qwen2", {{"attention_bias", false}}), ErrorCode::invalid_argument, "attention_bias");
  check_refused(small("starcoder2", {{"norm_type", "rms_norm"}}), ErrorCode::unsupported, "norm_type");
}

TEST_CASE("model files: rope, biases and sinks are refused under any name, unless they are off", "[models]") {
  for (const char* name : {"rotary_base", "rotary_embedding_base", "rope_freq_scale", "rope_scale", "global_rope_theta",
                           "rope_percentage", "rotary_emb_interleaved", "attn_sink", "use_attention_sink", "attn_bias",
                           "o_proj_bias", "use_dynamic_ntk", "ntk_alpha", "use_logn_attn", "prefix_lm"}) {
    INFO(name);
    check_refused(small("llama", {{name, 2}}), ErrorCode::unsupported, fmt::format("field {} is 2", name));
    for (const Json& off : {Json(nullptr), Json(0), Json(false)})
      CHECK(parse(small("llama", {{name, off}})).notes.warnings.empty());
  }
  check_refused(small("llama", {{"rotary", {{"base", 10000}}}}), ErrorCode::unsupported, "field rotary is");
  check_refused(small("llama", {{"is_neox_style", false}}), ErrorCode::unsupported, "neighbouring elements");
  check_refused(small("llama", {{"weight_dtype", "int8"}}), ErrorCode::unsupported, "quantised weights");
  CHECK(parse(small("llama", {{"is_neox_style", true}, {"weight_dtype", "bfloat16"}})).notes.warnings.empty());
  CHECK(parse(small("llama", {{"apply_rope_fusion", true}})).notes.warnings.size() == 1);  // code, not mathematics
  const Json outside = {{"model_type", "llava"}, {"rotary_base", 5e5}, {"text_config", small("llama")}};
  CHECK(parse(outside).notes.warnings.size() == 1);
}

TEST_CASE("model files: experts are refused under any name, none and one are allowed", "[models]") {
  const char* const counts[] = {"num_experts",       "num_local_experts",  "n_routed_experts", "moe_num_experts",
                                "num_moe_experts",   "num_routed_experts", "n_experts",        "expert_count",
                                "num_total_experts", "n_local_experts",    "num_expert",       "nb_experts"};
  for (const char* name : counts) {
    INFO(name);
    check_refused(small("llama", {{name, 8}}), ErrorCode::unsupported,
                  fmt::format("field {} is 8, asks for a mixture of experts", name));
    for (const Json& none : {Json(nullptr), Json(0), Json(1), Json(false)})
      CHECK(parse(small("llama", {{name, none}, {"num_experts_per_tok", 2}, {"moe_layer_interval", 2}}))
                .notes.warnings.empty());
  }
  for (const char* name : {"num_experts_per_tok", "moe_top_k", "moe_layer_interval", "num_shared_experts",
                           "expert_intermediate_size", "decoder_sparse_step"}) {
    check_refused(small("llama", {{name, 2}}), ErrorCode::unsupported, fmt::format("field {} is 2", name));
    CHECK(parse(small("llama", {{name, 0}})).notes.warnings.empty());
  }
  for (const char* name : {"is_moe", "use_moe"}) {
    check_refused(small("llama", {{name, true}}), ErrorCode::unsupported, fmt::format("field {} is true", name));
    CHECK(parse(small("llama", {{name, false}})).notes.warnings.empty());
  }
}

TEST_CASE("model files: experts are refused where a value says them", "[models]") {
  const Json dense_and_sparse = Json::array({"dense", "sparse"});
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, Json>>{{"ffn_type", "moe"},
                                                 {"mlp_type", "MoE"},
                                                 {"feed_forward_type", "sparse_moe"},
                                                 {"block_type", "smoe-block"},
                                                 {"mlp", "mixture-of-experts"},
                                                 {"layer_kinds", Json::array({"dense", "moe"})},
                                                 {"mlp_layer_types", dense_and_sparse},
                                                 {"architectures", Json::array({"LlamaMoEForCausalLM"})},
                                                 {"architectures", Json::array({"LlamaMoeForCausalLM"})},
                                                 {"architectures", Json::array({"LLAMA_MOE"})},
                                                 {"architectures", Json::array({"MixtralForCausalLM"})}}) {
    INFO(name << " " << value);
    check_refused(small("llama", {{name, value}}), ErrorCode::unsupported,
                  fmt::format("model.json: field {} is ", name));
    check_refused(small("llama", {{name, value}}), ErrorCode::unsupported, "asks for a mixture of experts");
  }
  check_refused(small("llama", {{"architectures", Json::array({"LlamaForCausalLM", "LlamaMoEModel"})}}),
                ErrorCode::unsupported, "asks for a mixture of experts (\"LlamaMoEModel\"), which is not modelled");
  for (const Json& inner : {Json{{"moe_num_experts", 16}}, Json{{"ffn_type", "moe"}}, Json{{"mlp", {{"type", "moe"}}}}})
    check_refused(small("llama", {{"ffn_config", inner}}), ErrorCode::unsupported, "asks for a mixture of experts");
  check_refused(small("llama", {{"ffn_config", {{"moe_num_experts", 16}}}}), ErrorCode::unsupported,
                "model.json: ffn_config: field moe_num_experts is 16");
  check_refused({{"model_type", "llava"}, {"text_config", small("llama", {{"ffn_type", "moe"}})}},
                ErrorCode::unsupported, "model.json: text_config: field ffn_type is \"moe\"");
}

TEST_CASE("model files: words that only look like experts, and names of files, are no experts", "[models]") {
  for (const Json& fields :
       {Json{{"_name_or_path", "someone/llama-moe"}}, Json{{"name_or_path", "moe"}}, Json{{"ffn_type", "dense"}},
        Json{{"swirl", "sparse"}}, Json{{"swirl", "moebius"}}, Json{{"architectures", {"OlmoForCausalLM"}}},
        Json{{"ffn_config", {{"moe_num_experts", 1}, {"ffn_type", "moe"}}}},
        Json{{"num_experts", 1}, {"ffn_type", "moe"}}, Json{{"vision_config", {{"ffn_type", "moe"}}}}}) {
    INFO(fields);
    CHECK_NOTHROW(parse(small("llama", fields)));
  }
}

TEST_CASE("model files: quantised weights are refused with the method", "[models]") {
  for (const char* method : {"awq", "gptq", "bitsandbytes", "fp8", "compressed-tensors", "hqq", "aqlm", "mxfp4"})
    check_refused(small("qwen2", {{"quantization_config", {{"quant_method", method}}}}), ErrorCode::unsupported,
                  fmt::format("quantised by {}, which is not served; give the config.json", method));
  check_refused(small("llama", {{"compression_config", {{"format", "pack-quantized"}}}}), ErrorCode::unsupported,
                "compression_config");
  check_refused(small("llama", {{"quantization", {{"bits", 4}}}}), ErrorCode::unsupported, "quantised");
  check_refused(small("llama", {{"torch_dtype", "float8_e4m3fn"}}), ErrorCode::unsupported, "quantised");
  const Json fields{{"load_in_4bit", true},
                    {"bits", 4},
                    {"weight_bits", 1},
                    {"input_bits", 8},
                    {"w_bit", 4},
                    {"wbits", 4},
                    {"num_bits", 8},
                    {"quantization_bit", 4},
                    {"is_quantized", true},
                    {"quantized", true},
                    {"quant_type", "q4"},
                    {"quantization_method", "awq"},
                    {"use_fp8", true},
                    {"load_in_3bit", true},
                    {"awq_config", {{"group_size", 128}}}};
  for (const auto& [name, value] : fields.items()) {
    check_refused(small("llama", {{name, value}}), ErrorCode::unsupported,
                  fmt::format("model.json: field {} is ", name));
    for (const Json& none : {Json(nullptr), Json(0), Json(false), Json("none")})
      CHECK(parse(small("llama", {{name, none}})).notes.warnings.empty());
  }
  for (const char* name : {"BitnetForCausalLM", "BitNetForCausalLM"})
    check_refused(small("llama", {{"architectures", {name}}}), ErrorCode::unsupported, "the weights are quantised to");
  CHECK(parse(small("llama", {{"quantization_config", nullptr}, {"load_in_8bit", false}, {"bits", nullptr}}))
            .model.layers == 8);
  CHECK(parse(small("llama", {{"bits", 16}, {"quantization_bit", 32}})).notes.warnings.empty());
}

TEST_CASE("model files: types that are not read are refused with what they need", "[models]") {
  check_refused({{"model_type", "mixtral"}}, ErrorCode::unsupported, "needs a mixture of experts");
  check_refused({{"model_type", "nemotron_h"}}, ErrorCode::unsupported, "needs layers with a state");
  check_refused({{"model_type", "nemotron"}}, ErrorCode::unsupported, "squared ReLU");
  check_refused({{"model_type", "bert"}}, ErrorCode::unsupported, "an encoder");
  check_refused({{"model_type", "unheard_of"}}, ErrorCode::unsupported, "must be one of llama, mistral");
  check_refused({{"model_type", "gemma3"}}, ErrorCode::invalid_argument, "in text_config, which is missing");
  check_refused({{"model_type", 7}}, ErrorCode::invalid_argument, "must be a text");
  Json without = small("llama", {{"architectures", {"LlamaForCausalLM"}}});
  without.erase("model_type");
  check_refused({{"model_type", nullptr}, {"hidden_size", 64}}, ErrorCode::invalid_argument,
                "field model_type is null; write the model's type");
  check_refused({{"model_type", nullptr}, {"text_config", nullptr}}, ErrorCode::invalid_argument,
                "field model_type is null, must be one of");
  check_refused({{"model_type", nullptr}, {"tokenizer_class", "T"}}, ErrorCode::invalid_argument,
                "has tokenizer_class and model_type null: a tokenizer_config.json");
  check_refused(without, ErrorCode::invalid_argument,
                "model_type is missing (architectures says \"LlamaForCausalLM\")");
}

TEST_CASE("model files: values of a wrong kind get one line with name, value and limit", "[models]") {
  const auto refused = [](const Json& changes, const std::string& reason) {
    check_refused(small("llama", changes), ErrorCode::invalid_argument,
                  fmt::format("model.json: field {} is {}", changes.begin().key(), reason));
  };
  refused({{"hidden_size", "512"}}, "\"512\", must be a whole number of 1..1048576");
  refused({{"hidden_size", {5, 7}}}, "an array, must be a whole number");
  refused({{"vocab_size", -1}}, "-1, must be");
  refused({{"vocab_size", 0}}, "0, must be");
  refused({{"vocab_size", 1e30}}, "1e+30, must be");
  refused({{"vocab_size", UINT64_MAX}}, "18446744073709551615, must be");
  refused({{"vocab_size", 1000.5}}, "1000.5, must be");
  refused({{"num_hidden_layers", 1001}}, "1001, must be a whole number of 1..1000");
  refused({{"num_key_value_heads", 3}}, "3, gives 3 KV heads, must divide num_attention_heads = 8");
  refused({{"rms_norm_eps", "small"}}, "\"small\", must be a number of 0 to 1");
  refused({{"rms_norm_eps", -1}}, "-1, must be");
  CHECK_THROWS_WITH(models::parse_model(R"({"model_type": "llama", "rms_norm_eps": NaN})", "model.json"),
                    Contains("field rms_norm_eps is NaN, must be a number of 0 to 1"));
  CHECK_THROWS_WITH(models::parse_model(R"({"model_type": "llama", "vocab_size": Infinity})", "model.json"),
                    Contains("field vocab_size is Infinity, must be a whole number"));
  CHECK_THROWS_WITH(
      models::parse_model(R"({"model_type": "llama", "vocab_size": 99999999999999999999999})", "model.json"),
      Contains("field vocab_size is 99999999999999999999999, must be a whole number"));
  CHECK_THROWS_WITH(models::parse_model(
                        R"({"text_config": {"model_type": "llama", "head_dim": -99999999999999999999}})", "model.json"),
                    Contains("field head_dim is -99999999999999999999, must be a whole number"));
  refused({{"tie_word_embeddings", 1}}, "1, must be true or false");
  refused({{"torch_dtype", "float64"}}, "\"float64\", must be float32, bfloat16 or float16");
  refused({{"rope_theta", 0}}, "0, must be");
  refused({{"hidden_act", true}}, "true, must be a text");
  CHECK(parse(small("llama", {{"hidden_size", 512.0}})).model.hidden_size == 512);
  CHECK(refusal(small("llama", {{"head_dim", 60}})).first == ErrorCode::unsupported);
}

TEST_CASE("model files: the number format has two names, which must agree", "[models]") {
  CHECK(parse(small("llama", {{"dtype", "bfloat16"}})).model.dtype == DType::bf16);
  CHECK(parse(small("llama", {{"torch_dtype", "torch.float16"}})).model.dtype == DType::f16);
  CHECK(parse(small("llama", {{"torch_dtype", "half"}, {"dtype", "float16"}})).model.dtype == DType::f16);
  check_refused(small("llama", {{"torch_dtype", "float16"}, {"dtype", "bfloat16"}}), ErrorCode::invalid_argument,
                "field torch_dtype is \"float16\", but dtype is \"bfloat16\"; keep one of them");
}

TEST_CASE("model files: the text model of a file of several models is read", "[models]") {
  const Json vision = {{"model_type", "siglip_vision_model"}, {"hidden_size", 1152}};
  const ModelFile gemma = parse({{"model_type", "gemma3"},
                                 {"text_config", {{"hidden_size", 2560}, {"num_hidden_layers", 34}}},
                                 {"vision_config", vision},
                                 {"torch_dtype", "bfloat16"}});
  CHECK(gemma.model.type == "gemma3_text");
  CHECK(gemma.model.heads == 8);
  CHECK(gemma.model.dtype == DType::bf16);
  CHECK(is_ignored(gemma, "vision_config"));
  CHECK(has_default(gemma, "text_config.num_attention_heads", "8"));
  const ModelFile llava = parse({{"model_type", "llava"}, {"text_config", {{"model_type", "llama"}}}});
  CHECK(llava.model.intermediate_size == 11008);
  check_refused({{"model_type", "llava"}, {"text_config", {{"model_type", "qwen2_moe"}}}}, ErrorCode::unsupported,
                "model.json: text_config: field model_type is \"qwen2_moe\", which needs a mixture of experts");
  check_refused({{"model_type", "new_vision"}, {"text_config", {{"hidden_size", 64}}}}, ErrorCode::invalid_argument,
                "text_config: field model_type is missing");
  check_refused({{"text_config", small("llama")}, {"quantization_config", {{"quant_method", "fp8"}}}},
                ErrorCode::unsupported, "quantised by fp8");
  const ModelFile two = parse({{"text_config", small("llama", {{"dtype", "float16"}})}, {"dtype", "bfloat16"}});
  CHECK(two.model.dtype == DType::bf16);
  CHECK(two.notes.warnings.size() == 1);
}

TEST_CASE("model files: fields beside the text model that it would use or refuse, and has otherwise, are warnings",
          "[models]") {
  const auto beside = [](const char* type, const Json& outer, const Json& inner = Json::object()) {
    return with({{"model_type", "llava"}, {"text_config", small(type, inner)}}, outer);
  };
  const Json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}};
  const Json linear = {{"type", "linear"}, {"factor", 2.0}};
  CHECK(warning_of(beside("llama", {{"rope_scaling", yarn}})) ==
        "model.json: field rope_scaling is an object, but text_config.rope_scaling is absent; only text_config counts, "
        "and results are wrong if the field is of the text model");
  CHECK_THAT(warning_of(beside("llama", {{"rope_scaling", yarn}}, {{"rope_scaling", linear}})),
             Contains("text_config.rope_scaling is another object"));
  CHECK_THAT(warning_of(beside("llama", {{"rope_theta", 5e5}})),
             Contains("rope_theta is 500000.0, but text_config.rope_theta is absent, default 10000"));
  CHECK_THAT(warning_of(beside("llama", {{"rope_parameters", yarn}})),
             Contains("text_config.rope_parameters is absent"));
  CHECK_THAT(warning_of(beside("llama", {{"tie_word_embeddings", true}}, {{"tie_word_embeddings", false}})),
             Contains("text_config.tie_word_embeddings is false"));
  for (const auto& [type, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"mistral", "sliding_window"},
                                                                  {"llama", "sliding_window"},
                                                                  {"gemma2", "attn_logit_softcapping"},
                                                                  {"llama", "final_logit_softcapping"},
                                                                  {"granite", "residual_multiplier"},
                                                                  {"llama", "logit_scale"},
                                                                  {"llama", "head_dim"},
                                                                  {"llama", "partial_rotary_factor"}}) {
    INFO(type << " " << name);
    CHECK_THAT(warning_of(beside(type, {{name, 8}})),
               Contains(fmt::format("field {} is 8, but text_config.{} is ", name, name)));
  }
  CHECK_THAT(warning_of(beside("mistral", {{"sliding_window", nullptr}})),
             Contains("sliding_window is null, but text_config.sliding_window is absent, default 4096"));
  CHECK_THAT(warning_of(beside("mistral", {{"sliding_window", 4096}}, {{"sliding_window", nullptr}})),
             Contains("sliding_window is 4096, but text_config.sliding_window is null"));
  check_refused(beside("llama", {{"bits", 4}}), ErrorCode::unsupported, "quantised");
  const Json same = {{"rope_theta", 10000}, {"rope_scaling", linear}, {"hidden_size", 512}, {"vocab_size", 1000}};
  CHECK(warning_of(beside("llama", same, same)) == "");
  CHECK(warning_of(beside("llama", {{"rope_theta", 10000}, {"rope_scaling", nullptr}, {"attention_bias", false}})) ==
        "");
  CHECK(warning_of(beside("llama", {{"architectures", {"LlavaForConditionalGeneration"}}, {"image_token_index", 9}})) ==
        "");
}

TEST_CASE("model files: other files are told by name", "[models]") {
  const auto told = [](const Json& json, const std::string& name) {
    check_refused(json, ErrorCode::invalid_argument, name);
  };
  told({{"tokenizer_class", "LlamaTokenizer"}}, "tokenizer_config.json");
  told({{"_from_model_config", true}, {"eos_token_id", 2}}, "generation_config.json");
  told({{"peft_type", "LORA"}}, "adapter_config.json");
  told({{"weight_map", Json::object()}}, "index of weights");
  told({{"dim", 4096}, {"n_layers", 32}}, "params.json");
  told({{"error", "Repository not found"}}, "answer of a server");
  told({{"quant_method", "gptq"}, {"bits", 4}}, "quantised");
  told(Json::object(), "an empty object");
  told(Json::array({1, 2}), "an array, not an object");
  told("config", "a text, not an object");
}

TEST_CASE("model files: a file without any size is refused with the names of the sizes", "[models]") {
  const test::TempFolder folder;
  const auto write = [&](const Json& json) { std::ofstream(folder.file("config.json")) << json.dump(); };
  write({{"model_type", "llama"}});
  CHECK_THROWS_WITH(models::load_model_file(folder.file("config.json")),
                    EndsWith("config.json: fields hidden_size, intermediate_size, num_hidden_layers, "
                             "num_attention_heads, vocab_size, max_position_embeddings are missing; give the whole "
                             "config.json of a model"));
  write({{"model_type", "llama"}, {"vocab_size", 32064}});
  CHECK(models::load_model_file(folder.file("config.json")).model.vocab_size == 32064);
  write({{"model_type", "llava"}, {"text_config", {{"model_type", "llama"}}}});
  CHECK(models::load_model_file(folder.file("config.json")).model.hidden_size == 4096);
}

TEST_CASE("model files: a type, an activation or a rope that is mistyped is told with the nearest one", "[models]") {
  check_refused(small("lama"), ErrorCode::unsupported, "internlm2; did you mean llama?");
  check_refused(small("llama", {{"hidden_act", "sillu"}}), ErrorCode::unsupported, "; did you mean silu?");
  check_refused(small("llama", {{"rope_scaling", {{"rope_type", "yran"}, {"factor", 2}}}}), ErrorCode::unsupported,
                "; did you mean yarn?");
}

TEST_CASE("model files: a folder is read by its config.json, not where quantised weights lie beside it", "[models]") {
  const test::TempFolder folder;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(std::filesystem::path(folder.path()) / name, std::ios::binary) << text;
  };
  CHECK_THROWS_AS(models::load_model(folder.path()), Error);
  write("config.json", small("llama").dump());
  CHECK(models::load_model(folder.path()).layers == 8);
  write("hf_quant_config.json", "{}");
  CHECK_THROWS_WITH(models::load_model(folder.path()), Contains("hf_quant_config.json beside it"));
  CHECK_THROWS_AS(models::load_model("/nonexistent/model.json"), Error);
}

TEST_CASE("model files: layers that are said in two ways must be the same", "[models]") {
  Json types = Json::array();
  for (int layer = 0; layer < 8; ++layer) types.push_back(layer % 4 == 3 ? "full_attention" : "sliding_attention");
  const Json gemma = small("gemma3_text", {{"layer_types", types}, {"sliding_window", 128}});
  CHECK(parse(gemma).model.kind_of_layer == std::vector<int>{0, 0, 0, 1, 0, 0, 0, 1});
  CHECK(parse(with(gemma, {{"sliding_window_pattern", 4}})).model.kinds.size() == 2);
  check_refused(with(gemma, {{"sliding_window_pattern", 6}}), ErrorCode::invalid_argument,
                "gives layer 3 full_attention, but sliding_window_pattern gives it a window");
  check_refused(with(gemma, {{"sliding_window", nullptr}}), ErrorCode::invalid_argument, "there is none");
  types[2] = "linear_attention";
  check_refused(with(gemma, {{"layer_types", types}}), ErrorCode::unsupported, "gives layer 2 \"linear_attention\"");
  types.erase(0);
  check_refused(with(gemma, {{"layer_types", types}}), ErrorCode::invalid_argument, "a list of 8 texts");
  const Json all_full(std::vector<std::string>(8, "full_attention")),
      windows(std::vector<std::string>(8, "sliding_attention"));
  CHECK(parse(small("llama", {{"layer_types", all_full}})).notes.warnings.empty());
  check_refused(small("llama", {{"layer_types", windows}}), ErrorCode::invalid_argument,
                "there is none: llama has none");
  check_refused(small("mistral", {{"layer_types", all_full}}), ErrorCode::invalid_argument,
                "but sliding_window gives it");
  check_refused(small("qwen2", {{"layer_types", windows}}), ErrorCode::invalid_argument, "use_sliding_window is off");
  check_refused(small("qwen2", {{"layer_types", windows}, {"use_sliding_window", true}, {"max_window_layers", 4}}),
                ErrorCode::invalid_argument, "but max_window_layers gives it all keys");
  check_refused(small("smollm3", {{"no_rope_layers", {1, 1, 0, 1, 1, 1, 0, 1}}, {"no_rope_layer_interval", 4}}),
                ErrorCode::invalid_argument, "but no_rope_layer_interval is 4; keep one");
  check_refused(small("smollm3", {{"no_rope_layers", {1, 1, 0.5, 1, 1, 1, 1, 1}}}), ErrorCode::invalid_argument,
                "gives layer 2 0.5, must give it 0 or 1");
}

TEST_CASE("model files: a description has every number, for people and for programs", "[models]") {
  const ModelFile file =
      parse(small("gemma3_text", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}, {"bos_token_id", 2}}));
  std::map<std::string, models::ModelFact> facts;
  for (const models::ModelFact& fact : models::describe(file)) facts[fact.name] = fact;
  CHECK(facts.at("type").text == "gemma3_text");
  CHECK(facts.at("kv_heads").value == 4);
  CHECK(facts.at("layer_kinds").text ==
        "window (layers 0..4, 6..7): window 4096; rope default, base 10000, rotary_dim 64\n"
        "full (layers 5): all keys; rope linear, base 1000000, rotary_dim 64, factor 8");
  CHECK(facts.at("layer_kinds").value[1]["rope"]["factor"] == 8);
  CHECK(facts.at("layer_kinds").value[0]["layers"] == 7);
  CHECK(facts.at("norms").value["heads"] == "each_head");
  CHECK_THAT(facts.at("norms").text, Contains("of each head of q and k, eps 1e-06, weights + 1"));
  CHECK_THAT(facts.at("multipliers").text, Contains("embedding 22.6"));
  CHECK_THAT(facts.at("defaults").text, Contains("query_pre_attn_scalar = 256"));
  CHECK(facts.at("ignored").value["bos_token_id"] == "numbers of tokens");
  CHECK(facts.at("biases").text == "none");
}

}  // namespace seqtile::testing

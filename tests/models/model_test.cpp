// tests/models/model_test.cpp -- config.json of the architectures becomes operations.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/file/model_file.h"
#include "seqtile/error.h"
#include "seqtile/model.h"
#include "tests/support/kernels/kernel_cases.h"

namespace seqtile::testing {
namespace {

using models::Model;
using Json = nlohmann::json;

Json llama() {
  return {{"model_type", "llama"},
          {"torch_dtype", "bfloat16"},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-5},
          {"hidden_size", 576},
          {"intermediate_size", 1536},
          {"num_hidden_layers", 30},
          {"num_attention_heads", 9},
          {"num_key_value_heads", 3},
          {"vocab_size", 49152},
          {"max_position_embeddings", 8192},
          {"rope_theta", 1e5}};
}

Json with(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

Model parse(const Json& json) { return models::parse_model(json.dump(), "model.json"); }

std::vector<autotune::TuneRequest> operations(const Model& model) {
  return models::model_operations(model, {.lo = 1, .hi = 4096}, model.dtype, 2);
}

const autotune::Fields& fields_of(const std::vector<autotune::TuneRequest>& requests, const std::string& label) {
  for (const auto& request : requests)
    if (request.label == label) return request.workload.fields;
  throw Error(ErrorCode::internal, "no operation " + label);
}

}  // namespace

TEST_CASE("models: every shipped file is read and its operations are accepted", "[kernels]") {
  int count = 0;
  const auto folder = std::filesystem::path(SEQTILE_SOURCE_DIR) / "examples/models";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const Model model = models::load_model(file.path().string());
    for (const auto& request : operations(model)) {
      INFO(file.path() << " " << request.label);
      CHECK_NOTHROW(library_op(request.workload.operation).normalize(request.workload));
      CHECK(request.workload.dtype == DType::bf16);
      CHECK(request.workload.threads == 2);
    }
    ++count;
  }
  CHECK(count == 5);
}

TEST_CASE("models: a llama's operations with their lengths", "[kernels]") {
  const auto requests = operations(parse(llama()));
  std::vector<std::string> labels;
  for (const auto& request : requests) {
    labels.push_back(request.label);
    CHECK(request.lo == 1);
    CHECK(request.hi == (request.label == "lm_head" ? 256 : request.label == "attention_decode" ? 8192 : 4096));
  }
  CHECK(labels == std::vector<std::string>{"embedding", "input_norm", "qkv_proj", "rope", "attention_prefill",
                                           "attention_extend", "attention_decode", "o_proj", "residual_norm",
                                           "gate_up_proj", "down_proj", "lm_head"});
  const auto& qkv = fields_of(requests, "qkv_proj");
  CHECK(qkv.get_int("n") == 576);
  CHECK(qkv.get_int("n2") == 192);
  CHECK(qkv.get_int("n3") == 192);
  CHECK(qkv.get_int("k") == 576);
  CHECK(qkv.get_int("bias") == 0);
  CHECK(fields_of(requests, "gate_up_proj").get_int("gated") == 1);
  CHECK(fields_of(requests, "down_proj").get_int("k") == 1536);
  CHECK(fields_of(requests, "lm_head").get_int("n") == 49152);
}

TEST_CASE("models: ranges of lengths and keys are as asked for", "[kernels]") {
  const auto requests =
      models::model_operations(parse(llama()), {.lo = 300, .hi = 500, .kv_lo = 5, .kv_hi = 77}, DType::f32, 1);
  for (const auto& request : requests) {
    const bool is_head = request.label == "lm_head";  // of one row for each sequence, at any length
    CHECK(request.lo == (is_head ? 1 : request.label == "attention_decode" ? 5 : 300));
    CHECK(request.hi == (is_head ? 256 : request.label == "attention_decode" ? 77 : 500));
    CHECK(request.workload.dtype == DType::f32);
  }
}

TEST_CASE("models: what the architectures differ in", "[kernels]") {
  CHECK(fields_of(operations(parse(with(llama(), {{"model_type", "mistral"}, {"sliding_window", 4096}}))),
                  "attention_prefill")
            .get_int("window") == 4096);
  CHECK(fields_of(operations(parse(with(llama(), {{"model_type", "mistral"}, {"sliding_window", nullptr}}))),
                  "attention_prefill")
            .get_int("window") == 0);
  CHECK(fields_of(operations(parse(with(llama(), {{"model_type", "qwen2"}, {"sliding_window", 4096}}))),
                  "attention_prefill")
            .get_int("window") == 0);
  CHECK(fields_of(operations(parse(with(llama(), {{"model_type", "qwen2"}}))), "qkv_proj").get_int("bias") == 1);
  CHECK(fields_of(operations(parse(with(llama(), {{"model_type", "qwen2"}}))), "o_proj").get_int("bias") == 0);

  const auto gemma = operations(parse(with(llama(), {{"model_type", "gemma2"},
                                                     {"hidden_size", 2304},
                                                     {"num_attention_heads", 8},
                                                     {"num_key_value_heads", 4},
                                                     {"head_dim", 256},
                                                     {"sliding_window", 4096},
                                                     {"attn_logit_softcapping", 50.0},
                                                     {"query_pre_attn_scalar", 144},
                                                     {"hidden_activation", "gelu_pytorch_tanh"}})));
  CHECK(fields_of(gemma, "residual_norm").get_double("weight_offset", 0) == 1);
  CHECK(fields_of(gemma, "embedding").get_double("scale", 0) == 48);
  CHECK(fields_of(gemma, "attention_decode").get_int("window") == 0);
  CHECK(fields_of(gemma, "attention_decode_window").get_int("window") == 4096);
  CHECK(fields_of(gemma, "attention_extend").get_double("soft_cap", 0) == 50);
  CHECK(fields_of(gemma, "attention_extend").get_double("scale", 0) == Approx(1.0 / 12));
  CHECK(fields_of(gemma, "gate_up_proj").get_string("activation") == "gelu_tanh");
  CHECK(fields_of(gemma, "qkv_proj").get_int("n2") == 1024);

  const auto phi = operations(parse(with(llama(), {{"model_type", "phi3"},
                                                   {"hidden_size", 3072},
                                                   {"num_attention_heads", 32},
                                                   {"num_key_value_heads", 32},
                                                   {"sliding_window", 2047},
                                                   {"partial_rotary_factor", 0.75}})));
  CHECK(fields_of(phi, "attention_prefill").get_int("head_dim") == 96);
  CHECK(fields_of(phi, "rope").get_int("rotary_dim") == 72);
  CHECK(fields_of(phi, "attention_prefill").get_int("window") == 2047);

  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 32.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  CHECK(parse(with(llama(), {{"rope_scaling", scaling}})).kinds.front().rope.factor == 32);
}

}  // namespace seqtile::testing

// tests/models/model_ranks_test.cpp -- the share and the steps of a rank of a tensor and sequence parallel model.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <set>

#include "seqtile/error.h"
#include "seqtile/model.h"
#include "tests/support/kernels/kernel_cases.h"

namespace seqtile::testing {
namespace {

using models::Model;
using models::ModelRank;
using models::ModelShard;

Model model_with(int64_t heads, int64_t kv_heads) {
  Model model{.type = "llama", .dtype = DType::bf16};
  model.hidden_size = 576, model.intermediate_size = 1536, model.layers = 1, model.vocab_size = 49152;
  model.max_positions = 8192;
  model.heads = heads, model.kv_heads = kv_heads, model.head_dim = 64;
  model.activation = "silu", model.norm_eps = 1e-6;
  model.set_kind({.rope = {.rotary_dim = 64}});
  return model;
}

std::vector<std::pair<int64_t, int64_t>> heads_of_ranks(int64_t heads, int64_t kv_heads, int world_size) {
  std::vector<std::pair<int64_t, int64_t>> all;
  for (int rank = 0; rank < world_size; ++rank) {
    const ModelShard shard = models::shard_of(model_with(heads, kv_heads), rank, world_size);
    all.emplace_back(shard.heads, shard.kv_heads);
  }
  return all;
}

using Heads = std::vector<std::pair<int64_t, int64_t>>;

std::vector<autotune::TuneRequest> operations(const Model& model, const ModelRank& rank) {
  return models::rank_operations(model, {.lo = 1, .hi = 513}, model.dtype, 1, rank);
}

const autotune::TuneRequest& find(const std::vector<autotune::TuneRequest>& requests, const std::string& label) {
  for (const auto& request : requests)
    if (request.label == label) return request;
  throw Error(ErrorCode::internal, "no operation " + label);
}

}  // namespace

TEST_CASE("model ranks: KV groups are cut by the floor rule", "[kernels][seqpar]") {
  CHECK(heads_of_ranks(32, 8, 2) == Heads{{16, 4}, {16, 4}});
  CHECK(heads_of_ranks(9, 3, 2) == Heads{{3, 1}, {6, 2}});
  CHECK(heads_of_ranks(9, 3, 1) == Heads{{9, 3}});
}

TEST_CASE("model ranks: with fewer KV heads than ranks query heads are cut and KV heads replicated",
          "[kernels][seqpar]") {
  CHECK(heads_of_ranks(8, 2, 4) == Heads{{2, 1}, {2, 1}, {2, 1}, {2, 1}});
  CHECK(heads_of_ranks(9, 3, 4) == Heads{{2, 1}, {2, 2}, {2, 1}, {3, 1}});
  CHECK(heads_of_ranks(15, 3, 4) == Heads{{3, 1}, {4, 2}, {4, 4}, {4, 1}});  // 3 + 1 heads of two groups
}

TEST_CASE("model ranks: columns are cut in blocks and none is lost", "[kernels][seqpar]") {
  const Model model = model_with(48, 16);
  for (const int world_size : {1, 2, 3, 5, 16}) {
    ModelShard sum;
    for (int rank = 0; rank < world_size; ++rank) {
      const ModelShard shard = models::shard_of(model, rank, world_size);
      CHECK(shard.intermediate_size % 64 == 0);
      sum.intermediate_size += shard.intermediate_size;
      sum.vocab_size += shard.vocab_size;
      sum.heads += shard.heads;
    }
    CHECK(sum.intermediate_size == model.intermediate_size);
    CHECK(sum.vocab_size == model.vocab_size);
    CHECK(sum.heads == model.heads);
  }
}

TEST_CASE("model ranks: a rank without a head is refused", "[kernels][seqpar]") {
  const auto refusal = [](int heads, int kv_heads, int world_size) -> std::string {
    try {
      models::shard_of(model_with(heads, kv_heads), 0, world_size);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::unsupported);
      return error.what();
    }
    return "accepted";
  };
  CHECK(refusal(9, 3, 10) ==
        "10 ranks: the model has 9 attention heads to cut, so that a rank would have none; use at most 9 ranks");
  CHECK(refusal(1, 1, 2) ==
        "2 ranks: the model has 1 attention head to cut, so that a rank would have none; use at most 1 rank");
}

TEST_CASE("model ranks: products communicate, norms have own rows, the rest sees the whole sequence",
          "[kernels][seqpar]") {
  const ModelRank rank{1, 2, "processes"};
  const auto requests = operations(model_with(9, 3), rank);
  std::set<std::string> fused;
  for (const auto& request : requests) {
    INFO(request.label);
    CHECK_NOTHROW(library_op(request.workload.operation).normalize(request.workload));
    CHECK(request.workload.dtype == DType::bf16);
    CHECK(request.label != "residual_norm");
    if (!request.workload.fields.contains("world_size")) continue;
    fused.insert(request.label);
    CHECK(request.workload.fields.get_int("world_size") == 2);
    CHECK(request.workload.fields.get_string("fabric") == "processes");
  }
  CHECK(fused == std::set<std::string>{"qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head"});
  CHECK(find(requests, "input_norm").hi == 257);
  CHECK(find(requests, "embedding").hi == 257);
  CHECK(find(requests, "qkv_proj").hi == 513);
  CHECK(find(requests, "attention_prefill").hi == 513);
  const autotune::Fields& qkv = find(requests, "qkv_proj").workload.fields;
  CHECK(qkv.get_int("n") == 6 * 64);
  CHECK(qkv.get_int("n2") == 2 * 64);
  const autotune::Fields& output = find(requests, "o_proj").workload.fields;
  CHECK(output.get_int("n") == 576);
  CHECK(output.get_int("k") == 6 * 64);
  CHECK(output.get_int("residual") == 1);
  CHECK(output.get_int("norm") == 1);
  CHECK(output.get_double("eps", 0) == 1e-6);
  CHECK(find(requests, "embedding").workload.fields.get_int("vocab") == 49152);
  CHECK(find(requests, "lm_head").workload.fields.get_int("n") == 49152 / 2);
}

TEST_CASE("model ranks: a model that normalises before it adds keeps its own norm", "[kernels][seqpar]") {
  Model gemma = model_with(8, 4);
  gemma.type = "gemma2", gemma.norm_weight_offset = 1, gemma.norm_place = models::NormPlace::both;
  const auto requests = operations(gemma, {0, 2});
  CHECK(find(requests, "residual_norm").hi == 257);
  CHECK(find(requests, "o_proj").workload.fields.get_int("norm") == 0);
  CHECK(find(requests, "o_proj").workload.fields.get_int("residual") == 0);
}

}  // namespace seqtile::testing

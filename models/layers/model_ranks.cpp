// models/layers/model_ranks.cpp -- see seqtile/model.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "jit/base/counted.h"
#include "kernels/act/activation.h"
#include "seqtile/error.h"
#include "seqtile/ops/ranks.h"
#include "seqtile/seqpar.h"

namespace seqtile::models {
using namespace kernels;

namespace {

using autotune::TuneRequest;
using autotune::Workload;
using seqpar::FusedAllgatherAndLinear;
using seqpar::FusedLinearAndReducescatter;

constexpr int64_t kColumnBlock = 64;

struct Part {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// The part of `count` things that the floor rule gives to a rank. `thing` is their singular. Errors: unsupported if a
/// rank would have none.
Part part_of(const std::string& thing, int64_t count, int rank, int world_size) {
  if (count < world_size)
    throw Error(ErrorCode::unsupported,
                fmt::format("{} ranks: the model has {} to cut, so that a rank would have none; use at most {}",
                            world_size, counted(count, thing), counted(count, "rank")));
  const seqpar::Ranks ranks{.world_size = world_size};
  return {ranks.first_row(rank, count), ranks.first_row(rank + 1, count)};
}

int64_t columns_of(const std::string& thing, int64_t columns, int rank, int world_size) {
  const int64_t block = std::gcd(columns, kColumnBlock);
  return block * part_of(thing, columns / block, rank, world_size).size();
}

/// KV heads, copies included, that let equally many of the query heads `heads` read each: kernels support only that.
int64_t kv_copies(Part heads, int64_t group) {
  int64_t readers = 0;
  for (int64_t begin = heads.begin; begin < heads.end;) {
    const int64_t end = std::min((begin / group + 1) * group, heads.end);
    readers = std::gcd(readers, end - begin);
    begin = end;
  }
  return heads.size() / readers;
}

/// The model with this rank's heads and columns. The embedding stays whole.
Model cut(const Model& model, const ModelShard& shard) {
  Model own = model;
  own.heads = shard.heads;
  own.kv_heads = shard.kv_heads;
  own.intermediate_size = shard.intermediate_size;
  return own;
}

/// Whether the kernel that sums products can also normalise the sum. It only supports root mean squares without an
/// offset, and no norms of results before they are added.
bool is_norm_fused(const Model& model) {
  return model.norm_place == NormPlace::before && model.norm == Norm::rms && model.norm_weight_offset == 0;
}

void check_served(const Model& model) {
  const auto refuse = [&](bool is_so, const char* what) {
    if (is_so)
      throw Error(ErrorCode::unsupported,
                  fmt::format("{} model: no operation over ranks for {}; run it on one", model.type, what));
  };
  refuse(model.head_norm == HeadNorm::all_heads, "norms of all heads of a row (head_norm), which ranks cut");
}

seqpar::Ranks ranks_of(const ModelRank& rank) { return {rank.world_size, rank.fabric}; }

FusedAllgatherAndLinear gather_op(const Model& model, int64_t n) {
  return {{.n = n, .k = model.hidden_size, .dtype = model.dtype}};
}

/// The product whose sums are scattered to the ranks' own rows.
Workload reduce_workload(const Model& model, const ModelRank& rank, int64_t k, bool bias) {
  const bool is_fused = is_norm_fused(model);
  const Linear product{.n = model.hidden_size,
                       .k = k,
                       .bias = bias,
                       .residual = is_fused,
                       .dtype = model.dtype,
                       .scale = model.residual_scale};
  return FusedLinearAndReducescatter{.linear = product, .norm = is_fused, .eps = model.norm_eps}.workload(
      ranks_of(rank));
}

Workload gate_up_workload(const Model& model, const ModelRank& rank) {
  FusedAllgatherAndLinear op = gather_op(model, model.intermediate_size);
  op.linear.activation = parse_activation(model.activation);
  op.linear.gated = model.is_gated;
  op.linear.bias = model.mlp_bias;
  return op.workload(ranks_of(rank));
}

Workload head_workload(const Model& model, const ModelShard& shard, const ModelRank& rank) {
  FusedAllgatherAndLinear op = gather_op(model, shard.vocab_size);
  op.linear.bias = model.head_bias;
  op.linear.scale = model.logits_scale;
  op.linear.soft_cap = model.logits_soft_cap;
  return op.workload(ranks_of(rank));
}

Workload qkv_workload(const Model& model, const ModelRank& rank) {
  FusedAllgatherAndLinear op = gather_op(model, model.heads * model.head_dim);
  op.linear.n2 = op.linear.n3 = model.kv_heads * model.head_dim;
  op.linear.bias = model.qkv_bias;
  return op.workload(ranks_of(rank));
}

/// The operation over ranks for the product with this label. Other labels keep the request's own operation.
Workload rank_workload(const Model& own, const ModelShard& shard, const ModelRank& rank, const TuneRequest& request) {
  if (request.label == "qkv_proj") return qkv_workload(own, rank);
  if (request.label == "o_proj") return reduce_workload(own, rank, own.heads * own.head_dim, own.output_bias);
  if (request.label == "gate_up_proj" || request.label == "up_proj") return gate_up_workload(own, rank);
  if (request.label == "down_proj") return reduce_workload(own, rank, own.intermediate_size, own.mlp_bias);
  if (request.label == "lm_head") return head_workload(own, shard, rank);
  return request.workload;
}

bool has_own_rows(const std::string& operation) {
  return operation == "embedding" || operation == "rms_norm" || operation == "layer_norm";
}

}  // namespace

ModelShard shard_of(const Model& model, int rank, int world_size) {
  const int64_t group = model.heads / model.kv_heads;
  ModelShard shard;
  if (model.kv_heads >= world_size) {
    shard.kv_heads = part_of("KV head", model.kv_heads, rank, world_size).size();
    shard.heads = shard.kv_heads * group;
  } else {
    const Part heads = part_of("attention head", model.heads, rank, world_size);
    shard.heads = heads.size();
    shard.kv_heads = kv_copies(heads, group);
  }
  shard.intermediate_size = columns_of("intermediate_size block", model.intermediate_size, rank, world_size);
  shard.vocab_size = columns_of("vocab_size block", model.vocab_size, rank, world_size);
  return shard;
}

std::vector<TuneRequest> rank_operations(const Model& model, const ModelLengths& lengths, DType dtype, int threads,
                                         const ModelRank& rank) {
  check_served(model);
  const ModelShard shard = shard_of(model, rank.rank, rank.world_size);
  Model own = cut(model, shard);
  own.dtype = dtype;
  std::vector<TuneRequest> requests;
  for (TuneRequest& request : model_operations(own, lengths, dtype, threads)) {
    if (request.label == "residual_norm" && is_norm_fused(model)) continue;
    request.workload = rank_workload(own, shard, rank, request);
    request.workload.threads = threads;
    if (has_own_rows(request.workload.operation)) {
      request.lo = std::max<int64_t>(1, request.lo / rank.world_size);  // a rank without rows makes no call
      request.hi = (request.hi + rank.world_size - 1) / rank.world_size;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Step> rank_steps(const Model& model) {
  check_served(model);
  std::vector<Step> steps = distinct_steps(model);
  if (!is_norm_fused(model)) return steps;
  using Renamed = std::pair<std::string_view, const char*>;
  static constexpr Renamed kFused[] = {
      {"residual", "residual"}, {"sum", "y"}, {"y", "normed"}, {"weight", "norm_weight"}};
  const std::vector<Step> layer = layer_steps(model, 0, Phase::prefill);
  for (size_t i = 1; i < layer.size(); ++i) {
    if (layer[i].label != "residual_norm") continue;
    std::vector<Wire>& wires = std::ranges::find(steps, layer[i - 1].label, &Step::label)->wires;
    std::erase_if(wires, [](const Wire& wire) { return wire.argument == "y"; });
    for (Wire wire : layer[i].wires) {
      const auto name = std::ranges::find(kFused, wire.argument, &Renamed::first);
      if (name == std::end(kFused)) continue;
      wire.argument = name->second;
      wires.push_back(std::move(wire));
    }
  }
  std::erase_if(steps, [](const Step& step) { return step.label == "residual_norm"; });
  return steps;
}

}  // namespace seqtile::models

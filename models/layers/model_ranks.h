// models/layers/model_ranks.h -- the operations of a decoder model over ranks, tensor and sequence parallel.
// SPDX-License-Identifier: Apache-2.0
//
// Between the products the sequence is cut: each rank embeds, adds and normalises its own rows. Within the products
// heads and columns are cut: fused_allgather_and_linear gathers the rows for the first product, attention sees all rows
// of the rank's heads, and fused_linear_and_reducescatter sums the second product and scatters its rows. Sizes need not
// be divisible: shares can differ by a KV group or a block of columns, and so do the keys of the ranks' records.
#pragma once
#include <string>
#include <vector>

#include "models/layers/layer_program.h"
#include "models/layers/model_operations.h"

namespace seqtile::models {

struct ModelRank {
  int rank = 0, world_size = 1;
  std::string fabric = "threads";  ///< Fabric::kind(): part of the keys of operations that communicate
};

/// A rank's share of a model. Every rank has all of the embedding and the norms.
struct ModelShard {
  int64_t heads = 0, kv_heads = 0;  ///< kv_heads includes copies
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;  ///< columns of lm_head
};

/// KV groups are cut by the floor rule: rank r has groups [floor(r g / P), floor((r + 1) g / P)) with all their query
/// heads. With fewer groups than ranks, query heads are cut by this rule and the KV heads that they read are
/// replicated. If the rank's heads read several KV heads, and not equally many heads read each, some KV heads are
/// copied several times. Columns are cut in blocks of 64, or of the largest smaller power of two that divides their
/// number, so that rows of weights stay aligned.
/// Errors: unsupported where a rank would have no head or no column.
ModelShard shard_of(const Model& model, int rank, int world_size);

/// model_operations() of one rank. Operations that communicate, rope and attention have lengths of the whole sequence;
/// embedding and norms have lengths of the rank's own rows. The product that adds the residual also normalises the sum;
/// residual_norm remains only for layer norms and where results are normalised before they are added. lm_head gathers
/// its rows too: every rank computes its columns of all logits.
/// Errors: as shard_of().
std::vector<autotune::TuneRequest> rank_operations(const Model& model, const ModelLengths& lengths, DType dtype,
                                                   int threads, const ModelRank& rank);

/// distinct_steps() as a rank runs them: a product that sums takes the arguments of the next norm if it also
/// normalises. Workloads are those of the whole model. Errors: as rank_operations().
std::vector<Step> rank_steps(const Model& model);

}  // namespace seqtile::models

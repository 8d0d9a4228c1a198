// models/layers/model_ranks.h -- the operations of a decoder model that is cut over ranks: tensor and sequence
// parallel.
// SPDX-License-Identifier: Apache-2.0
//
// Between the products the sequence is cut: a rank looks up, adds and normalises its own rows. Inside them heads and
// columns are cut: fused_allgather_and_linear gathers the rows for the first product, attention sees all rows of the
// rank's heads, fused_linear_and_reducescatter sums the second product up and gives the rows back. Nothing has to
// divide anything: shares differ by a KV group, or by a block of columns, and so do the keys of the ranks' records.
#pragma once
#include <string>
#include <vector>

#include "models/layers/layer_program.h"
#include "models/layers/model_operations.h"

namespace seqtile::models {

struct ModelRank {
  int rank = 0, world_size = 1;
  std::string fabric = "threads";  ///< Fabric::kind(): part of the keys of what communicates
};

/// A rank's part of a model; embedding and norms it has whole.
struct ModelShard {
  int64_t heads = 0, kv_heads = 0;  ///< kv_heads: copies included
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;  ///< columns of the language model's head
};

/// KV groups are cut by the floor rule: rank r has groups [floor(r g / P), floor((r + 1) g / P)) with all their query
/// heads. With fewer groups than ranks query heads are cut so, and the KV heads that they read are replicated; where a
/// rank's heads read several KV heads and not equally many each, some are there more than once. Columns are cut in
/// blocks of 64, or of the largest power of two below that divides their number, so that rows of weights stay aligned.
/// Errors: unsupported where a rank would have no head or no column.
ModelShard shard_of(const Model& model, int rank, int world_size);

/// model_operations() of one rank. Lengths of what communicates, and of rope and attention, are those of the whole
/// sequence; embedding and norms have the rank's own rows. What adds the residual also gives the norm of the sum, so
/// that residual_norm is there only where results are normed before they are added, and for layer norms. The rows of
/// lm_head are gathered too: every rank computes its columns of all logits. Errors: as shard_of().
std::vector<autotune::TuneRequest> rank_operations(const Model& model, const ModelLengths& lengths, DType dtype,
                                                   int threads, const ModelRank& rank);

/// distinct_steps() as a rank runs them: products that sum up take the arguments of the norm behind them, where they
/// normalise at once. Workloads are those of the whole model. Errors: as rank_operations().
std::vector<Step> rank_steps(const Model& model);

}  // namespace seqtile::models

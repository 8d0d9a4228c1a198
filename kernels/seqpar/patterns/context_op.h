// kernels/seqpar/patterns/context_op.h -- what attention over the ranks' keys and its backward pass have in common.
// SPDX-License-Identifier: Apache-2.0
//
// Both compute with own rows what an operation of one rank, here called plain, computes with all rows. They take its
// static fields and its tiles, and add how a launch communicates.
#pragma once
#include <initializer_list>

#include "autotune/op_def.h"
#include "kernels/seqpar/exchange/fused_op.h"
#include "kernels/seqpar/exchange/transfer.h"

namespace seqtile::kernels::seqpar {

/// What every rank computes, as if it had all rows.
autotune::Workload plain_workload(const autotune::OpDef& plain, const autotune::Workload& w);
/// The fields of all operations over ranks, those of attention, and `flags` of the operation's own.
autotune::Workload normalize_context(const autotune::Workload& given, std::initializer_list<const char*> flags);

/// Fills `sequence` and the channel's arguments for the call that is measured: that of the longest rank.
bool fill_context_arg(const autotune::Problem& p, size_t arg, const ExchangeShape& exchange, uint64_t seed);

/// Tiles of the plain operation for a rank's rows, whose blocks of the other side are field `block_n`.
struct ContextTiles {
  const autotune::OpDef& plain;
  /// Whether the threads of a GPU hold the values of a tile beside what they know of the ranks.
  bool (*leaves_room)(const autotune::Workload& w, const autotune::Config& tile, const Target& target);
};

/// Chunks are whole blocks. Every tile has one schedule, the default tile all of them.
autotune::ConfigSpace context_space(const ContextTiles& tiles, const autotune::Workload& w, int64_t length,
                                    const Target& target);
autotune::Config context_default(const ContextTiles& tiles, const autotune::Workload& w, int64_t length,
                                 const Target& target);
double context_predicted_us(const autotune::OpDef& plain, const autotune::Workload& w, const autotune::Config& config,
                            int64_t length, const Target& target);

/// Of the plain operation over the whole sequence.
std::vector<int64_t> plain_symbols(int64_t length);

}  // namespace seqtile::kernels::seqpar

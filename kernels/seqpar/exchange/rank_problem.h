// kernels/seqpar/exchange/rank_problem.h -- a call on one process: what the longest rank computes from presets.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "kernels/seqpar/exchange/channel_args.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

/// A row of what is gathered in phase 0: of the tensor of own rows, or of the staging that is preset, where it stands
/// from `column` on.
std::vector<double> gathered_row(const autotune::Problem& problem, const Ranks& ranks, const ExchangeShape& exchange,
                                 const Tensor& own, int64_t row, int64_t column = 0);

/// Adds row `row` of what all peers of the longest rank have sent it in a phase.
void add_staged_rows(std::span<double> sum, const autotune::Problem& problem, const ExchangeShape& exchange, int phase,
                     const Ranks& ranks, int64_t row);

/// Fills x and the channel of an all-reduce: no rank has anything but zeros for the rows that this rank does not own,
/// so that one shot and two give the same. `idle_row`: the result of such a row. False for other arguments.
bool fill_all_reduce_arg(const autotune::Problem& problem, size_t arg, const Ranks& ranks,
                         const ExchangeShape& exchange, uint64_t seed,
                         const std::function<std::vector<double>(int64_t row)>& idle_row);

}  // namespace seqtile::kernels::seqpar

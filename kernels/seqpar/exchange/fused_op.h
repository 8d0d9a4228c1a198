// kernels/seqpar/exchange/fused_op.h -- what the operations of a channel have in common: fields, symbols, who owns
// which rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autotune/op_def.h"
#include "kernels/op/workload_reader.h"
#include "kernels/seqpar/exchange/channel_args.h"

namespace seqtile::kernels::seqpar {

/// world_size and fabric, which all of these operations have.
void read_rank_fields(WorkloadReader& reader);

int world_size_of(const autotune::Workload& w);
/// Ranks that share a GPU have one launch: one kernel, so the same static arguments and the same configuration.
bool share_a_launch(const autotune::Workload& w);
/// Whether ranks are threads or processes, on CPUs.
bool has_cpu_ranks(const autotune::Workload& w);
/// The rank whose call is measured: of contiguous rows it has the most.
int longest_rank(const autotune::Workload& w);
int64_t first_row(int rank, int64_t length, int world_size);
/// How an operation's rows are cut: its field `layout`, contiguous where it has none.
RowLayout layout_of(const autotune::Workload& w);
int64_t own_rows(const autotune::Workload& w, int rank, int64_t length);
/// Of the longest rank.
int64_t own_rows(const autotune::Workload& w, int64_t length);
/// Of the contiguous layout.
RowPlace place_of_row(int64_t row, int64_t length, int world_size);

/// A row of what is gathered in phase 0: of the tensor of own rows, or of the staging that is preset.
std::vector<double> gathered_row(const autotune::Problem& problem, const ExchangeShape& exchange, const Tensor& own,
                                 int64_t row);

/// The static arguments that all ranks must give alike, operation and dtype among them. A rank's share of the weights
/// may differ from those of its peers where they do not share a launch, and so may its threads.
autotune::Fields common_arguments(const autotune::Workload& w);
/// Whether two configurations of an operation put the same on the wire, whatever else differs.
bool look_alike(const autotune::Config& a, const autotune::Config& b);
/// A number of what ranks must have in common, and of what a configuration puts on the wire; its low bits are 0, for
/// the operation's number on the channel.
int64_t identity_of(const autotune::Workload& w, const autotune::Config& config);

/// Where no tensor has the rows of all ranks: the tensor `sequence` [length], of which nothing but the size is read.
void add_sequence_arg(autotune::Schema& schema);
bool fill_sequence_arg(const autotune::Problem& problem, size_t arg);
Tensor sequence_tensor(int64_t length);

/// Values of the symbols: length, own_rows where some tensor is cut, and those of the channel.
std::vector<int64_t> symbols_of(const autotune::Workload& w, int64_t length, bool is_cut,
                                const ExchangeShape& exchange);

/// Of an all-reduce: x and the staging of a call in which nobody has anything but zeros for the rows that this rank
/// does not own, so that one shot and two give the same. `idle_row`: the result of such a row. False for other
/// arguments.
bool fill_all_reduce_arg(const autotune::Problem& problem, size_t arg, const ExchangeShape& exchange, uint64_t seed,
                         const std::function<std::vector<double>(int64_t row)>& idle_row);

}  // namespace seqtile::kernels::seqpar

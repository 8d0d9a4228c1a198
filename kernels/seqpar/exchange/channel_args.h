// kernels/seqpar/exchange/channel_args.h -- the arguments by which a fused operation reaches its channel.
// SPDX-License-Identifier: Apache-2.0
//
// Behind an operation's own tensors stand the rank's staging and flags and the channel's control block, behind all
// tensors the operation's op id on the channel. A handle takes them from its channel. When a kernel is verified or
// tuned by one process alone they are made up: what goes to peers ends in one place that nobody reads, what they would
// send is there already, and no peer is awaited.
#pragma once
#include <functional>
#include <optional>

#include "kernels/seqpar/exchange/exchange.h"
#include "seqtile/op.h"

namespace seqtile::kernels::seqpar {

/// Needs of a channel for calls with up to `capacity` rows of all ranks.
ChannelOptions channel_options(const ExchangeShape& shape, int64_t capacity);

/// No tensor of the operation's own has the rows of all ranks: the tensor `sequence` [length], of which only the size
/// is read, says how many there are.
bool needs_sequence(const autotune::Schema& schema);
Tensor sequence_tensor(int64_t length);

/// The tensors of a call with `length` rows of all ranks, without the channel's.
template <class Op>
Call pack_rows(const Op& op, const typename Op::Args& args, int64_t length) {
  Call call = pack(op, args);
  call.length = length;
  if (needs_sequence(schema_of(op).schema)) call.add(sequence_tensor(length));
  return call;
}

/// Appends staging [staging_bytes] i8, flags [flag_words] i64 and channel [num_words] i64; the op id as the scalar
/// "number", which is its name in stored kernels. Where needs_sequence(), `sequence` comes before them.
void add_channel_args(autotune::Schema& schema);
/// Values of the symbols that add_channel_args() has added.
void add_channel_symbols(std::vector<int64_t>& symbols, const ExchangeShape& shape, int64_t capacity);

/// The kernel's parameters for them, all of them: the counters are the last workspace, the op id the only scalar.
/// `workspaces` declares those before the counters.
ChannelViews declare_channel(KernelBuilder& b, const std::function<void()>& workspaces = nullptr);

/// Fills such an argument for a call on one process; false for any other argument. `rank`: whose call it is.
bool fill_channel_arg(const autotune::Problem& problem, size_t arg, const ExchangeShape& shape, int rank,
                      uint64_t seed);

/// Rows [0, rows) of the segment of `source` in the staging of a problem that fill_channel_arg() has filled. `as`: read
/// as elements of another format.
Tensor staged_rows(const autotune::Problem& problem, const ExchangeShape& shape, int phase, int source, int64_t rows,
                   int parity, std::optional<DType> as = {});
/// Row `row` of the segment of `source`, of parity 0.
std::vector<double> staged_row(const autotune::Problem& problem, const ExchangeShape& shape, int phase, int source,
                               int64_t row);
/// Both parities get the row.
void write_staged_row(const autotune::Problem& problem, const ExchangeShape& shape, int phase, int source, int64_t row,
                      const std::vector<double>& values);

}  // namespace seqtile::kernels::seqpar

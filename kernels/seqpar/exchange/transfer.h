// kernels/seqpar/exchange/transfer.h -- rows that change ranks inside a launch: all-gather, all-to-all, broadcast.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <vector>

#include "kernels/seqpar/exchange/channel_args.h"
#include "seqtile/kernel.h"
#include "seqtile/op.h"

namespace seqtile::kernels::seqpar {

enum class Transfer : uint8_t {
  push,  ///< to each peer, to a segment of its own
  pull,  ///< what all get alike is written once, to the own staging, where the others read it
  join   ///< to every rank, the own one too, to where it stands among the rows of all: for few rows
};
/// The parameter "transfer" of a configuration.
Transfer transfer_of(const autotune::Config& config);

struct TransferSchedule {
  static TransferSchedule from(const autotune::Config& config);
  int64_t chunk_rows = 256;   ///< rows that one flag stands for
  int64_t push_programs = 1;  ///< that send; as many as there are chunks: all send before anyone receives
  Transfer way = Transfer::push;
  bool is_serial = false;  ///< nothing is computed before all rows have come: communicate, then compute
};

/// Whether it is offered. Two ranks write as much either way; on a GPU every tile would read its rows over the link.
bool may_pull(const Target& target, int world_size);
/// Rows of a chunk of about so many bytes, in rows of `row_bytes`; a multiple of what is copied at once.
int64_t rows_of_chunk(int64_t row_bytes, int64_t bytes);
constexpr int64_t kSmallestChunkBytes = 64 << 10;
/// The exchange of a gather whose kernel has this way, and its protocol.
ExchangeShape with_transfer(ExchangeShape gather, Transfer way);
const Protocol& protocol_of_gather(Transfer way);

/// The tile with every order, size of chunks, number of programs that send and way to send, the default first. `orders`
/// begins with the default one, "" where it has no name, and may end with "serial". Chunks are multiples of
/// `chunk_unit` rows. `may_pull`: as of the function.
std::vector<autotune::Config> transfer_schedules(const autotune::Config& tile, const std::vector<const char*>& orders,
                                                 const std::vector<int64_t>& programs, bool may_pull,
                                                 int64_t chunk_unit = 1);

/// The tile with rows that are joined, which wait for all ranks.
autotune::Config joined_schedule(autotune::Config tile, int64_t push_programs);

/// How many programs may send, the default first: one block of a GPU, or one of several threads, does not fill a link.
std::vector<int64_t> push_programs(const Setting& s);

/// A copy tile is copied at once, of rows with so many columns, or kDynamic. Its pieces are long, as memory is read
/// ahead along a row.
struct CopyTile {
  int64_t rows, columns;
};
CopyTile copy_tile(int64_t row_columns);

/// Rows [first, end) and the first `columns` columns of `from` to the same place of `to`.
void copy_rows(KernelBuilder& b, Var from, Var to, Var first, Var end, Operand columns);

/// A part goes to a peer: a view of [rows, columns], and the column of the staging's rows from which on it stands
/// there.
struct Part {
  Var from;
  Operand column = 0;
};

/// Rows [first, end) of all parts to `to`, a view of so many rows of a segment.
void copy_parts(KernelBuilder& b, const std::vector<Part>& parts, Var to, Var rows, Var first, Var end);

/// Program `program` of those that send: its chunks of what rank + 1, ..., rank + num_receivers get, the first chunk of
/// each first. `copy` brings a chunk to the staging of a rank: a peer's, or the own one where peers read it there.
void push_chunks(KernelBuilder& b, Exchange& ex, int num_receivers, Var program, const TransferSchedule& schedule,
                 const std::function<void(Var peer, Var chunk)>& copy);

/// The same for chunks of what is there as it is to be sent.
void push_rows(KernelBuilder& b, Exchange& ex, int num_receivers, Var program, const TransferSchedule& schedule,
               const std::function<std::vector<Part>(Var peer)>& parts);

/// i1: all chunks of rank + 1, ..., rank + num_senders have come; of as many senders as there are ranks, the own ones
/// too.
Var await_rows_of_all(KernelBuilder& b, Exchange& ex, int num_senders, Var tile);
/// i1: the tile has rows, and of a serial schedule those of all ranks have come.
Var may_begin(KernelBuilder& b, Exchange& ex, const TransferSchedule& schedule, Var tile, Var has_rows);

}  // namespace seqtile::kernels::seqpar

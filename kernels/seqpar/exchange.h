// kernels/seqpar/exchange.h -- the steps by which a kernel's ranks exchange data, as a kernel is built.
// SPDX-License-Identifier: Apache-2.0
//
// A kernel of this kind is a grid of programs that start in order: those that send come first, so that nobody waits
// for what has not been started; the last one awaits what no other has. The steps of each role must be those of the
// protocol's table (jit/fabric/protocol.h); build errors say where they are not.
//
//   Exchange ex(b, gather_protocol(), {...}, block, length);
//   ex.role("push", [&] { Var to = ex.target(0, peer, ...); copy; ex.publish(0, peer, chunk); });
//   ex.role("use",  [&] { Var ok = ex.await(0, source, chunk, chunk + 1, tile); b.if_then(ok, [&] { ex.source(...) })
//   }); ex.role_last(); ex.leave(outputs);
//
// Rows: rank r of P owns rows [floor(r s / P), floor((r + 1) s / P)) of s. A rank without rows has one empty chunk.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "jit/base/timeline_block.h"
#include "jit/builder.h"
#include "jit/fabric/protocol.h"

namespace seqtile::kernels::seqpar {

/// What a phase moves: rows of a segment, which has as many as a rank's share of the capacity.
struct PhaseShape {
  enum class Rows : uint8_t { of_source, of_owner } rows;  ///< whose share a segment holds
  DType dtype;
  int64_t columns;
  int64_t chunk_rows;  ///< rows that one flag stands for
};

struct ExchangeShape {
  int world_size;
  int64_t identity;  ///< a number that tells operations apart; 16 bits of its hash with the length go into the flags
  std::vector<PhaseShape> phases;
};

/// Bytes of the staging of one parity for `capacity` rows, and flags for each source.
int64_t staging_bytes(const ExchangeShape& shape, int64_t capacity);
int64_t flags_per_source(const ExchangeShape& shape, int64_t capacity);

class Exchange {
 public:
  /// `block` is the channel's control block, `length` the number of rows of all ranks. The first of the counters (i32)
  /// counts the programs that have ended; all are zero between launches.
  Exchange(KernelBuilder& b, const Protocol& protocol, ExchangeShape shape, Var block, Var counters, Var length);

  Var rank() const { return rank_; }
  /// Rank + 1 + i, around.
  Var peer(Var i);
  Var first_row(Var rank);
  Var num_rows(Var rank);
  /// Chunks of the segment that `source` has at `owner`, at least 1.
  Var num_chunks(int phase, Var owner, Var source);
  /// i1: some rank has given up. Whoever sends looks at this first: an aborted channel sends no flags.
  Var is_aborted();

  using Body = std::function<void()>;
  void role(std::string_view name, const Body& body);
  /// Awaits all flags of all peers.
  void last_role();

  /// This rank's segment of the peer's staging: [rows, columns].
  Var target(int phase, Var peer, Var rows);
  /// Stores what this program has written to the peer before, then the flag of the chunk.
  void publish(int phase, Var peer, Var chunk);
  /// i1: all flags of the source's chunks [first, last) have come. Else the channel is aborted.
  Var await(int phase, Var source, Var first, Var last, Var tile);
  /// The source's segment of the own staging: [rows, columns]. Only where await() returned true.
  Var source(int phase, Var source, Var rows);
  /// Ends every program. The last one of the launch ends the epoch, and fills the outputs with NaN where the channel is
  /// aborted.
  void leave(const std::vector<Var>& outputs);

 private:
  Var word(int64_t index);
  Var peer_word(Var peer, int64_t which);
  Var segment(int phase, Var owner, Var source, Var rows);
  Var flag(int phase, Var owner, Var source);
  Var abort_word(Var rank);
  Var wait_for_flag(int phase, Var source, Var chunk, Var tile);
  void raise(Var kind, Var peer, Var tile, Var seen);
  void note(ProtocolStep::Action action, int phase);
  void timed(std::string_view role, const Body& body);
  void record(timeline::Kind kind, int64_t phase = 0, Operand peer = -1, Operand chunk = -1);
  void fill_with_nan(Var output);

  KernelBuilder& b_;
  const Protocol& protocol_;
  const ExchangeShape shape_;
  Var block_, counters_, length_, rank_, epoch_, parity_, expected_, segment_rows_;
  PeerSteps noted_;
  int64_t role_ = 0;  ///< that is being built: timeline::role_word()
};

}  // namespace seqtile::kernels::seqpar

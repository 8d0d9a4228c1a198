// kernels/seqpar/exchange/exchange.h -- the steps by which a kernel's ranks exchange data, as a kernel is built.
// SPDX-License-Identifier: Apache-2.0
//
// A kernel of this kind is a grid of programs that start in order: those that send come first, so that nobody waits
// for what has not been started; the last one awaits what no other has. The steps of each role must be those of the
// protocol's table (jit/fabric/core/protocol.h); build errors say where they are not.
//
//   Exchange ex(b, gather_protocol(), {...}, block, length);
//   ex.role("push", [&] { Var to = ex.target(0, peer, ...); copy; ex.publish(0, peer, chunk); });
//   ex.role("use", [&] { b.when(ex.await(0, source, chunk, chunk + 1, tile), [&] { ex.source(0, source, ...); }); });
//   ex.last_role();
//   ex.leave(outputs);
//
// Rows: RowLayout says which a rank owns. A rank without rows has one empty chunk.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "jit/abi/timeline_events.h"
#include "jit/fabric/core/protocol.h"
#include "seqtile/abi.h"
#include "seqtile/builder.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

constexpr int64_t kSmallestChunk = 64;  ///< rows; channels have flags for chunks of this size

/// A phase moves the rows of a segment.
struct PhaseShape {
  enum class Rows : uint8_t {
    of_source,  ///< the share of the rank that sends
    of_owner,   ///< the share of the rank that receives
    all,        ///< those of all ranks; segments have at most `most_rows`
    of_root,    ///< those of all ranks, which only `root` sends: there is one segment
    shared,     ///< the share of the rank that receives, in one segment: each source writes columns of its own
    fixed       ///< `most_rows`, whatever the length is
  } rows;
  DType dtype;
  int64_t columns;
  int64_t chunk_rows;     ///< rows that one flag stands for
  int64_t most_rows = 0;  ///< 0: as many as the channel's capacity
  int root = 0;
  int64_t column_group = 0;  ///< shared: sources have whole groups of so many columns, by the floor rule
  bool is_pulled = false;    ///< the same for all: sources keep it in their own staging, where peers read it. CPU ranks
  /// Segments begin where their rows stand in the sequence, so that the segments of all ranks are one matrix.
  /// Only for contiguous rows of_source, and on CPU ranks.
  bool is_joined = false;
};

struct ExchangeShape {
  int world_size;
  int64_t identity;  ///< of what ranks must have in common; 16 bits of its hash with number and length go into flags
  std::vector<PhaseShape> phases;
  int first_phase = 0;  ///< of the protocol's; those of other forms of the operation have places of their own
  RowLayout layout = RowLayout::contiguous;
  bool presets_joined = false;  ///< for a call on one process the rows of phase 0 are there joined, too
};

/// Segments of a phase in the staging of each rank: one for each source, where there are several.
int64_t num_segments(const PhaseShape& phase, int world_size);
/// Bytes of the staging of one parity for `capacity` rows, of the first `num_phases` phases; and flags for each source.
int64_t staging_bytes(const ExchangeShape& shape, int64_t capacity, size_t num_phases);
inline int64_t staging_bytes(const ExchangeShape& shape, int64_t capacity) {
  return staging_bytes(shape, capacity, shape.phases.size());
}
int64_t flags_per_source(const ExchangeShape& shape, int64_t capacity);

/// A kernel's parameters of a channel: the control block, and the operation's op id there. The first of the counters
/// (i32) counts the programs that have ended; all are zero between launches.
struct ChannelViews {
  Var block, counters, op_id;
};

/// Rows [first, first + count) of a view of rank 2.
Var rows_of(KernelBuilder& b, Var view, Operand first, Var count);

/// i1: `start`, and each `next` of first, ..., last - 1 in turn; what follows a false one is not computed.
Var in_turn(KernelBuilder& b, Operand first, Operand last, Var start, const std::function<Var(Var i)>& next);

class Exchange {
 public:
  /// `length`: rows of all ranks.
  Exchange(KernelBuilder& b, const Protocol& protocol, ExchangeShape shape, const ChannelViews& channel, Var length);

  int world_size() const { return shape_.world_size; }
  /// Rows of all ranks.
  Var length() const { return length_; }
  Var counters() const { return counters_; }
  /// Read again each time, as is all of this kind: what stays in memory does not take registers beside a product.
  Var rank();
  /// Rank + 1 + i, around.
  Var peer(Var i);
  /// The first row of a rank in the contiguous layout, and the number of its rows.
  Var first_row(Var rank);
  Var num_rows(Var rank);
  /// Rows of the segment that `source` has at `owner`.
  Var segment_rows(int phase, Var owner, Var source);
  /// Chunks of the segment that `source` has at `owner`, at least 1.
  Var num_chunks(int phase, Var owner, Var source);
  /// Chunks of the longest segment that a call of this length may have; 0 without rows.
  Var most_chunks(int phase);
  /// i1: some rank has given up. Whoever sends looks at this first: an aborted channel sends no flags.
  Var is_aborted();

  using Body = std::function<void()>;
  void role(std::string_view name, const Body& body);
  /// Aborts the channel where the call has more rows.
  void refuse_above(int64_t most_rows);
  /// Awaits all flags of all peers.
  void last_role();

  bool is_pulled(int phase) const { return shape_of(phase).is_pulled; }
  /// i1: the peer is on another node, which reads nothing of this one's memory. CPU ranks.
  Var is_remote(Var peer);
  /// This rank's segment of the peer's staging: [rows, columns]. `as`: with rows read as elements of another format.
  Var target(int phase, Var peer, Var rows, std::optional<DType> as = {});
  /// Stores what this program has written to the peer before, then the flag of the chunk.
  void publish(int phase, Var peer, Var chunk);
  /// i1: all flags of the source's chunks [first, last) have come. Else the channel is aborted.
  Var await(int phase, Var source, Var first, Var last, Var tile);
  /// The source's segment of the own staging, or where it is kept, likewise. Only where await() returned true.
  Var source(int phase, Var source, Var rows, std::optional<DType> as = {});
  /// The rows of all ranks, where segments are joined: [length, columns]. Only where await() returned true for each
  /// rank.
  Var all_rows(int phase);
  /// Ends every program. The last one of the launch ends the epoch, and fills the outputs with NaN where the channel is
  /// aborted.
  void leave(const std::vector<Var>& outputs);

 private:
  const PhaseShape& shape_of(int phase) const { return shape_.phases[shape_.first_phase + phase]; }
  Var word(int64_t index);
  Var epoch(), parity();
  /// The value of a flag that this launch has raised.
  Var expected();
  Var most_rows(Var length);
  Var room(const PhaseShape& phase);
  Var peer_word(Var peer, int64_t which);
  Var kept(Var source);
  using Address = std::function<Var()>;
  Var segment_address(int phase, const Address& staging, Var source);
  Var segment(int phase, const Address& staging, Var source, Var rows, std::optional<DType> as);
  Var first_flag(int phase, Var source, Var per_source);
  Var flags_per_phase(Var per_source);
  Var flag(int phase, Var owner, Var source);
  void hand_over(int phase, Var peer, Var chunk);
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
  Var block_, counters_, length_, identity_;
  PeerSteps noted_;
  int64_t role_ = 0;  ///< that is being built: timeline::role_word()
};

/// Programs of a grid that are of several kinds, one kind after the other.
struct ProgramKind {
  std::string_view role;  ///< empty: the body names its roles itself
  Operand count;
  std::function<void(Var index)> body;  ///< `index`: among those of its kind
};

/// Emits the work of program `id`; a program behind the last kind has none.
void run_program(KernelBuilder& b, Exchange& ex, Var id, std::span<const ProgramKind> kinds);
/// The same for two kinds and one program more, which awaits the rest. `behind`: `id` less the programs that send.
void run_program(KernelBuilder& b, Exchange& ex, Var id, const ProgramKind& senders, Var behind,
                 const ProgramKind& users);

}  // namespace seqtile::kernels::seqpar

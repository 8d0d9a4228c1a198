// jit/fabric/protocol.h -- the steps by which ranks exchange data inside a launch: one table for every operation.
// SPDX-License-Identifier: Apache-2.0
//
// Epoch-parity. Launches of a channel are numbered: epoch e uses the staging buffers and flags of parity e & 1. A rank
// writes its data to a segment of a peer's staging that only it writes, then publishes: it stores e to a flag there
// that only it writes. The peer awaits the flag, then reads. Before its launch ends every rank awaits the flags of
// every peer, also those that it does not need. So whoever starts epoch e + 2 has seen the flags e + 1 of all peers,
// which they sent after the end of their epoch e, when all that they had read of it was read: no barrier, no
// acknowledgement, no reset, and nothing comes from the host.
//
// The kernel builder refuses a kernel whose steps are not those of its table; tests explore every order in which the
// ranks of a table can take them (tests/support/protocol_explorer.h). docs/seqpar/protocol.md has the whole argument.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace seqtile {

struct ProtocolStep {
  enum class Action : uint8_t {
    write,    ///< to this rank's segment of the peer's staging, or of the own one where that is read
    publish,  ///< this rank's flags at the peer, after the data
    await,    ///< the peer's flags here
    read      ///< the peer's segment, of the own staging or of the peer's
  };
  Action action;
  int phase;  ///< each phase has staging and flags of its own
  bool operator==(const ProtocolStep&) const = default;
};

/// Steps that are taken for one peer after the other: rank + 1, rank + 2, ...
using PeerSteps = std::vector<ProtocolStep>;

/// Programs of a launch that do the same; roles run side by side where a rank has the threads for it, else in order.
struct ProtocolRole {
  std::string name;
  std::vector<PeerSteps> loops;
};

/// The roles of one launch in the order of their programs. Behind the last one, every flag is awaited.
struct Protocol {
  std::string name;
  int num_phases;
  std::vector<ProtocolRole> roles;
};

/// Every rank gets every rank's shard, or its own part of it; ranks without data publish all the same. Serves
/// all-gather, all-to-all, broadcast and the one-shot all-reduce.
const Protocol& gather_protocol();
/// The same of what all others get alike: a rank writes it once, to its own staging, from which they read it.
const Protocol& pulled_gather_protocol();
/// Every rank's partial results go to the owner, who sums them up when all are there. Serves the all-to-all in front of
/// a product too, which needs all heads of a row.
const Protocol& reduce_scatter_protocol();
/// Reduce-scatter, then the owners' sums go to every rank.
const Protocol& two_shot_protocol();
/// A gather beside a reduce-scatter that does not depend on it.
const Protocol& gather_beside_reduce_scatter_protocol();

/// All of them, for tests.
std::vector<const Protocol*> all_protocols();

}  // namespace seqtile

// jit/fabric/core/protocol.h -- the steps by which ranks exchange data inside a launch: one table for every operation.
// SPDX-License-Identifier: Apache-2.0
//
// Epoch-parity. Launches of a channel are numbered: epoch e uses the staging buffers and flags of parity e & 1. A rank
// writes its data to a segment of a peer's staging that only it writes, then publishes: it stores e to a flag there
// that only it writes. The peer awaits the flag, then reads. Before its launch ends every rank awaits the flags of
// every peer, also flags that it does not need. So a rank that starts epoch e + 2 has seen the flags e + 1 of all
// peers. A peer sends its flag e + 1 after the end of its epoch e, when it has read all that it needed of that epoch.
// Epoch e + 2 may therefore reuse the buffers of epoch e: no barrier, no acknowledgement, no reset, no part of the
// host.
//
// The kernel builder refuses a kernel whose steps are not those of its table; tests explore every order in which the
// ranks of a table can take them (tests/support/protocol/protocol_explorer.h). docs/seqpar/protocol.md has the whole
// argument.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace seqtile {

struct ProtocolStep {
  enum class Action : uint8_t {
    write,    ///< to this rank's segment of the peer's staging, or of its own staging if peers read there
    publish,  ///< this rank's flags at the peer, after the data
    await,    ///< the peer's flags here
    read      ///< the peer's segment of this rank's staging, or of the peer's staging
  };
  Action action;
  int phase;  ///< each phase has staging and flags of its own
  bool operator==(const ProtocolStep&) const = default;
};

/// A loop over the peers rank + 1, rank + 2, ...; for each peer these steps are taken.
using PeerSteps = std::vector<ProtocolStep>;

/// Programs of a launch that do the same work. Roles run side by side if a rank has enough threads, else in order.
struct ProtocolRole {
  std::string name;
  std::vector<PeerSteps> loops;
};

/// The roles of one launch in the order of their programs. After the last role every flag is awaited.
struct Protocol {
  std::string name;
  int num_phases;
  std::vector<ProtocolRole> roles;
};

/// Every rank gets every rank's shard, or its own part of it; ranks without data publish all the same. Serves
/// all-gather, all-to-all, broadcast and the one-shot all-reduce.
const Protocol& gather_protocol();
/// Broadcast: each rank writes its shard once, to its own staging; the other ranks read it from there.
const Protocol& pulled_gather_protocol();
/// Every rank's partial results go to the owner, which sums them up when all have arrived. Also serves the all-to-all
/// in front of a product that needs all heads of a row.
const Protocol& reduce_scatter_protocol();
/// Reduce-scatter, then every owner's sums go to every rank.
const Protocol& two_shot_protocol();
/// A gather beside a reduce-scatter that does not depend on it.
const Protocol& gather_beside_reduce_scatter_protocol();

/// All protocols, for tests.
std::vector<const Protocol*> all_protocols();

}  // namespace seqtile

// jit/fabric/node_fabric.h -- ranks of several nodes: memory in common within a node, messages between nodes.
// SPDX-License-Identifier: Apache-2.0
//
// A rank's kernels write to a remote rank's memory as to any other rank's, but the address leads to a mirror in their
// own rank's memory. Instead of storing a flag, kernels leave an entry in the channel's outbox
// (jit/base/outbox_block.h), and the carrier sends rows and flag. CPU ranks only.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "jit/fabric.h"
#include "jit/fabric/node_link.h"

namespace seqtile::fabric {

/// How long a rank of another node may be silent before it counts as dead.
constexpr std::chrono::seconds kMostSilence{10};

/// Collective: the fabric's end of rank `rank`. `local`: the fabric of the ranks of its node, in the order of their
/// numbers in the whole fabric. `node_of`: for each rank the number of its node. Errors: unsupported (GPUs).
std::unique_ptr<Fabric> make_node_fabric(std::unique_ptr<Fabric> local, std::unique_ptr<NodeLink> link, int rank,
                                         const std::vector<int>& node_of,
                                         std::chrono::nanoseconds silence = kMostSilence);

bool has_several_nodes(const Fabric& fabric);

/// The queue in which a channel's kernels leave chunks for remote ranks.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual uint64_t address() const = 0;
  virtual int64_t num_entries() const = 0;
  /// A bit for each remote rank.
  virtual uint32_t remote_ranks() const = 0;
};

/// The outbox of a channel with this staging, these flags and this abort word, all memory of `fabric`. Null where all
/// ranks are on one node.
std::unique_ptr<Outbox> open_outbox(Fabric& fabric, const SymmetricMemory& staging, const SymmetricMemory& flags,
                                    const SymmetricMemory& abort);

}  // namespace seqtile::fabric

// jit/fabric/node_fabric.h -- ranks of several nodes: memory in common within a node, messages between nodes.
// SPDX-License-Identifier: Apache-2.0
//
// A rank's kernels write to a remote rank's memory as to any other, but what they reach is a mirror of it in the own
// memory. Instead of storing a flag they leave an entry in the channel's outbox (jit/base/outbox_block.h), and the
// carrier sends rows and flag. CPU ranks only.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "jit/fabric.h"
#include "jit/fabric/node_link.h"

namespace seqtile::fabric {

/// How long a rank of another node may be silent before it counts as dead.
constexpr std::chrono::seconds kMostSilence{10};

/// Collective: the end of rank `rank`, a rank of `local`, the fabric of its node's ranks, which are numbered in their
/// order in the whole one. `node_of`: of each rank, the number of its node. Errors: unsupported (GPUs).
std::unique_ptr<Fabric> make_node_fabric(std::unique_ptr<Fabric> local, std::unique_ptr<NodeLink> link, int rank,
                                         const std::vector<int>& node_of,
                                         std::chrono::nanoseconds silence = kMostSilence);

bool has_several_nodes(const Fabric& fabric);

/// Where a channel's kernels leave what goes to remote ranks.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual uint64_t address() const = 0;
  virtual int64_t num_entries() const = 0;
  /// A bit for each.
  virtual uint32_t remote_ranks() const = 0;
};

/// For memory of this fabric: the channel's staging, flags and abort word. Null where all ranks are on one node.
std::unique_ptr<Outbox> open_outbox(Fabric& fabric, const SymmetricMemory& staging, const SymmetricMemory& flags,
                                    const SymmetricMemory& abort);

}  // namespace seqtile::fabric

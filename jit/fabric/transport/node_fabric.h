// jit/fabric/transport/node_fabric.h -- ranks of several nodes: memory in common within a node, messages between nodes.
// SPDX-License-Identifier: Apache-2.0
//
// A rank's kernels write to a remote rank's memory as to any other rank's, but the address leads to a send buffer in
// their own rank's memory. Instead of storing a flag, kernels leave an entry in the channel's proxy queue
// (jit/abi/proxy_queue_block.h), and the proxy thread sends rows and flag. CPU ranks only.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "jit/fabric/transport/node_link.h"
#include "seqtile/fabric.h"

namespace seqtile::fabric {

/// How long a rank of another node may be silent before it counts as dead.
constexpr std::chrono::seconds kHeartbeatTimeout{10};

/// Collective: the fabric's end of rank `rank`. `local`: the fabric of the ranks of its node, in the order of their
/// numbers in the whole fabric. `node_of`: for each rank the number of its node. Errors: unsupported (GPUs).
std::unique_ptr<Fabric> make_node_fabric(std::unique_ptr<Fabric> local, std::unique_ptr<NodeLink> link, int rank,
                                         const std::vector<int>& node_of,
                                         std::chrono::nanoseconds heartbeat_timeout = kHeartbeatTimeout);

bool has_several_nodes(const Fabric& fabric);

}  // namespace seqtile::fabric

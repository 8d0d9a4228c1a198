// tests/support/ranks/node_ranks.h -- ranks of several nodes in one process, with delayed messages.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "jit/fabric/transport/node_fabric.h"
#include "seqtile/fabric.h"

namespace seqtile::testing {

struct NodeOptions {
  int num_nodes = 2;
  uint32_t seed = 1;
  int most_delay_us = 300;  ///< longest delay of a message; messages of other senders or receivers may overtake it
  std::chrono::nanoseconds heartbeat_timeout = fabric::kHeartbeatTimeout;
  bool is_around = false;  ///< true: ranks go to the nodes in turn; false: a node has neighbouring ranks
  /// True for a rank whose messages are lost from now on, as if its node had gone.
  std::function<bool(int rank)> is_cut_off = nullptr;
};

/// Ranks that are threads of this process, on nodes of nearly equal size.
std::vector<std::unique_ptr<Fabric>> make_node_ranks(int world_size, const NodeOptions& options = {});

}  // namespace seqtile::testing

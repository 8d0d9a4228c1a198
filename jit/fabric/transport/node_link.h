// jit/fabric/transport/node_link.h -- messages between ranks that have no memory in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

namespace seqtile::fabric {

struct NodeMessage {
  int from;
  std::vector<std::byte> bytes;
};

/// One rank's end of a link between all ranks. Messages from one rank to another arrive in order. One thread at a time.
class NodeLink {
 public:
  /// Gives messages under way a moment to arrive.
  virtual ~NodeLink() = default;
  /// Does not wait for the receiver. A message that cannot be delivered is lost.
  virtual void send(int to, std::vector<std::byte> bytes) = 0;
  /// The next message that has arrived, or nothing.
  virtual std::optional<NodeMessage> receive() = 0;
};

}  // namespace seqtile::fabric

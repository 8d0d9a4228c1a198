// jit/fabric/node_link.h -- messages between ranks that have no memory in common.
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

/// One rank's end. What a rank sends to another one arrives in its order. One thread at a time.
class NodeLink {
 public:
  /// Gives what was sent a moment to arrive.
  virtual ~NodeLink() = default;
  /// Waits for nobody. What cannot be delivered is lost.
  virtual void send(int to, std::vector<std::byte> bytes) = 0;
  /// What has come, if anything has.
  virtual std::optional<NodeMessage> receive() = 0;
};

}  // namespace seqtile::fabric

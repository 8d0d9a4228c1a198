// autotune/engine/graph_set.h -- one graph for each bucket, so that a replay runs what was tuned for its length.
// SPDX-License-Identifier: Apache-2.0
//
//   GraphSet graphs = capture_set(device, 8192, stream, [&](int64_t capacity) {
//     return std::vector{up.capture(args_of(capacity), capacity, device_length, stream), ...};
//   });
//   ... the length is written to device_length, on all ranks the same where operations communicate ...
//   graphs.launch(length, stream);
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "jit/device/device.h"

namespace seqtile {

class GraphSet {
 public:
  /// Replays the graph of the length's bucket; the smallest one for a length of 0.
  /// Errors: invalid_argument below 0 and above the capacity.
  void launch(int64_t length, Stream stream) const;
  /// What that graph was captured at.
  int64_t capacity_of(int64_t length) const { return graph_of(length).capacity; }
  size_t size() const { return graphs_.size(); }

 private:
  friend GraphSet capture_set(Device&, int64_t, Stream,
                              const std::function<std::vector<std::shared_ptr<const void>>(int64_t)>&);
  struct Captured {
    int64_t capacity = 0;
    std::vector<std::shared_ptr<const void>> kept;
    std::unique_ptr<Graph> graph;
  };
  const Captured& graph_of(int64_t length) const;

  std::vector<Captured> graphs_;  ///< by bucket
};

/// Captures `record`'s calls on `stream` once for each bucket up to `capacity`, at the bucket's largest length. It
/// returns what the captures want to be kept, as Handle::capture does.
/// Errors: invalid_argument for a capacity below 1; as DeviceStreams::begin_capture; those of `record`, after which the
/// stream captures no longer.
GraphSet capture_set(Device& device, int64_t capacity, Stream stream,
                     const std::function<std::vector<std::shared_ptr<const void>>(int64_t capacity)>& record);

}  // namespace seqtile

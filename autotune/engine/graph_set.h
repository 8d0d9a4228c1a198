// autotune/engine/graph_set.h -- one graph for each bucket, so that a replay runs the kernels tuned for its length.
// SPDX-License-Identifier: Apache-2.0
//
//   GraphSet graphs = capture_set(device, 8192, stream, [&](int64_t capacity) {
//     return std::vector{up.capture(args_of(capacity), capacity, device_length, stream), ...};
//   });
//   ... write the length to device_length; ranks that communicate write the same length ...
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
  /// Replays the graph of the length's bucket, or of the first bucket for a length of 0.
  /// Errors: invalid_argument on a length below 0 or above the capacity of the set.
  void launch(int64_t length, Stream stream) const;
  /// The length at which the graph for `length` was captured. Errors: as launch().
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

/// Captures the calls that `record` makes on `stream`, once for each bucket up to `capacity`, at the bucket's largest
/// length. `record` returns the results of Handle::capture; the set keeps them as long as the graphs.
/// Errors: invalid_argument on a capacity below 1; those of DeviceStreams::begin_capture and of `record`. The stream
/// captures no longer after an error.
GraphSet capture_set(Device& device, int64_t capacity, Stream stream,
                     const std::function<std::vector<std::shared_ptr<const void>>(int64_t capacity)>& record);

}  // namespace seqtile

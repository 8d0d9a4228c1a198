// autotune/engine/graph_set.cpp -- see seqtile/engine.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "jit/device/capture.h"
#include "seqtile/error.h"
#include "seqtile/op.h"

namespace seqtile {

const GraphSet::Captured& GraphSet::graph_of(int64_t length) const {
  const int64_t capacity = graphs_.empty() ? -1 : graphs_.back().capacity;
  if (length < 0 || length > capacity)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("length {} is not in 0..{}, for which graphs were captured", length, capacity));
  return graphs_[static_cast<size_t>(autotune::bucket_index(std::max<int64_t>(length, 1)))];
}

void GraphSet::launch(int64_t length, Stream stream) const { graph_of(length).graph->launch(stream); }

GraphSet capture_set(Device& device, int64_t capacity, Stream stream,
                     const std::function<std::vector<std::shared_ptr<const void>>(int64_t)>& record) {
  if (capacity < 1)
    throw Error(ErrorCode::invalid_argument, fmt::format("graphs for up to {} rows: at least 1 is needed", capacity));
  GraphSet set;
  for (const autotune::Bucket& bucket : autotune::buckets(1, capacity)) {
    GraphSet::Captured captured{std::min(bucket.hi, capacity), {}, nullptr};
    captured.graph = capture(device.streams(), stream, [&] { captured.kept = record(captured.capacity); });
    set.graphs_.push_back(std::move(captured));
  }
  return set;
}

}  // namespace seqtile

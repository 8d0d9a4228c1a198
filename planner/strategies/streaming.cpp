// planner/strategies/streaming.cpp -- see streaming.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/strategies/streaming.h"

#include "planner/graph/local_shape.h"

namespace seqtile::planner {

std::array<int64_t, 6> rows_and_columns(const RuleView& node, Layout layout) {
  const Shape& shape = node.shape();
  std::array<int64_t, 6> sizes{1, 1};
  for (size_t dim = 0; dim < shape.size(); ++dim)
    sizes[dim + 1 == shape.size()] *=
        local_size(shape[dim], node.mesh().devices(layout.axes_of(static_cast<int>(dim))));
  return sizes;
}

Work streaming_work(const RuleView& node, const Rule& rule, const Cut& cut, const StreamKernel& kernel) {
  const double forward = node.traffic(rule, cut), flops = node.result_bytes(rule, cut) / node.element_bytes();
  KernelCall call{kernel.forward, node.dtype(), rows_and_columns(node, node.result(rule, cut)), flops, forward};
  if (!kernel.has_rows) call.sizes = {call.sizes[0] * call.sizes[1]};
  Work work;
  work.forward = node.time(call, work);
  if (!node.has_any_gradient()) return work;
  call.operation = kernel.backward;
  call.bytes = 2 * forward - node.result_bytes(rule, cut);
  work.backward = node.time(call, work);
  return work;
}

bool add_streaming(RuleView& node, const Rule& rule, const StreamKernel& kernel) {
  for (const Cut& cut : node.cuts(rule)) node.add(rule, cut, streaming_work(node, rule, cut, kernel));
  return true;
}

bool add_free(RuleView& node, const Rule& rule) {
  for (const Cut& cut : node.cuts(rule)) node.add(rule, cut, {});
  return true;
}

}  // namespace seqtile::planner

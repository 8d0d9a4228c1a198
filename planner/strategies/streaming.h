// planner/strategies/streaming.h -- operators that read and write each element once, or only move elements.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {

/// Operation names of the kernel calls (kernel_times.h).
struct StreamKernel {
  const char *forward, *backward;
  bool has_rows = true;
};
inline constexpr StreamKernel kElementwise{"elementwise", "elementwise_backward", false},
    kSoftmax{"softmax", "softmax_backward"};

/// Rows and columns of a device's part of the result.
std::array<int64_t, 6> rows_and_columns(const RuleView& node, Layout layout);

/// The work of reading each operand and writing the result. The backward pass reads the operands and the gradient of
/// the result, and writes the gradients of the operands.
Work streaming_work(const RuleView& node, const Rule& rule, const Cut& cut, const StreamKernel& kernel);
/// Adds a strategy for every cut of the rule, with streaming_work(). Returns true.
bool add_streaming(RuleView& node, const Rule& rule, const StreamKernel& kernel);
/// Adds a strategy for every cut of the rule, without a kernel. Returns true.
bool add_free(RuleView& node, const Rule& rule);

}  // namespace seqtile::planner

// planner/strategies/streaming.h -- operators that read and write each element once, and those that only move them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {

/// Names of the kernel calls (kernel_times.h).
struct StreamKernel {
  const char *forward, *backward;
  bool has_rows = true;
};
inline constexpr StreamKernel kElementwise{"elementwise", "elementwise_backward", false},
    kSoftmax{"softmax", "softmax_backward"};

/// Rows and columns of the result's part.
std::array<int64_t, 6> rows_and_columns(const RuleView& node, Layout layout);

/// Each operand is read and the result written; the backward pass reads the result's gradient beside the operands and
/// writes theirs.
Work streaming_work(const RuleView& node, const Rule& rule, const Cut& cut, const StreamKernel& kernel);
/// All cuts of the rule. Returns true.
bool add_streaming(RuleView& node, const Rule& rule, const StreamKernel& kernel);
/// The same without a kernel.
bool add_free(RuleView& node, const Rule& rule);

}  // namespace seqtile::planner

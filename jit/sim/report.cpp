// jit/sim/report.cpp -- see the header.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/report.h"

namespace seqtile::sim {
namespace {

constexpr size_t kMost = 5000;

}  // namespace

std::string_view report_kind_name(ReportKind kind) {
  static constexpr std::string_view kNames[] = {"out of bounds",
                                                "misaligned",
                                                "uninitialised register",
                                                "uninitialised memory",
                                                "missing wait",
                                                "missing fence",
                                                "race",
                                                "scope too narrow",
                                                "deadlock",
                                                "barrier",
                                                "mbarrier",
                                                "wgmma",
                                                "tensor map",
                                                "divergence",
                                                "early exit",
                                                "private memory",
                                                "read-only memory",
                                                "trap",
                                                "limit",
                                                "registers"};
  return kNames[static_cast<size_t>(kind)];
}

void ReportSink::add(Report report) {
  const std::lock_guard lock(mutex_);
  ++total_;
  if (total_ > kMost || report.kind == ReportKind::limit) is_enough_ = true;
  const bool is_full = reports_.size() >= max_kept_ && report.kind != ReportKind::limit;
  if (is_full || !seen_.emplace(report.kind, report.line).second) return;
  reports_.push_back(std::move(report));
}

}  // namespace seqtile::sim

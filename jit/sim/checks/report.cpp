// jit/sim/checks/report.cpp -- see the header.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/checks/report.h"

#include <algorithm>
#include <tuple>

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

void ReportSink::add(Report report, uint32_t cohort) {
  const std::lock_guard lock(mutex_);
  ++total_;
  if (total_ > kMost || report.kind == ReportKind::limit) is_enough_ = true;
  const std::pair key(report.kind, report.line);
  const auto found = kept_.find(key);
  if (found == kept_.end() || cohort < found->second.cohort)
    kept_.insert_or_assign(key, Kept{cohort, total_, std::move(report)});
}

std::vector<Report> ReportSink::take() {
  std::vector<Kept*> order;
  for (auto& [key, kept] : kept_) order.push_back(&kept);
  std::ranges::sort(order, {}, [](const Kept* kept) { return std::tuple(kept->cohort, kept->number); });
  std::vector<Report> reports;
  for (Kept* kept : order)
    if (reports.size() < max_kept_ || kept->report.kind == ReportKind::limit)
      reports.push_back(std::move(kept->report));
  kept_.clear();
  return reports;
}

}  // namespace seqtile::sim

// jit/sim/checks/report.h -- faults of a launch that the machine has found, as data.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqtile::sim {

enum class ReportKind {
  out_of_bounds,
  misaligned,
  uninitialised_register,
  uninitialised_memory,
  missing_wait,
  missing_fence,
  race,
  scope,
  deadlock,
  barrier,
  mbarrier,
  wgmma,
  tensor_map,
  divergence,
  early_exit,
  private_memory,
  read_only,
  trap,
  limit,
  registers,
};
/// The words that a report starts with: "race", "missing wait".
std::string_view report_kind_name(ReportKind kind);

struct Report {
  ReportKind kind;
  int line = 0;  ///< line of the PTX text; 0 where no single line is at fault
  int cta = -1, warp = -1, lane = -1, device = 0;
  std::string message;  ///< the whole sentence, kernel and line text included
};

/// Collects reports of one launch from several threads. One report per kind and line is kept: the report of the first
/// cohort that has one, whichever thread is faster. The other reports are only counted.
class ReportSink {
 public:
  explicit ReportSink(size_t max_kept) : max_kept_(max_kept) {}
  void add(Report report, uint32_t cohort);
  /// True when running on is pointless: too many reports came, or the launch does not end.
  bool is_enough() const { return is_enough_; }
  size_t total() const { return total_; }
  /// The kept reports, in the order of the cohorts, and of time within a cohort.
  std::vector<Report> take();

 private:
  std::mutex mutex_;
  size_t max_kept_, total_ = 0;
  std::atomic<bool> is_enough_{false};
  struct Kept {
    uint32_t cohort;
    size_t number;  ///< place among all reports, by time
    Report report;
  };
  std::map<std::pair<ReportKind, int>, Kept> kept_;
};

}  // namespace seqtile::sim

// autotune/call/verify.h -- is a candidate's result right? On poisoned outputs, against the plain reference.
// SPDX-License-Identifier: Apache-2.0
//
// Checked for every input set: nothing written outside of the outputs, no element left unwritten, values within the
// operation's tolerance (all rows at short lengths; first, last, tile edges and some others at long ones), and the
// same bits from a second run. Reference rows are computed once and serve every candidate. docs/tuning.md has the
// rules.
#pragma once
#include <map>

#include "autotune/call/device_mirror.h"
#include "autotune/call/launcher.h"
#include "autotune/call/problem.h"
#include "autotune/runner.h"

namespace seqtile::autotune {

/// One input set at one length.
struct Probe {
  int64_t length = 1;
  int set = 0;
};

/// Reference rows of one workload: (length, set) -> row -> its elements in every output. Inputs follow from length and
/// set, so rows stay valid while a worker turns to other workloads and back.
using ReferenceRows = std::map<int64_t, std::vector<std::vector<double>>>;
using ReferenceCache = std::map<std::pair<int64_t, int>, ReferenceRows>;

class Checker {
 public:
  /// `reference` belongs to this workload and must outlive the checker.
  Checker(const OpDef& op, const Workload& workload, Device& device, int64_t max_length, ReferenceCache& reference);
  /// Every probe in turn, up to the first failure. `repeat`: the first probe runs twice and must give the same bits.
  /// Launches of more than `max_work` flops (or bytes moved, at five flops a byte) run on a slice of their grid.
  Verdict check(const LoadedCandidate& candidate, std::span<const Probe> probes, bool repeat, double max_work);

 private:
  Verdict check_probe(const LoadedCandidate& candidate, const Probe& probe, bool repeat);
  bool run(const LoadedCandidate& candidate, const Problem& problem, const std::vector<WorkspaceView>& workspaces);
  DeviceMirror mirror_memory();
  Verdict compare(const Problem& problem, ReferenceRows& known, const std::vector<int64_t>& rows, bool whole);
  std::vector<int64_t> pick_rows(const Problem& problem, int set, bool whole) const;
  void add_reference(const Problem& problem, ReferenceRows& known, const std::vector<int64_t>& rows);

  const OpDef& op_;
  const Workload& workload_;
  Device& device_;
  CheckBuffers buffers_;
  CallLayout layout_;
  double max_work_ = 0;
  std::vector<size_t> outputs_;  ///< positions of the outputs in the schema
  ReferenceCache& reference_;
};

}  // namespace seqtile::autotune

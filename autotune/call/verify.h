// autotune/call/verify.h -- verifies a candidate's results against the reference, on poisoned outputs.
// SPDX-License-Identifier: Apache-2.0
//
// A candidate must write only to its outputs, write every element, keep to the operation's tolerance, and give the same
// bits in a second run. Short lengths are compared in all rows, long lengths in the first row, the last row, rows at
// edges of tiles and some others. Reference rows are computed once and serve every candidate. docs/tuning.md has the
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

/// Reference rows of one workload: (length, set) -> row -> elements of that row in every output. Length and set
/// determine the inputs, so that the rows stay valid while a worker handles other workloads.
using ReferenceRows = std::map<int64_t, std::vector<std::vector<double>>>;
using ReferenceCache = std::map<std::pair<int64_t, int>, ReferenceRows>;

class Checker {
 public:
  /// Requires: `reference` belongs to this workload and outlives the checker. Errors: out_of_resources.
  Checker(const OpDef& op, const Workload& workload, Device& device, int64_t max_length, ReferenceCache& reference);
  /// Checks the probes in order, up to the first failure. `repeat`: the first probe runs twice and must give the same
  /// bits. On CPUs a launch of more than `max_work` flops (a byte moved counts as five) runs on a slice of its grid.
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

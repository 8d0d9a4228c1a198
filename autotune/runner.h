// autotune/runner.h -- candidates run in worker processes that may crash, hang or be wrong.
// SPDX-License-Identifier: Apache-2.0
//
// The tuner decides; a Runner compiles, verifies and measures for it. ProcessRunner starts this executable again (or
// SEQTILE_WORKER) by exec, connected by a socket pair. A command that crashes its worker or exceeds its time limit is a
// failed trial, and the next command gets a new worker.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "autotune/gpu_model.h"
#include "seqtile/op.h"

namespace seqtile::autotune {

/// The result of a candidate's compilation, check or measurement; outcomes as in cache::TrialRow.
struct Verdict {
  std::string outcome = "ok";
  std::string detail;
  double max_rel_err = 0;
  bool ok() const { return outcome == "ok"; }
};

/// Microseconds of one candidate, one value a round. A candidate that was stopped as a loser has fewer rounds.
struct Series {
  Verdict verdict;
  std::vector<double> us;
  bool sliced = false;  ///< measured on a slice of the grid and scaled
};

struct MeasurePlan {
  int64_t length = 1;
  int min_rounds = 7, max_rounds = 15;
  double limit_s = 0.4;     ///< no round starts after this time; three are always made
  bool stop_losers = true;  ///< the first candidate is the baseline and is never stopped
  /// For an operation that communicates: all ranks run a candidate together from an aligned start, and a round's time
  /// is that of the slowest rank. No loser is stopped.
  bool on_all_ranks = false;
};

/// A small call of a candidate for the PTX machine.
struct CountTask {
  Config config;
  Workload workload;  ///< of the current operation
  int64_t length = 1;
};

struct Counted {
  Verdict verdict;
  ProgramCounts counts;  ///< per program
};

/// A runner works on one workload at a time. Not thread-safe. A failure of a candidate is a verdict; an error of the
/// machine (a worker that cannot be started) is thrown.
class Runner {
 public:
  virtual ~Runner() = default;
  /// Makes `workload` the current one; no later call asks for a length above `max_length`.
  virtual void begin(const OpDef& op, const Workload& workload, int64_t max_length) = 0;
  /// Gets the binaries of all candidates, from the artifact store or by compiling in parallel.
  virtual std::vector<Verdict> compile(std::span<const Config> candidates) = 0;
  /// Compares a compiled candidate with the reference on three input sets at short lengths; called once a workload.
  virtual Verdict check(const Config& candidate) = 0;
  /// Compares a compiled candidate with the reference at lengths of one bucket.
  virtual Verdict check_bucket(const Config& candidate, const Bucket& bucket) = 0;
  /// Measures verified candidates in interleaved rounds; one series a candidate.
  virtual std::vector<Series> measure(std::span<const Config> candidates, const MeasurePlan& plan) = 0;
  /// Puts the candidate's binary into the artifact store; returns false if the store does not take it.
  virtual bool keep(const Config& candidate) = 0;
  /// GPUs: counts the work of programs on the PTX machine, in parallel. An instruction that the PTX machine does not
  /// know is a verdict.
  virtual std::vector<Counted> count(std::span<const CountTask> tasks) = 0;
  /// Seconds of a clock that never goes back.
  virtual double now_s() = 0;
};

}  // namespace seqtile::autotune

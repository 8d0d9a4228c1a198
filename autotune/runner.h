// autotune/runner.h -- candidates run in worker processes that may crash, hang or be wrong.
// SPDX-License-Identifier: Apache-2.0
//
// The tuner decides; a Runner compiles, verifies and measures for it. The real one starts this executable again (or
// SEQTILE_WORKER) by exec, connected by a socket pair. A command that crashes its worker or outlives its limit is a
// failed trial; the next worker starts. A program that tunes its own operations calls run_worker() first thing in
// main().
#pragma once
#include <span>
#include <string>
#include <vector>

#include "autotune/bucket.h"
#include "autotune/op_def.h"

namespace seqtile::autotune {

/// What became of a candidate: outcomes as in cache::TrialRow.
struct Verdict {
  std::string outcome = "ok";
  std::string detail;
  double max_rel_err = 0;
  bool ok() const { return outcome == "ok"; }
};

/// One candidate's microseconds, one value a round; shorter than the others' when it was stopped as a loser.
struct Series {
  Verdict verdict;
  std::vector<double> us;
  bool sliced = false;  ///< measured on a slice of the grid and scaled
};

struct MeasurePlan {
  int64_t length = 1;
  int min_rounds = 7, max_rounds = 15;
  double limit_s = 0.4;     ///< no further round once it has passed (three are always made)
  bool stop_losers = true;  ///< the first candidate is the yardstick and is never stopped
  /// Of an operation that communicates: all of its ranks run each candidate at once, from an aligned start, and a
  /// round's time is that of the slowest rank. Losers run on.
  bool on_all_ranks = false;
};

/// A small call of a candidate for the PTX machine.
struct CountTask {
  Config config;
  Workload workload;  ///< of the same operation as the current one
  int64_t length = 1;
};

struct Counted {
  Verdict verdict;
  ProgramCounts counts;  ///< of one program
};

/// Works on one workload at a time. Not thread-safe. Failures of candidates are verdicts; errors of the machine
/// (a worker that cannot be started) are thrown.
class Runner {
 public:
  virtual ~Runner() = default;
  /// Makes `workload` the current one; no later call asks for a length above `max_length`.
  virtual void begin(const OpDef& op, const Workload& workload, int64_t max_length) = 0;
  /// Gets the binaries of all candidates, from the artifact store or by compiling in parallel.
  virtual std::vector<Verdict> compile(std::span<const Config> candidates) = 0;
  /// Runs a compiled candidate on three input sets at short lengths against the reference; once a workload.
  virtual Verdict check(const Config& candidate) = 0;
  /// Verifies it at the lengths of one bucket.
  virtual Verdict check_bucket(const Config& candidate, const Bucket& bucket) = 0;
  /// Interleaved rounds over verified candidates.
  virtual std::vector<Series> measure(std::span<const Config> candidates, const MeasurePlan& plan) = 0;
  /// Puts the candidate's binary into the artifact store; false when that does not take it.
  virtual bool keep(const Config& candidate) = 0;
  /// GPUs: counts what programs do, in parallel. What the machine does not know is a verdict.
  virtual std::vector<Counted> count(std::span<const CountTask> tasks) = 0;
  virtual double now_s() = 0;
};

/// Returns false at once in an ordinary process. In a worker process it serves until the connection closes, sets
/// `exit_code` and returns true: main() then returns it.
bool run_worker(int argc, char** argv, const Registry& registry, int& exit_code);

}  // namespace seqtile::autotune

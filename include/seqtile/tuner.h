// include/seqtile/tuner.h -- chooses a configuration for every bucket of a workload, by measurement.
// SPDX-License-Identifier: Apache-2.0
//
// Order of work: coverage first (every bucket gets a verified binary), then times of the defaults, then tuning where
// the expected gain is largest, until the budget ends. A bucket takes over a neighbour's winner without a search
// (origin merged) if the upper confidence bound of the winner's paired regret is at most 3 % at the lengths measured in
// the bucket. For an operation that communicates, all ranks finally time the best configurations together. Every trial
// is a row in the store before the next round starts, so that a killed run is continued by the next one.
// docs/tuning.md has the rules.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/op.h"
#include "seqtile/stores.h"

namespace seqtile::autotune {

/// One operation with the lengths it must cover.
struct TuneRequest {
  std::string label = {};  ///< "qkv_proj": the operation's role in a model; for people
  Workload workload;
  int64_t lo = 1, hi = 1;
};

/// Progress of a run. The callback gets it before a step, if 0.2 s have passed since the previous call.
struct TuneProgress {
  std::string activity;         ///< "coverage linear n=960 k=576 [129..144]"
  int64_t done = 0, total = 0;  ///< steps: two a bucket, three where ranks decide too
  int64_t trials = 0;
  double elapsed_s = 0, left_s = 0;
};

struct TuneOptions {
  double budget_s = 0;            ///< 0: no limit
  std::string strategy = "topk";  ///< exhaustive | topk | halving | evolutionary
  bool merge = true;              ///< a neighbour's winner may be taken over; false for tuning on demand
  int64_t seed = 1;
  std::string policy =
      "cold";  ///< measurement policy, part of the key: cold | warm, on GPUs also cold-graph | warm-graph
  std::function<void(const TuneProgress&)> progress = {};
  std::function<void(const std::string& line)> acknowledged = {};  ///< called when a record is durable
  const std::atomic<bool>* interrupt = nullptr;                    ///< true: stop after the round, keep all records
};

struct TuneReport {
  int64_t operations = 0, buckets = 0, ranges = 0;
  int64_t tunings = 0, merges = 0, trials = 0, failed_trials = 0;
  int64_t rank_races = 0;         ///< buckets in which all ranks timed the best configurations together
  int64_t modelled = 0;           ///< buckets that were decided without the device
  int64_t binaries = 0;           ///< distinct binaries of this run's decisions that the artifact store has
  int64_t unstored_binaries = 0;  ///< distinct binaries that the artifact store did not take
  double seconds = 0;
  double coverage_s = 0;                          ///< part of `seconds`, until every bucket had a record
  int64_t built = 0, measured = 0, searched = 0;  ///< buckets by the grade of their record
  int64_t failed_buckets = 0;                     ///< buckets in which no candidate works
  bool covered = false;                           ///< every bucket has a record
  bool complete = false;  ///< another run would change nothing: every record is final, and decided by ranks if any
  bool interrupted = false;
};

/// Tunes `requests` on `device`. Candidates run in worker processes (run_worker()). For a profile (DeviceProfile) no
/// candidate runs: decisions are modelled, and a later run on the GPU itself measures them.
/// Errors: invalid_argument (bad request or option; a budget too small for one measurement), unsupported, io (store not
/// writable), timeout (another process tuned on the device for the whole budget), aborted (interrupted while waiting
/// for the device), out_of_resources (a worker cannot be started).
TuneReport tune(const Registry& registry, const std::vector<TuneRequest>& requests, const std::string& device,
                cache::TuningStore& store, ArtifactStore& artifacts, const TuneOptions& options);

/// The work that tune() would do for one operation; for --dry-run.
struct TunePlanRow {
  std::string label, operation;
  int64_t buckets = 0, candidates = 0;  ///< candidates: configurations in the largest space of the buckets
  int64_t recorded = 0;                 ///< buckets that need no more tuning
  double estimated_s = 0;               ///< on an idle machine; an estimate
};
/// One row an operation. Errors: invalid_argument and unsupported, as tune().
std::vector<TunePlanRow> plan(const Registry& registry, const std::vector<TuneRequest>& requests,
                              const std::string& device, cache::TuningStore& store, const TuneOptions& options);

/// Serves candidates where the tuner has started this program again for it. Call it first in main() of every program
/// that tunes, also by EngineOptions::policy; without it tune() and Engine::open throw unsupported, unless
/// SEQTILE_WORKER names another program. Returns false at once in an ordinary process. In a worker process it serves
/// until the connection closes, sets `exit_code` and returns true; main() then returns `exit_code`.
bool run_worker(int argc, char** argv, const Registry& registry, int& exit_code);

}  // namespace seqtile::autotune

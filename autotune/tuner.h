// autotune/tuner.h -- chooses a configuration for every bucket of a workload, by measurement.
// SPDX-License-Identifier: Apache-2.0
//
// Order of work: coverage first (every bucket gets a verified binary), then times of the defaults, then tuning where
// the expected gain is largest, until the budget ends. A neighbour's winner is taken over without a search
// (origin merged) when the upper confidence bound of its paired regret at the bucket's probes is at most 3 %. The best
// configurations of an operation that communicates are at last timed by all of its ranks together. Every
// trial is a row in the store before the next round starts, so that a killed run goes on where it stopped.
// docs/tuning.md has the rules.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "autotune/bucket.h"
#include "autotune/op_def.h"
#include "cache/tuning_store.h"
#include "jit/device/artifact_store.h"
#include "jit/device/device.h"

namespace seqtile::autotune {

/// One operation with the lengths it must cover.
struct TuneRequest {
  std::string label;  ///< "qkv_proj": the operation's role in a model; for people
  Workload workload;
  int64_t lo = 1, hi = 1;
};

/// Snapshot of a run's progress, given to the callback at least twice a second.
struct TuneProgress {
  std::string activity;  ///< "coverage linear n=960 k=576 [129..144]"
  int64_t done = 0, total = 0;
  int64_t trials = 0;
  double elapsed_s = 0, left_s = 0;
};

struct TuneOptions {
  double budget_s = 0;            ///< 0: no limit
  std::string strategy = "topk";  ///< exhaustive | topk | halving | evolutionary
  bool merge = true;              ///< off for tuning on demand
  int64_t seed = 1;
  std::string policy =
      "cold";  ///< measurement policy, part of the key: cold | warm, on GPUs also cold-graph | warm-graph
  std::function<void(const TuneProgress&)> progress;
  std::function<void(const std::string& line)> acknowledged;  ///< after a record is durable
  const std::atomic<bool>* interrupt = nullptr;               ///< Ctrl-C: stop after the current round, keep everything
};

struct TuneReport {
  int64_t operations = 0, buckets = 0, ranges = 0;
  int64_t tunings = 0, merges = 0, trials = 0, failed_trials = 0;
  int64_t rank_races = 0;         ///< buckets in which all ranks timed the best configurations together
  int64_t modelled = 0;           ///< buckets that were decided without the device
  int64_t binaries = 0;           ///< distinct ones of this run's decisions that the artifact store has
  int64_t unstored_binaries = 0;  ///< that it did not take
  double seconds = 0;
  double coverage_s = 0;       ///< of `seconds`, until every bucket had a record
  int64_t built = 0, measured = 0, searched = 0;  ///< buckets by the grade of their record
  int64_t failed_buckets = 0;                     ///< those of which no candidate works
  bool covered = false;        ///< every bucket has a record
  bool complete = false;  ///< every bucket is tuned, merged or pinned, and decided by all ranks where there are some
  bool interrupted = false;
};

/// What a key says of the device itself: its kind and facts.
Fields machine_of(const DeviceInfo& device);
/// The part of a key that the environment fixes: device, toolchain, measurement policy.
cache::TuningKey make_key(const OpDef& op, const Workload& workload, const DeviceInfo& device,
                          const std::string& policy);
ArtifactKey make_artifact_key(const OpDef& op, const Workload& workload, const Config& config, const Target& target);

/// Tunes `requests` on `device`. Candidates run in worker processes (see runner.h). For a profile (device_profile.h)
/// nothing runs: decisions are modelled, and a later run on the GPU itself measures them.
/// Errors: invalid_argument (bad request; a budget too small for one measurement), unsupported, io (store not
/// writable).
TuneReport tune(const Registry& registry, const std::vector<TuneRequest>& requests, const std::string& device,
                cache::TuningStore& store, ArtifactStore& artifacts, const TuneOptions& options);

/// What tune() would do: for --dry-run.
struct TunePlanRow {
  std::string label, operation;
  int64_t buckets = 0, candidates = 0;
  int64_t recorded = 0;    ///< buckets that already have a tuned record
  double estimated_s = 0;  ///< on an idle machine; an estimate
};
std::vector<TunePlanRow> plan(const Registry& registry, const std::vector<TuneRequest>& requests,
                              const std::string& device, cache::TuningStore& store, const TuneOptions& options);

}  // namespace seqtile::autotune

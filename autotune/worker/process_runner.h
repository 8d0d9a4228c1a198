// autotune/worker/process_runner.h -- the real Runner: candidates in worker processes.
// SPDX-License-Identifier: Apache-2.0
//
// One worker per core compiles, one more loads, verifies and measures; the two kinds never work at the same time. The
// process that measures keeps the operands of the current workload, so the buckets of one workload share them. After a
// crash or a hang a new process takes over and gets the problem again, and candidates when they are next asked for.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "autotune/engine/usable.h"
#include "autotune/runner.h"
#include "autotune/worker/process.h"
#include "jit/device/artifact_store.h"
#include "jit/device/device.h"

namespace seqtile::autotune {

struct RunnerLimits {
  // Until a worker counts as hung. Once a candidate has been verified, 20 times the longest verification (at least two
  // seconds) is enough. What is counted is bounded by its instructions, long before that time.
  double compile_s = 30, verify_s = 10, measure_s = 20, count_s = 60;
};

class ProcessRunner final : public Runner {
 public:
  /// `target`: of the device, which the workers open by name.
  ProcessRunner(std::string device, const Target& target, std::string policy, ArtifactStore& artifacts,
                RunnerLimits limits = {});
  ~ProcessRunner() override;

  void begin(const OpDef& op, const Workload& workload, int64_t max_length) override;
  std::vector<Verdict> compile(std::span<const Config> candidates) override;
  Verdict check(const Config& candidate) override;
  Verdict check_bucket(const Config& candidate, const Bucket& bucket) override;
  std::vector<Series> measure(std::span<const Config> candidates, const MeasurePlan& plan) override;
  bool keep(const Config& candidate) override;
  std::vector<Counted> count(std::span<const CountTask> tasks) override;
  double now_s() override;

 private:
  struct Entry {
    int64_t id = 0;
    Config config;
    Verdict verdict;  ///< of compiling, then of check()
    bool compiled = false, checked = false, stored = false;
    KernelBinary binary;
  };
  using Slot = std::unique_ptr<WorkerProcess>;

  Entry& entry(const Config& config);
  /// Calls work(compiler, item) for every item, on all compilers at once.
  void share_among_compilers(size_t count, const std::function<void(size_t compiler, size_t item)>& work);
  Verdict ready_compiler(size_t compiler);
  void compile_entry(size_t compiler, Entry& entry);
  Counted count_one(size_t compiler, const CountTask& task);
  WorkerProcess& measurer();
  Verdict ensure_loaded(Entry& entry);
  Verdict run_check(Entry& entry, const std::string& probes, bool repeat, double max_work);
  Verdict failure(WorkerProcess::Status status, const WorkerProcess& worker, bool compiling) const;
  Verdict give_problem(WorkerProcess& worker) const;
  double flops(int64_t length) const;
  double fill_seconds(int64_t length) const;

  std::string device_;
  Target target_;
  std::string policy_;
  ArtifactStore& artifacts_;
  RunnerLimits limits_;
  std::string program_;

  const OpDef* op_ = nullptr;
  Workload workload_;
  int64_t max_length_ = 1;
  /// By workload, then by configuration, both as text. Kept over changes of workload: a binary is compiled once a run.
  std::map<std::string, std::map<std::string, Entry>> entries_;
  std::map<std::string, Entry>* current_ = nullptr;
  std::optional<Usability> usable_;  ///< of the current workload
  int64_t next_id_ = 1;
  std::vector<Slot> compilers_;
  std::vector<char> compiler_needs_problem_;  ///< flags; each is written by one thread
  Slot measurer_;
  bool measurer_needs_problem_ = true;
  double longest_check_s_ = 0;  ///< of those that were right
  int64_t checked_length_ = 0;  ///< the longest call among them
  std::set<int64_t> loaded_;    ///< ids that the measuring process holds
};

}  // namespace seqtile::autotune

// autotune/worker/process_runner.h -- the Runner that compiles and measures candidates in worker processes.
// SPDX-License-Identifier: Apache-2.0
//
// One worker a core compiles, and one further worker loads, verifies and measures. Compiling and measuring never happen
// at the same time. The measuring worker keeps the operands of the current workload for all buckets. After a crash or a
// hang a new worker is started and gets the workload again; candidates are loaded again when they are next needed.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "autotune/engine/usable.h"
#include "autotune/runner.h"
#include "autotune/worker/process.h"
#include "seqtile/device.h"

namespace seqtile::autotune {

struct RunnerLimits {
  // Seconds after which a worker counts as hung. verify_s holds until a candidate has been verified; then the limit is
  // 20 times the longest verification, at least two seconds and at most verify_s. The PTX machine limits the number of
  // counted instructions, which ends a count long before count_s.
  double compile_s = 30, verify_s = 10, measure_s = 20, count_s = 60;
};

class ProcessRunner final : public Runner {
 public:
  /// `target`: the target of `device`, which the workers open by name.
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
    Verdict verdict;  ///< result of compiling, then of check()
    bool compiled = false, checked = false, stored = false;
    KernelBinary binary;
  };
  using Slot = std::unique_ptr<WorkerProcess>;

  Entry& entry(const Config& config);
  /// Calls work(compiler, item) for every item, on one thread a compiler. Rethrows an exception of `work`.
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
  /// Entries by workload, then by configuration, both as text. Entries outlive a change of the workload, so that a
  /// binary is compiled once a run.
  std::map<std::string, std::map<std::string, Entry>> entries_;
  std::map<std::string, Entry>* current_ = nullptr;
  std::optional<Usability> usable_;  ///< for the current workload
  int64_t next_id_ = 1;
  std::vector<Slot> compilers_;
  std::vector<char> compiler_needs_problem_;  ///< flags by compiler; char, because threads write adjacent ones
  Slot measurer_;
  bool measurer_needs_problem_ = true;
  double longest_check_s_ = 0;  ///< longest time of a check that passed
  int64_t checked_length_ = 0;  ///< longest length of a check that passed
  std::set<int64_t> loaded_;    ///< ids of the candidates that the measuring worker has loaded
};

}  // namespace seqtile::autotune

// bench/environment.h -- resources of all suites: our own engines with tuned records, and the peers of this machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/peers/blas.h"
#include "bench/peers/child.h"
#include "bench/peers/torch.h"
#include "seqtile/engine.h"
#include "seqtile/tuner.h"

namespace seqtile::bench {

struct Options {
  std::vector<int> threads;
  bool is_listed = false;  ///< the cases are only listed, which needs no files
  std::string cache;       ///< tuning.db of the benchmarks; artifacts_path() lies beside it
  double budget_s = 10;    ///< of tuning a bucket that has no tuned record yet
  std::string model;       ///< config.json whose operations the regret suite tunes; empty: no regret cases
  std::string mkl, torch;  ///< paths of libmkl_rt.so and of a Python with PyTorch; empty: not raced
};

/// A handle and its engine.
struct TunedHandle {
  std::unique_ptr<Engine> engine;
  Handle handle;
};

/// Opens a peer when it is first raced. Not thread-safe.
class Environment {
 public:
  explicit Environment(Options options);
  const Options& options() const { return options_; }
  const autotune::Registry& registry() const { return registry_; }
  std::string artifacts_path() const { return options_.cache + ".artifacts"; }

  /// A handle that serves the recorded configurations. Any length is served from the nearest record.
  TunedHandle prepare(const autotune::Workload& workload) const;
  /// As prepare(). First tunes the bucket of `length` if it has no tuned record.
  TunedHandle prepare_tuned(const autotune::Workload& workload, int64_t length) const;
  /// The records of a workload that the engine serves. Requires: `normal` was normalised by its operation.
  std::vector<cache::Record> records(const autotune::Workload& normal) const;
  /// Tunes the requests as one run unless the first of them has records already.
  void tune_once(const std::vector<autotune::TuneRequest>& requests, double budget_s) const;

  bool has_openblas() const { return openblas_ != nullptr; }
  bool has_onednn() const;
  bool has_mkl() const { return !options_.mkl.empty(); }
  bool has_torch() const { return !options_.torch.empty(); }
  Blas& openblas() { return *openblas_; }
  Blas& mkl();
  TorchPeer& torch();
  /// torch.distributed in two processes.
  Child& gloo();
  /// Versions of the peers opened so far, for the context of the results.
  std::vector<std::pair<std::string, std::string>> peer_versions() const;

 private:
  void tune(const std::vector<autotune::TuneRequest>& requests, double budget_s) const;

  Options options_;
  autotune::Registry registry_;
  std::unique_ptr<Blas> openblas_, mkl_;
  std::unique_ptr<TorchPeer> torch_;
  std::unique_ptr<Child> gloo_;
};

}  // namespace seqtile::bench

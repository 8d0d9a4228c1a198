// autotune/worker/rank_group.h -- the ranks of a fabric inside a worker process.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks of the fabric "processes" are forked from the worker and end with it. The worker leads a process group of its
// own, so that killing the group ends all ranks.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "seqtile/fabric.h"

namespace seqtile::autotune {

/// True if run_rank_group() supports this kind of fabric.
bool has_rank_group(const std::string& fabric);

/// Runs `work` on every rank of a fabric "threads" or "processes", and waits for all ranks. Kernels of a rank run on
/// `threads` threads. Memory that `work` writes for the caller must be a SharedNumbers.
/// Errors: the error of the lowest rank that failed by itself, else an `aborted`, with which a rank reports the failure
/// of a peer; driver if a process has died; out_of_resources if a process cannot be started.
void run_rank_group(const std::string& fabric, int world_size, int threads, const std::function<void(Fabric&)>& work);

/// Numbers that forked ranks write and the worker reads; initially zero.
class SharedNumbers {
 public:
  /// Errors: out_of_resources.
  explicit SharedNumbers(size_t count);
  SharedNumbers(const SharedNumbers&) = delete;
  SharedNumbers& operator=(const SharedNumbers&) = delete;
  ~SharedNumbers();
  std::span<double> values() const { return values_; }

 private:
  std::span<double> values_;
};

}  // namespace seqtile::autotune

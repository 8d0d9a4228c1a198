// autotune/worker/rank_group.h -- the ranks of a fabric inside a worker process.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are processes are forked from the worker and end with it. The worker leads a process group of its own, so
// that whoever kills the group ends all ranks.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "jit/fabric/core/fabric.h"

namespace seqtile::autotune {

/// Whether run_rank_group() knows the kind.
bool has_rank_group(const std::string& fabric);

/// Runs `work` on every rank of a fabric "threads" or "processes", each with `threads` for its kernels, and waits for
/// all of them. Memory that `work` writes for the caller must be a SharedNumbers.
/// Errors: the first that is no rank's complaint about another one; driver where a rank has died.
void run_rank_group(const std::string& fabric, int world_size, int threads, const std::function<void(Fabric&)>& work);

/// Numbers that forked ranks write and the worker reads. Zero at first.
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

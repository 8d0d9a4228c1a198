// tools/cli/ranks/rank_process.h -- this process as one rank of several that run the same command.
// SPDX-License-Identifier: Apache-2.0
//
// The ranks are those that mpirun has started (--fabric mpi), or copies of this program with the same arguments
// (--fabric processes). Each runs the whole command; rank 0 alone writes to standard output. They meet where the work
// is collective, and once more when it is over: then all know what went wrong on any of them.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/fabric/core/fabric.h"

namespace seqtile::cli {

class RankProcess {
 public:
  /// The ranks of mpirun. Errors: driver where this build has no MPI, and those of join_mpi_fabric().
  static std::shared_ptr<RankProcess> of_mpi();
  /// Rank 0 of `world_size` processes, the others of which it starts. Errors: out_of_resources, timeout.
  static std::shared_ptr<RankProcess> start(int world_size);
  /// One of the others: `place` is what start() has added to its arguments behind kFlag.
  static std::shared_ptr<RankProcess> join(const std::string& place);
  static constexpr const char* kFlag = "--as-rank";

  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess();

  int rank() const { return meeting_->rank(); }
  int world_size() const { return meeting_->world_size(); }
  /// Collective: a fabric of all ranks for one piece of work. Errors: aborted where a rank has ended its run().
  std::unique_ptr<Fabric> make_fabric(int threads);
  /// Collective: runs the command on this rank and returns its exit code, the same on all ranks. Errors, on all ranks
  /// alike: the first that is not a complaint about another rank; out_of_resources where a rank has died. Ranks that
  /// start() has started leave it to rank 0 to report them and return the exit code.
  int run(const std::function<int()>& command);

 private:
  RankProcess(std::unique_ptr<Fabric> meeting, bool is_copy);

  std::unique_ptr<Fabric> meeting_;  ///< for the hosts alone; work has fabrics of its own
  bool is_copy_;                     ///< started by rank 0
  std::vector<pid_t> copies_;        ///< that this rank has started
  std::function<std::unique_ptr<Fabric>(int threads)> join_by_mpi_;  ///< collective; null without MPI
};

}  // namespace seqtile::cli

// tools/cli/ranks/rank_process.h -- this process as one of several ranks that run the same command.
// SPDX-License-Identifier: Apache-2.0
//
// The ranks are processes started by mpirun (--fabric mpi), or copies of this program with the same arguments (--fabric
// processes). Each rank runs the whole command; only rank 0 writes to standard output. The ranks meet for collective
// work, and once more at the end, where all ranks learn the errors of any rank.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "seqtile/fabric.h"

namespace seqtile::cli {

class RankProcess {
 public:
  /// This process as a rank of mpirun. Errors: driver if this build has no MPI; as join_mpi_fabric().
  static std::shared_ptr<RankProcess> of_mpi();
  /// This process as rank 0 of `world_size` processes; starts the others. Errors: out_of_resources, timeout.
  static std::shared_ptr<RankProcess> start(int world_size);
  /// This process as a rank that start() has started. `place` is the value that start() passed with kFlag.
  static std::shared_ptr<RankProcess> join(const std::string& place);
  static constexpr const char* kFlag = "--as-rank";

  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess();

  int rank() const { return fabric_->rank(); }
  int world_size() const { return fabric_->world_size(); }
  /// Makes a fabric of all ranks for one piece of work. Collective. Errors: aborted if a rank has ended its run().
  std::unique_ptr<Fabric> make_fabric(int threads);
  /// Runs the command on this rank. Collective. Returns the exit code, equal on all ranks. Errors, equal on all ranks:
  /// the first error that is not a complaint about another rank; out_of_resources if a rank has died. Ranks that
  /// start() has started return the exit code and leave the report to rank 0.
  int run(const std::function<int()>& command);

 private:
  RankProcess(std::unique_ptr<Fabric> fabric, bool is_copy);

  std::unique_ptr<Fabric> fabric_;  ///< of the commands, to agree on what to do; work has fabrics of its own
  bool is_copy_;                    ///< rank 0 has started this process
  std::vector<pid_t> copies_;       ///< ranks started by this process
  std::function<std::unique_ptr<Fabric>(int threads)> join_by_mpi_;  ///< collective; null without MPI
};

}  // namespace seqtile::cli

// tools/cli/ranks/ranks.h -- --ranks and --fabric: a world of ranks, and a model's operations on each.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads of this process, or this process is one of the ranks (rank_process.h). Threads of the fabric
// "processes" share memory as processes would: they have the keys, plans and transport of a server of processes.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "seqtile/engine.h"
#include "seqtile/fabric.h"
#include "seqtile/tuner.h"
#include "tools/cli/command.h"
#include "tools/cli/ranks/rank_process.h"
#include "tools/cli/served_operation.h"

namespace seqtile::cli {

struct World {
  int size;
  std::string fabric;                    ///< Fabric::kind()
  std::shared_ptr<RankProcess> process;  ///< set if this process is one of the ranks; else the ranks are its threads
  std::string device = "";               ///< a real GPU that all ranks share; empty: the fabric's device
};

/// Whether the ranks share one GPU.
bool is_shared(const World& world);

/// The world that --ranks, --fabric and, for ranks that share a GPU, --device name; nullopt without --ranks. Errors:
/// invalid_argument.
std::optional<World> world_of(const Options& options);

/// Sets the default device and threads of a rank if --ranks is given. Errors: invalid_argument if --device names
/// another device than the fabric's.
void apply_ranks(Options& options);

/// Errors: invalid_argument if --set gives a field that --ranks and --fabric give.
void refuse_rank_fields(const Options& options);

/// Turns --ranks and --fabric into fields of the named operation, after apply_ranks(). Errors: invalid_argument also
/// for an operation of one rank.
void set_rank_fields(const Session& session, Options& options);
/// As set_rank_fields(), without a device, for commands that run nothing.
void name_rank_fields(const Session& session, Options& options);

/// Lets processes be the ranks: the processes of mpirun with --fabric mpi, copies of this program with --fabric
/// processes. --ranks and --fabric then have the values in the records' keys. Errors: invalid_argument if --ranks
/// differs from the number of started processes; as RankProcess.
void enter_processes(Options& options);
/// Runs a command on all ranks by RankProcess::run(). Without entered processes, runs it directly.
int run_on_processes(const Options& options, const std::function<int()>& command);

/// Runs `work` for each rank on a thread of its own, with `threads` threads for its kernels; a process that is a rank
/// runs it once. A rank that throws gives up its fabric, so that no peer waits for it. Errors: the first that is not a
/// complaint about a peer.
void on_every_rank(const World& world, int threads, const std::function<void(Fabric&)>& work);

/// True for the rank whose figures the process uses: its only rank, or rank 0 of its threads.
bool speaks_for_process(const World& world, const Fabric& fabric);
/// Collective: all ranks call it and get the sum.
int64_t sum_over_ranks(Fabric& fabric, int64_t mine);
/// Sums tunings and compiles. Collective.
EngineCounters sum_over_ranks(Fabric& fabric, const EngineCounters& mine);

/// True for staging, flags and control block, whose tensors come from the channel of the ranks.
bool is_of_channel(const autotune::ArgSpec& arg);

/// The operations of a model on one rank, prepared together with the peers.
class RankModel {
 public:
  struct Settings {
    int64_t capacity = 1;  ///< rows of all ranks in the longest call
    MissPolicy policy = MissPolicy::strict;
    std::chrono::nanoseconds timeout = std::chrono::seconds(60);
    std::string title = {};  ///< the command whose progress rank 0 displays; empty: none
  };
  /// `options` are the command's. Collective. Errors: as FusedHandle.
  RankModel(const Session& session, const Options& options, Fabric& fabric, const Settings& settings);

  Engine& engine() { return *engine_; }
  Channel& channel() { return *channel_; }
  std::span<const ServedOperation> operations() const { return operations_; }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Channel> channel_;
  std::vector<ServedOperation> operations_;
};

/// The findings of a rehearsal on all ranks.
struct RankProof {
  int64_t lookups = 0, misses = 0;
  EngineCounters counters;  ///< summed over ranks
};
/// Prepares the model on all ranks, as a server of `threads` threads a rank does, and looks up `num_lengths` random
/// lengths for each of `requests` on each rank. The engines store the binaries that they had to compile. The progress
/// has the command's `title`.
RankProof rehearse(const std::string& title, const Session& session, const Options& options, const World& world,
                   int threads, int64_t num_lengths);

}  // namespace seqtile::cli

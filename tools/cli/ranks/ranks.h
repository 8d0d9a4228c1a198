// tools/cli/ranks/ranks.h -- --ranks and --fabric: a world of ranks, and a model's operations on each.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads of this process, or it is one of them itself (rank_process.h). Also as threads those of the fabric
// "processes" share its memory as processes would: keys, plans and transport are the ones that such a server has.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/engine.h"
#include "autotune/tuner.h"
#include "jit/fabric/core/channel.h"
#include "jit/fabric/core/fabric.h"
#include "tools/cli/command.h"
#include "tools/cli/ranks/rank_process.h"
#include "tools/cli/served_operation.h"

namespace seqtile::cli {

struct World {
  int size;
  std::string fabric;                    ///< Fabric::kind()
  std::shared_ptr<RankProcess> process;  ///< where this process is one of the ranks; else they are its threads
  std::string device = "";               ///< a real GPU that all ranks share; else theirs are what the fabric says
};

/// What --ranks, --fabric and, for ranks that share a GPU, --device ask for; nothing without --ranks. Errors:
/// invalid_argument.
std::optional<World> world_of(const Options& options);

/// With --ranks, the device and the threads that a rank has by default. Errors: invalid_argument where --device names
/// another one than the fabric's.
void apply_ranks(Options& options);

/// Errors: invalid_argument where --set gives a field that --ranks and --fabric give.
void refuse_rank_fields(const Options& options);

/// Of a command that names an operation: --ranks and --fabric as the fields that they are, with apply_ranks(). Errors:
/// invalid_argument also for an operation of one rank.
void set_rank_fields(const Session& session, Options& options);
/// The same without a device, where nothing runs.
void name_rank_fields(const Session& session, Options& options);

/// Lets processes be the ranks: with --fabric mpi those that mpirun has started, with --fabric processes copies of this
/// program. From then on --ranks and --fabric are what the records' keys say. Errors: invalid_argument where --ranks
/// is not the number of those started, and as RankProcess.
void enter_processes(Options& options);
/// Runs a command on all ranks, see RankProcess::run(); as it is where no processes were entered.
int run_on_processes(const Options& options, const std::function<int()>& command);

/// Runs `work` for every rank, each on a thread of its own with `threads` for its kernels, or for the one that this
/// process is. A rank that throws gives its fabric up, so that no peer waits for it. Errors: the first that is not a
/// peer's complaint about another one.
void on_every_rank(const World& world, int threads, const std::function<void(Fabric&)>& work);

/// The rank whose figures a process goes on with: its only one, or the first of its threads.
bool speaks_for_process(const World& world, const Fabric& fabric);
/// Collective.
int64_t sum_over_ranks(Fabric& fabric, int64_t mine);
/// Collective: tunings and compiles.
EngineCounters sum_over_ranks(Fabric& fabric, const EngineCounters& mine);

/// Staging, flags and control block: arguments that come from the channel of the ranks.
bool is_of_channel(const autotune::ArgSpec& arg);

/// The operations of a model on one rank, prepared together with its peers.
class RankModel {
 public:
  struct Settings {
    int64_t capacity = 1;  ///< rows of all ranks of the longest call
    MissPolicy policy = MissPolicy::strict;
    std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  };
  /// Collective. `options` are those of the command. Errors: as FusedHandle.
  RankModel(const Session& session, const Options& options, Fabric& fabric, const Settings& settings);

  Engine& engine() { return *engine_; }
  Channel& channel() { return *channel_; }
  std::span<const ServedOperation> operations() const { return operations_; }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Channel> channel_;
  std::vector<ServedOperation> operations_;
};

/// What a rehearsal of all ranks found.
struct RankProof {
  int64_t lookups = 0, misses = 0;
  EngineCounters counters;  ///< summed over ranks
};
/// Prepares the model on all ranks, as a server of `threads` a rank does, and looks up `num_lengths` random lengths of
/// `requests` on each. The engines store the binaries that they had to compile.
RankProof rehearse(const Session& session, const Options& options, const World& world, int threads,
                   int64_t num_lengths);

}  // namespace seqtile::cli

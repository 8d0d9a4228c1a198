// tools/cli/ranks.h -- --ranks and --fabric: a world of ranks in this process, and a model's operations on each.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads of this process whatever the fabric: those of the fabric "processes" share its memory as processes
// would, so that keys, plans and transport are the ones that such a server has.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/engine.h"
#include "autotune/tuner.h"
#include "jit/channel.h"
#include "jit/fabric.h"
#include "tools/cli/command.h"
#include "tools/cli/served_operation.h"

namespace seqtile::cli {

struct World {
  int size;
  std::string fabric;
};

/// What --ranks and --fabric ask for; nothing without --ranks. Errors: invalid_argument.
std::optional<World> world_of(const Options& options);

/// With --ranks, the device and the threads that a rank has by default. Errors: invalid_argument where --device names
/// another one than the fabric's.
void apply_ranks(Options& options);

/// Runs `work` for every rank, each on a thread of its own with `threads` for its kernels. A rank that throws gives its
/// fabric up, so that no peer waits for it. Errors: the first that is not a peer's complaint about another one.
void on_every_rank(const World& world, int threads, const std::function<void(Fabric&)>& work);

/// Errors where a rank of the channel has given up, with its record: timeout, internal, or aborted where a peer did.
void check_aborted(Channel& channel);

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

// jit/sim/exec/state.h -- the state of warps, CTAs and grids while they run.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "jit/sim/checks/clocks.h"
#include "jit/sim/checks/shared_shadow.h"
#include "jit/sim/exec/machine.h"
#include "jit/sim/memory/sim_tensor_map.h"

namespace seqtile::sim {

/// A release of a location's present value: the releasing thread, the scope, and the clocks that an acquire learns.
struct ReleasedMessage {
  uint32_t cohort;
  int thread, cta, cluster, device;
  Scope scope;
  ClockSnapshot clock;
  ForeignClocks foreign;
};

enum class GroupState : uint8_t {
  running,
  converging,  ///< waits for the warp's other lanes at an instruction that needs them
  at_barrier,  ///< `wait_for` is the barrier's number
  at_cluster,  ///< `wait_for` is the phase that must end
};

/// Lanes of a warp that are at the same instruction.
struct Group {
  uint32_t pc = 0, mask = 0;
  GroupState state = GroupState::running;
  uint32_t wait_for = 0;
};

/// A call that a lane has not come back from.
struct Frame {
  uint32_t call_pc;
  uint32_t base;               ///< where the caller's frame begins in local memory
  std::vector<uint64_t> kept;  ///< values of the caller's slots, where the callee may overwrite them
};

struct CopyLane {
  uint32_t to;
  uint32_t bytes;  ///< read from the source; the rest of `size` is zero
  uint64_t from;
  uint8_t size, lane;
};
struct CopyOp {  ///< one cp.async of a warp
  std::vector<CopyLane> lanes;
  uint32_t pc;
  ClockSnapshot issued;
};
struct WgmmaOp {
  uint32_t pc;
  uint64_t a, b;  ///< descriptors
  bool accumulate, done;
  uint32_t sequence;
  ClockSnapshot issued;
};
struct BulkPiece {
  uint64_t to;
  uint32_t from, bytes;
};
struct BulkStore {
  uint64_t to;  ///< tensor map, or the global address
  std::array<int32_t, 5> at;
  uint32_t from, bytes, pc;
  int lane;
  PtxType type;   ///< the elements' type
  uint32_t time;  ///< time of the CTA's copy threads
  std::vector<BulkPiece> pieces;
  bool is_read;                 ///< shared memory has been read, into `data`
  std::vector<std::byte> data;  ///< data of the pieces, one behind the other
};
struct BulkGroup {
  int lane;
  std::vector<BulkStore> stores;
};
struct BulkLoad {
  int cta;
  uint32_t targets;  ///< mask of CTA ranks
  uint32_t to, barrier, bytes;
  uint64_t from;  ///< tensor map, or an address
  std::array<int32_t, 5> at;
  uint32_t pc;
  int warp, lane;
  bool is_tensor, from_shared;
  uint32_t thread, time;  ///< the copy thread of copies that complete on this barrier, and its time
  ClockSnapshot issued;
};
/// The newest load of one thread of the copies that touches a CTA's shared memory.
struct LoadUnderWay {
  uint32_t thread, time;
  int line;
};

struct Grid;

struct Warp {
  int id = 0;     ///< number in the cohort: its thread in every clock
  int cta = 0;    ///< index in the cohort
  int index = 0;  ///< number in its CTA
  const Grid* grid = nullptr;
  uint32_t live = kAllLanes;
  bool is_done = false;
  bool has_waited = false;  ///< has spun, waiting for others, since the cohort's last progress
  int rotation = 0;         ///< which group gets the next turn after a spin
  int registers = 0;        ///< per thread, as setmaxnreg left it
  uint32_t* regs = nullptr;
  std::vector<Group> groups;
  std::vector<std::byte> local;
  std::array<uint32_t, 32> frame_base = {};   ///< by lane: where its function's frame begins in local memory
  std::array<std::vector<Frame>, 32> frames;  ///< by lane: frames of the calls that it is in
  Region* last_region = nullptr;

  Clock clock;
  ClockSnapshot snapshot;  ///< a copy of `clock`; null when the clock has changed
  ForeignClocks foreign;
  std::array<Clock, 4> fence_release;    ///< by scope: the clock at the last fence
  std::array<Clock, 4> acquire_pending;  ///< by scope: clocks of relaxed loads, until a fence of that scope
  std::array<ForeignClocks, 4> fence_foreign, foreign_pending;  ///< fence_release, acquire_pending: CTAs that run apart

  std::vector<CopyOp> copies;
  std::deque<std::vector<CopyOp>> copy_groups;
  std::vector<WgmmaOp> wgmmas;
  std::deque<std::vector<WgmmaOp>> wgmma_groups;
  uint32_t wgmma_sequence = 0, wgmma_base = 0, wgmma_fences = 0;
  std::vector<BulkStore> bulk;
  std::vector<BulkGroup> bulk_groups;
  uint32_t proxy_fences = 0;
  std::array<uint32_t, 32> cluster_phase = {};
  uint32_t at_cluster = 0;  ///< lanes that have arrived at the cluster barrier and not waited there
  Clock relaxed_seen;       ///< clock that came with the cluster barrier, but without release

  std::vector<uint32_t> initialised;                     ///< lanes, by virtual register
  std::vector<uint8_t> busy_accumulator, busy_fragment;  ///< by virtual register: wgmma in flight
  std::vector<uint32_t> written_after_fence;             ///< by virtual register: 1 + fences before the last write
};

struct Barrier {
  struct Waiting {
    int warp;
    const Instruction* at;
    uint32_t mask;
  };
  uint32_t expected = 0, arrived = 0;
  bool is_open_count = false;  ///< the barrier expects all threads that are left
  uint32_t votes = 0;          ///< bar.red: threads whose predicate held
  uint32_t against = 0;        ///< bar.red: threads whose predicate did not hold
  std::vector<Waiting> waiting;
  Clock clock;
  ForeignClocks foreign;
};

struct Mbarrier {
  int32_t count = 0, pending = 0;
  int64_t tx = 0;
  uint32_t phase = 0;
  uint32_t init_epoch = 0;
  int init_warp = 0, init_line = 0;
  uint32_t init_proxy_fences = 0;  ///< proxy fences of init_warp at the init
  bool has_remote = false;         ///< another CTA has arrived in this phase
  bool is_remote = false;          ///< another CTA arrived in the phase before
  uint32_t init_fence = 0;         ///< number of the fence.mbarrier_init behind it, in its CTA; 0: none yet
  Clock clock, completed;
  ForeignClocks foreign;
};

struct Cta {
  const Grid* grid = nullptr;
  int rank = 0;              ///< rank in its cluster
  int first_in_cluster = 0;  ///< index in the cohort of the cluster's rank 0
  int cluster = 0;           ///< index of the cluster in the cohort
  int first_warp = 0, num_warps = 0;
  int linear = 0;  ///< number in the grid
  std::array<uint32_t, 3> id = {};
  std::vector<std::byte> shared;
  SharedShadow shadow;
  std::map<uint32_t, Mbarrier> mbarriers;
  std::array<Barrier, 16> barriers;
  std::map<uint32_t, std::vector<ReleasedMessage>> released;  ///< releases, by address in shared memory
  int free_registers = 0;                                     ///< registers given back by setmaxnreg.dec
  Clock remote;                                               ///< clock of accesses from other CTAs
  std::vector<LoadUnderWay> loads;                            ///< loads that the CTA must have waited for at its end
  bool is_gone = false;
  uint32_t copy_time = 0;
  uint32_t init_fences = 0;             ///< fence.mbarrier_init that had an init before them
  std::vector<uint32_t> copy_barriers;  ///< mbarriers that copies complete on, in the order of first use
};

struct ClusterState {
  uint32_t arrived = 0, phase = 0;
  int first_cta = 0, num_ctas = 0;
  Clock clock, released;
  Clock relaxed, relaxed_released;  ///< clocks of arrivals without release: they order nothing
  ForeignClocks foreign;
};

/// A launch while it runs.
struct Grid {
  const Program* program = nullptr;
  LaunchShape shape;
  std::vector<std::byte> params;
  int device = 0;
  int num_ctas() const { return shape.grid[0] * shape.grid[1] * shape.grid[2]; }
  int cluster_size() const { return shape.cluster[0] * shape.cluster[1] * shape.cluster[2]; }
  int num_warps() const { return (shape.num_threads() + kWarpLanes - 1) / kWarpLanes; }
};

}  // namespace seqtile::sim

// jit/sim/exec/cohort.h -- the CTAs that run together on one host thread: a cluster, or a whole cooperative grid.
// SPDX-License-Identifier: Apache-2.0
//
// Where to look: scheduler.cpp turns, stuck.cpp deadlocks and loops without end, interpreter.cpp the instruction loop,
// calls.cpp and system_calls.cpp functions, exits.cpp ends of warps and CTAs, access.cpp loads, stores and atomics,
// shared_races.cpp, global_races.cpp and synchronisation.cpp the race checks, warp_ops.cpp shuffles and votes,
// barriers.cpp and mbarriers.cpp barriers, async_copies.cpp cp.async, bulk_copies.cpp the tensor memory accelerator,
// matrix_ops.cpp ldmatrix and mma, fragments.cpp wmma, wgmma.cpp the warp-group product.
#pragma once
#include <mutex>
#include <optional>
#include <random>
#include <unordered_map>

#include "jit/sim/exec/state.h"

namespace seqtile::sim {

/// Shared by all cohorts of a launch.
struct LaunchContext {
  const Options& options;
  MemoryMap& memory;
  ReportSink& reports;
  LaunchProgress& progress;
  bool is_parallel = false;
  uint32_t first_cohort = 1;  ///< older cohorts belong to launches that are over
  uint64_t start_ns = 0;      ///< %globaltimer at the start
  std::atomic<int64_t> finished_prefix{0};
  std::vector<std::atomic<bool>> finished = {};
  std::mutex sync_mutex = {};
  std::unordered_map<uint64_t, std::vector<ReleasedMessage>> released = {};
  std::array<std::mutex, 64> history_mutex = {};
  std::mutex print_mutex = {};
  std::vector<std::string> printed = {};
  size_t num_printed = 0;
};

enum class Flow : uint8_t {
  next,   ///< go on with the following instruction
  retry,  ///< the group waits and comes back to this instruction
  park,   ///< the group waits and goes on behind this instruction
};

/// The warp, line and lane that an access comes from.
struct Site {
  const Warp* warp;
  int32_t line;
  int lane;
};

enum class AccessKind : uint8_t { plain, strong, async };
/// An access to shared memory: the thread of the analysis, its clock, and the kind of access.
struct SharedAccess {
  uint32_t thread;
  const Clock& clock;
  const Site& site;
  AccessKind kind = AccessKind::plain;
  uint8_t lane = kNoLane;
};

/// Numbers of pseudo-threads for one CTA's bulk copies: all of them, and the last ones, which are for stores.
constexpr uint32_t kCopyThreads = 8, kStoreThreads = 2;

class Cohort {
 public:
  Cohort(LaunchContext& context, uint32_t number);

  /// Runs the clusters' CTAs [first, first + count) of `grid` to their end.
  void run(const Grid& grid, int first_cta, int num_ctas, int64_t index);
  /// Runs streams of launches at the same time, all CTAs resident.
  void run_streams(std::span<const std::vector<Launch>> streams);
  const Counters& counters() const { return counters_; }
  /// The value of %globaltimer: a nanosecond for each instruction of a warp, and more where warps wait.
  uint64_t time_ns() const { return now_ + counters_.warp_instructions; }

 private:
  // scheduler.cpp
  void add_ctas(const Grid& grid, int first_cta, int num_ctas);
  void start_cta(Cta& cta, int linear);
  void start_warp(Warp& warp, int index);
  static int start_registers(const Grid& grid);
  void fill_constants(Warp& warp);
  uint32_t special_value(const Warp& warp, Special what, int lane) const;
  void size_clocks();
  /// Turns until every warp is done; false after a deadlock.
  bool rotate_until_done(int64_t index);
  void rotate();
  void deliver_copies(size_t count);
  /// A stream of launches on one device.
  struct StreamState {
    Grid grid;
    size_t next = 0, first_cta = 0;
    bool is_running = false;
    Clock clock;
  };
  void start_launch(StreamState& stream, const Launch& launch);
  void finish_launch(StreamState& stream, const Launch& launch);
  bool is_over(const StreamState& stream) const;
  bool advance_streams(std::vector<StreamState>& state, std::span<const std::vector<Launch>> streams);

  // stuck.cpp
  /// Counts a rotation without progress; false when there will be none.
  bool note_idle(int64_t index);
  uint64_t silent_limit() const;
  bool is_lost();
  bool is_over_limit(uint64_t first);
  void note_progress();
  const Warp* find_running(bool that_never_waits) const;
  void report_deadlock();
  void report_limit(const Warp& warp, const std::string& limit);
  std::string describe_waits() const;
  std::string describe_group(const Warp& warp, const Group& group) const;

  // interpreter.cpp
  void run_slice(Warp& warp, uint32_t fuel);
  int pick_group(Warp& warp);
  Flow execute(Warp& warp, const Instruction& i, uint32_t mask);
  bool branch(Warp& warp, const Instruction& i, uint32_t mask, int& budget);
  bool meets_other_group(const Warp& warp) const;
  Flow execute_async(Warp& warp, const Instruction& i, uint32_t mask);
  void check_initialised(Warp& warp, const Instruction& i, uint32_t mask, uint32_t group_mask);
  void check_wgmma_registers(Warp& warp, const Instruction& i);
  static uint32_t member_lanes(const Warp& warp, const Instruction& i, uint32_t mask);
  uint32_t needed_lanes(const Warp& warp, const Instruction& i, uint32_t mask) const;
  const Instruction& code(const Warp& warp, uint32_t pc) const { return warp.grid->program->code[pc]; }

  // calls.cpp
  void scatter(Warp& warp, uint32_t mask, const std::array<uint32_t, kWarpLanes>& to);
  void branch_indexed(Warp& warp, const Instruction& i, uint32_t mask);
  bool call(Warp& warp, const Instruction& i, uint32_t mask);
  void enter(Warp& warp, const Call& call, const Instruction& i, int lane, uint32_t base);
  void return_lanes(Warp& warp, uint32_t mask);
  uint32_t come_back(Warp& warp, int lane);

  // system_calls.cpp
  uint64_t argument(const Warp& warp, const Instruction& i, size_t number, int lane) const;
  std::string text_at(Warp& warp, uint64_t address, const Site& site);
  void print(Warp& warp, const Instruction& i, uint32_t mask);
  void assert_fail(Warp& warp, const Instruction& i, uint32_t mask);

  // exits.cpp
  void leave(Warp& warp, const Instruction& i, uint32_t mask);
  void check_exit(Warp& warp, const Instruction& i);
  void check_groups(const Cta& cta, const Instruction& i);
  void check_last_exit(Warp& warp, const Instruction& i);
  void note_load(const BulkLoad& job, const Site& site);

  // access.cpp
  void load(Warp& warp, const Instruction& i, uint32_t mask);
  void store(Warp& warp, const Instruction& i, uint32_t mask);
  void atomic(Warp& warp, const Instruction& i, uint32_t mask);
  /// The place of one lane's access.
  struct Place {
    PtxSpace space = PtxSpace::generic;
    uint64_t address = 0;     ///< the address without its window
    std::byte* at = nullptr;  ///< refused_ after a report
    Cta* cta = nullptr;       ///< the CTA whose shared memory it is
  };
  void note_access(Warp& warp, const Instruction& i, const Place& place, uint32_t bytes, const Site& site,
                   bool is_write);
  void tell_watcher(const Warp& warp, const Instruction& i, const Place& place, bool is_write) const;
  std::vector<ReleasedMessage>* messages_at(const Place& place);
  void check_same_values(Warp& warp, const Instruction& i, uint32_t mask);
  void count_traffic(PtxSpace space, const uint64_t* addresses, uint32_t mask, uint32_t bytes);
  void count_sectors(uint64_t address, uint32_t bytes);
  void count_bank_conflicts(const uint64_t* addresses, uint32_t mask, uint32_t bytes);
  uint64_t value_of(Warp& warp, const Instruction& i, uint32_t operand, int lane) const {
    const uint32_t slot = warp.grid->program->operands(i)[operand];
    return i.is_wide ? uint64_t{wide_lanes(warp, slot)[lane]} : uint64_t{lanes(warp, slot)[lane]};
  }

  // access_unwatched.cpp
  std::byte* unwatched(Warp& warp, const Instruction& i, uint32_t slot, uint32_t mask, bool is_write,
                       uint64_t (&offsets)[kWarpLanes]);
  bool load_unwatched(Warp& warp, const Instruction& i, uint32_t mask);
  bool store_unwatched(Warp& warp, const Instruction& i, uint32_t mask);

  // resolve.cpp
  uint64_t lane_address(const Warp& warp, const Instruction& i, uint32_t slot, int lane, int64_t offset) const {
    const uint64_t base =
        i.is_address_wide ? wide_lanes(warp, slot)[lane] : warp.regs[slot * kWarpLanes + static_cast<uint32_t>(lane)];
    return base + static_cast<uint64_t>(offset);
  }
  PtxSpace space_of(const Instruction& i, uint64_t& address) const;
  Place locate(Warp& warp, const Instruction& i, uint32_t slot, uint32_t bytes, const Site& site, bool is_write);
  std::string describe(const Place& place) const;
  std::byte* global(Warp& warp, uint64_t address, uint32_t bytes, uint32_t align, const Site& site, bool is_write);
  std::byte* shared(Cta& cta, uint32_t address, uint32_t bytes, uint32_t align, const Site& site);
  std::byte* local(Warp& warp, uint64_t address, uint32_t bytes, const Site& site);
  std::byte* param(Warp& warp, uint64_t address, uint32_t bytes, const Site& site, bool is_write);
  std::byte* refuse(ReportKind kind, const Site& site, const std::string& message);
  Cta* cta_of(Cta& own, uint32_t& address, const Site& site);
  void note_poison_read(Warp& warp, uint64_t address, uint32_t bytes, const Site& site);
  void note_write(Warp& warp, uint64_t address, uint32_t bytes, const Site& site);

  // synchronisation.cpp
  bool races() const { return context_.options.checks.races; }
  bool checks_lanes() const { return context_.options.checks.lanes; }
  /// Entries of the clocks behind the warps' own: first those of each CTA's copies, then one per warp for the wgmma
  /// that it has waited for.
  uint32_t copy_thread(int cta, uint32_t slot) const {
    return static_cast<uint32_t>(warps_.size()) + static_cast<uint32_t>(cta) * kCopyThreads + slot;
  }
  uint32_t wait_thread(int warp) const {
    return copy_thread(static_cast<int>(ctas_.size()), 0) + static_cast<uint32_t>(warp);
  }
  /// Behind wait_thread(), one entry per CTA: its last fence.mbarrier_init. No access has such an epoch.
  uint32_t init_thread(int cta) const {
    return wait_thread(static_cast<int>(warps_.size())) + static_cast<uint32_t>(cta);
  }
  size_t num_threads() const { return init_thread(static_cast<int>(ctas_.size())); }
  uint32_t known_time(const Clock& clock, uint32_t thread) const;
  bool is_before(uint32_t epoch, const Clock& clock) const {
    return epoch_time(epoch) <= known_time(clock, epoch_thread(epoch));
  }
  std::string describe_thread(uint32_t thread) const;
  void publish(Warp& warp);
  void learn(Warp& warp, const Clock& clock);
  ClockSnapshot snapshot(Warp& warp);
  void synchronise(Warp& warp, std::vector<ReleasedMessage>& messages, Order order, Scope scope, bool is_read,
                   bool is_write);
  bool reaches(const ReleasedMessage& message, Scope scope, const Warp& warp) const;
  void acquire(Warp& warp, const ReleasedMessage& message, Order order);
  void release(Warp& warp, std::vector<ReleasedMessage>& messages, Order order, Scope scope);
  void fence(Warp& warp, Scope scope);

  // shared_races.cpp
  bool is_tracked(const Cta& cta, uint32_t address, uint32_t bytes) const;
  bool are_readers_before(SharedShadow& shadow, const ShadowCell& cell, uint32_t me, const Clock& clock,
                          uint32_t& offender) const;
  void note_reader(Cta& cta, ShadowCell& cell, uint32_t me, const SharedAccess& access);
  void shared_read(Cta& cta, uint32_t address, uint32_t bytes, const SharedAccess& access);
  void check_shared_read(Cta& cta, ShadowCell& cell, uint32_t at, uint32_t me, const SharedAccess& access);
  void check_proxy(const ShadowCell& cell, uint32_t at, const SharedAccess& access);
  void report_mbarrier_access(const Site& site, uint32_t at);
  void check_shared_write(Cta& cta, ShadowCell& cell, uint32_t at, const SharedAccess& access);
  void strong_write(Cta& cta, ShadowCell& cell, uint32_t at, uint32_t me, const SharedAccess& access);
  void shared_write(Cta& cta, uint32_t address, uint32_t bytes, const SharedAccess& access);
  void shared_copy_issue(Cta& cta, uint32_t address, uint32_t bytes, const SharedAccess& access);
  void shared_copy_land(Cta& cta, uint32_t address, uint32_t bytes, const SharedAccess& access);
  void shared_mbarrier(Cta& cta, uint32_t address, bool is_alive, const SharedAccess& access);

  // global_races.cpp
  struct GlobalAccess {
    bool is_write, is_strong;
    Scope scope;
  };
  void global_access(Warp& warp, uint64_t address, uint32_t bytes, const GlobalAccess& access, const Clock& clock,
                     const Site& site);
  void history_access(Warp& warp, Region& region, uint64_t address, uint16_t bytes, const GlobalAccess& access,
                      const Clock& clock, const Site& site);
  bool conflicts(const Warp& warp, const HistoryCell& cell, uint16_t bytes, const GlobalAccess& access,
                 const Clock& clock) const;
  bool knows(const Warp& warp, const HistoryCell& cell, const Clock& clock) const;
  void report_conflict(const HistoryCell& cell, uint64_t address, const GlobalAccess& access, const Site& site);
  bool includes(Scope scope, const Warp& a, uint32_t thread) const;

  // warp_ops.cpp
  void with_members(Warp& warp, const Instruction& i, uint32_t mask);
  void execute_together(Warp& warp, const Instruction& i, uint32_t mask);
  void shuffle(Warp& warp, const Instruction& i, uint32_t mask);
  void vote(Warp& warp, const Instruction& i, uint32_t mask);
  void match_any(Warp& warp, const Instruction& i, uint32_t mask);
  void match_all(Warp& warp, const Instruction& i, uint32_t mask);
  void reduce_warp(Warp& warp, const Instruction& i, uint32_t mask);
  void elect(Warp& warp, const Instruction& i, uint32_t mask);
  void read_clock(Warp& warp, const Instruction& i, uint32_t mask);
  void map_rank(Warp& warp, const Instruction& i, uint32_t mask);
  void fill(Warp& warp, uint32_t slot, uint32_t mask, uint32_t value);

  // barriers.cpp
  Flow bar(Warp& warp, const Instruction& i, uint32_t mask);
  void complete_barrier(Cta& cta, uint32_t number);
  void give_votes(Warp& warp, const Instruction& i, uint32_t mask, const Barrier& barrier);
  Flow set_registers(Warp& warp, const Instruction& i);
  uint32_t live_threads(const Cta& cta) const;
  void recheck_barriers(Cta& cta);
  void cluster_arrive(Warp& warp, const Instruction& i, uint32_t mask);
  void arrive_relaxed(Warp& warp, ClusterState& cluster);
  void leave_cluster(const Warp& warp, uint32_t mask);
  Flow cluster_wait(Warp& warp, const Instruction& i, uint32_t mask);
  void check_cluster(ClusterState& cluster);

  // mbarriers.cpp
  void fence_init(Warp& warp);
  void check_init_order(const Cta& cta, const Mbarrier& barrier, uint32_t at, const Site& site, const Clock& clock);
  void check_init_fence(const Cta& cta, uint32_t address, const Site& site);
  Mbarrier* find_mbarrier(Cta& own, uint64_t address, const Site& site, const Clock* clock);
  void mbarrier_init(Warp& warp, const Instruction& i, uint32_t mask);
  void mbarrier_arrive(Warp& warp, const Instruction& i, uint32_t mask);
  void mbarrier_wait(Warp& warp, const Instruction& i, uint32_t mask);
  void check_mbarrier(Mbarrier& barrier, const Site& site);

  // async_copies.cpp
  void copy_async(Warp& warp, const Instruction& i, uint32_t mask);
  void copy_wait(Warp& warp, const Instruction& i, uint32_t mask);
  void land_copies(Warp& warp, size_t keep_groups);
  void land_copy(Warp& warp, const CopyOp& op);
  void copy_arrive(Warp& warp, const Instruction& i, uint32_t mask);

  // bulk_copies.cpp
  TensorMap tensor_map(Warp& warp, uint64_t address, const Site& site, uint32_t rank);
  void prefetch_map(Warp& warp, const Instruction& i, uint32_t mask);
  uint32_t load_thread(int cta, uint32_t address);
  uint32_t store_thread(const Warp& warp) const;
  void bulk_load(Warp& warp, const Instruction& i, uint32_t mask);
  void check_barriers_of(const BulkLoad& job, const Site& site);
  void deliver(const BulkLoad& job);
  uint32_t deliver_bytes(const BulkLoad& job, Cta& to, uint32_t address, const Clock& clock, const Site& site);
  void bulk_store(Warp& warp, const Instruction& i, uint32_t mask);
  bool plan_store(Warp& warp, BulkStore& job, const Site& site);
  void bulk_commit(Warp& warp, uint32_t mask);
  void bulk_wait(Warp& warp, const Instruction& i, uint32_t mask);
  void read_store(Warp& warp, BulkStore& job);
  void finish_store(Warp& warp, BulkStore& job);
  static void reduce_into(std::byte* to, const std::byte* from, uint32_t bytes, AtomicOp op, PtxType type);

  // matrix_ops.cpp
  static SharedAccess collective(const Warp& warp, const Site& site);
  void load_matrix(Warp& warp, const Instruction& i);
  void store_matrix(Warp& warp, const Instruction& i);
  void mma(Warp& warp, const Instruction& i);
  // fragments.cpp
  template <class F>
  void each_run(Warp& warp, const Instruction& i, uint32_t address_slot, F f);
  void reach_run(Warp& warp, const Instruction& i, Place& place, uint32_t bytes, bool is_write);
  void wmma_load(Warp& warp, const Instruction& i);
  void wmma_store(Warp& warp, const Instruction& i);
  void wmma(Warp& warp, const Instruction& i);
  // wgmma.cpp
  void issue_wgmma(Warp& warp, const Instruction& i);
  void check_wgmma_issue(Warp& warp, const Instruction& i);
  void mark_busy(Warp& warp, const WgmmaOp& op, int change);
  Flow wgmma_wait(Warp& warp, const Instruction& i);
  void finish_wgmma_group(Warp& warp, const Instruction& i);
  void compute_wgmma(Warp* group, const std::array<WgmmaOp*, 4>& ops);
  struct WgmmaReader;
  static Clock common_clock(const std::array<WgmmaOp*, 4>& ops);
  void check_wgmma_group(Warp* group, const std::array<WgmmaOp*, 4>& ops, const Site& site);

  // interpreter.cpp
  void report(ReportKind kind, const Site& site, const std::string& message);
  Cta& cta_of(const Warp& warp) { return ctas_[warp.cta]; }
  const Cta& cta_of(const Warp& warp) const { return ctas_[warp.cta]; }
  uint32_t* lanes(Warp& warp, uint32_t slot) const { return warp.regs + slot * kWarpLanes; }
  WideLane* wide_lanes(const Warp& warp, uint32_t slot) const {
    return reinterpret_cast<WideLane*>(warp.regs + slot * kWarpLanes);
  }
  bool tracks_shared() const { return races() || checks_initialised_ || checks_flight_; }
  Group& current(Warp& warp) { return warp.groups[current_]; }

  LaunchContext& context_;
  uint32_t number_;  ///< this run's number in the history of global memory
  const bool checks_initialised_, checks_flight_;
  const bool is_watched_;  ///< any check or counter is on
  std::vector<Cta> ctas_;
  std::vector<Warp> warps_;
  std::vector<ClusterState> clusters_;
  std::vector<uint32_t> registers_;
  std::deque<BulkLoad> loads_;
  std::mt19937 random_;
  Counters counters_;
  uint64_t last_sector_ = ~uint64_t{0};  ///< the last sector of global memory that was counted
  uint64_t events_ = 0;                  ///< progress that others can see
  uint64_t now_;                         ///< %globaltimer without the instructions
  int idleness_ = 0, jumps_ = 0;
  uint64_t idle_since_ = 0;   ///< instructions when the cohort's last progress was seen
  uint64_t lost_since_ = 0;   ///< instructions when a warp was first seen in a loop that no path leaves
  bool may_be_lost_ = false;  ///< a program has such a loop
  uint64_t counters_told_ = 0;
  bool is_stopped_ = false, has_spun_ = false, has_computed_ = false, has_read_clock_ = false;
  int current_ = 0;                         ///< the running group of the warp
  alignas(64) std::byte refused_[64] = {};  ///< where refused accesses go
};

}  // namespace seqtile::sim

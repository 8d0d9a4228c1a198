// jit/sim/cohort.h -- the CTAs that run together on one host thread: a cluster, or a whole cooperative grid.
// SPDX-License-Identifier: Apache-2.0
//
// Where to look: scheduler.cpp turns and deadlocks, interpreter.cpp the instruction loop, access.cpp loads, stores and
// atomics, happens_before.cpp the race checks, warp_ops.cpp shuffles and votes, barriers.cpp everything that waits,
// async_copies.cpp cp.async and bulk copies, matrix_ops.cpp ldmatrix and mma, wgmma.cpp the warp-group product.
#pragma once
#include <mutex>
#include <random>
#include <unordered_map>

#include "jit/sim/state.h"

namespace seqtile::sim {

/// What an acquire of a location's present value learns, by who released it and how far that reaches.
struct ReleasedMessage {
  uint32_t cohort;
  int thread, cta, cluster, device;
  Scope scope;
  ClockSnapshot clock;
  ForeignClocks foreign;
};

/// Shared by all cohorts of a launch.
struct LaunchContext {
  const Options& options;
  MemoryMap& memory;
  ReportSink& reports;
  bool is_parallel = false;
  uint32_t first_cohort = 1;  ///< older cohorts belong to launches that are over
  std::atomic<int64_t> finished_prefix{0};
  std::vector<std::atomic<bool>> finished = {};
  std::mutex sync_mutex = {};
  std::unordered_map<uint64_t, std::vector<ReleasedMessage>> released = {};
  std::array<std::mutex, 64> history_mutex = {};
};

enum class Flow : uint8_t {
  next,   ///< go on with the following instruction
  retry,  ///< the group waits and comes back to this instruction
  park,   ///< the group waits and goes on behind this instruction
};

/// A place in the text that an access comes from.
struct Site {
  const Warp* warp;
  int32_t line;
  int lane;
};

class Cohort {
 public:
  Cohort(LaunchContext& context, uint32_t number);

  /// Runs the clusters' CTAs [first, first + count) of `grid` to their end.
  void run(const Grid& grid, int first_cta, int num_ctas, int64_t index);
  /// Runs streams of launches at the same time, all CTAs resident.
  void run_streams(std::span<const std::vector<Launch>> streams);
  const Counters& counters() const { return counters_; }

 private:
  // scheduler.cpp
  void add_ctas(const Grid& grid, int first_cta, int num_ctas);
  void start_cta(Cta& cta, int linear);
  void start_warp(Warp& warp, int index);
  void fill_constants(Warp& warp);
  uint32_t special_value(const Warp& warp, Special what, int lane) const;
  void size_clocks();
  /// Turns until every warp is done; false after a deadlock.
  bool rotate_until_done(int64_t index);
  void rotate();
  bool note_idle(int64_t index);
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
  void report_deadlock();
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
  /// True when the instruction needs lanes that are not here yet.
  bool must_converge(const Warp& warp, const Instruction& i, uint32_t group_mask) const;
  void leave(Warp& warp, const Instruction& i, uint32_t mask);
  void check_exit(Warp& warp, const Instruction& i);
  void check_remote_accesses(Warp& warp, const Instruction& i);
  const Instruction& code(const Warp& warp, uint32_t pc) const { return warp.grid->program->code[pc]; }

  // access.cpp
  void load(Warp& warp, const Instruction& i, uint32_t mask);
  void store(Warp& warp, const Instruction& i, uint32_t mask);
  void load_param(Warp& warp, const Instruction& i, uint32_t mask);
  void atomic(Warp& warp, const Instruction& i, uint32_t mask);
  uint64_t lane_address(const Warp& warp, const Instruction& i, uint32_t slot, int lane, int64_t offset) const;
  PtxSpace space_of(const Instruction& i, uint64_t& address) const;
  std::byte* resolve(Warp& warp, PtxSpace space, uint64_t address, uint32_t bytes, const Site& site, bool is_write);
  std::byte* global(Warp& warp, uint64_t address, uint32_t bytes, const Site& site, bool is_write);
  std::byte* shared(Cta& cta, uint32_t address, uint32_t bytes, const Site& site);
  std::byte* local(Warp& warp, uint64_t address, uint32_t bytes, const Site& site);
  std::byte* refuse(ReportKind kind, const Site& site, const std::string& message);
  Cta* cta_of(Cta& own, uint32_t& address, const Site& site);
  void check_load(Warp& warp, const Instruction& i, PtxSpace space, uint64_t address, uint32_t bytes, const Site& site);
  void check_store(Warp& warp, const Instruction& i, PtxSpace space, uint64_t address, uint32_t bytes,
                   const Site& site);
  void count_sectors(uint64_t address, uint32_t bytes);
  void count_bank_conflicts(const uint64_t* addresses, uint32_t mask, uint32_t bytes);
  void note_poison_read(Warp& warp, uint64_t address, uint32_t bytes, const Site& site);
  void note_write(Warp& warp, uint64_t address, uint32_t bytes, const Site& site);

  // happens_before.cpp
  bool races() const { return context_.options.checks.races; }
  uint32_t copy_thread(int cta) const { return static_cast<uint32_t>(warps_.size()) + static_cast<uint32_t>(cta); }
  uint32_t wait_thread(int warp) const {
    return static_cast<uint32_t>(warps_.size() + ctas_.size()) + static_cast<uint32_t>(warp);
  }
  size_t num_threads() const { return 2 * warps_.size() + ctas_.size(); }
  uint32_t known_time(const Clock& clock, uint32_t thread) const;
  bool is_before(uint32_t epoch, const Clock& clock) const {
    return epoch_time(epoch) <= known_time(clock, epoch_thread(epoch));
  }
  std::string describe_thread(uint32_t thread) const;
  void publish(Warp& warp);
  void learn(Warp& warp, const Clock& clock);
  ClockSnapshot snapshot(Warp& warp);
  void shared_read(Cta& cta, uint32_t address, uint32_t bytes, uint32_t thread, const Clock& clock, const Site& site,
                   bool is_async);
  void shared_write(Cta& cta, uint32_t address, uint32_t bytes, uint32_t thread, const Clock& clock, const Site& site,
                    bool is_async);
  void shared_copy_issue(Cta& cta, uint32_t address, uint32_t bytes, Warp& warp, const Site& site);
  void shared_copy_land(Cta& cta, uint32_t address, uint32_t bytes, Warp& warp, const Site& site);
  void check_shared_write(const Cta& cta, SharedShadow& shadow, ShadowCell& cell, uint32_t offset, uint32_t thread,
                          const Clock& clock, const Site& site);
  struct GlobalAccess {
    bool is_write, is_strong, is_atomic;
    Scope scope;
  };
  void global_access(Warp& warp, uint64_t address, uint32_t bytes, const GlobalAccess& access, const Clock& clock,
                     const Site& site);
  void history_access(Warp& warp, Region& region, uint64_t address, uint16_t bytes, const GlobalAccess& access,
                      const Clock& clock, const Site& site);
  bool conflicts(const Warp& warp, const HistoryCell& cell, uint16_t bytes, const GlobalAccess& access,
                 const Clock& clock) const;
  bool knows(const Warp& warp, const HistoryCell& cell, const Clock& clock) const;
  void report_conflict(const Warp& warp, const HistoryCell& cell, uint64_t address, const GlobalAccess& access,
                       const Site& site);
  bool includes(Scope scope, const Warp& a, uint32_t thread) const;
  bool reaches(const ReleasedMessage& message, Scope scope, const Warp& warp) const;
  void synchronise(Warp& warp, uint64_t address, Order order, Scope scope, bool is_read, bool is_write);
  void acquire(Warp& warp, const ReleasedMessage& message, Order order);
  void release(Warp& warp, std::vector<ReleasedMessage>& messages, Order order, Scope scope);
  void fence(Warp& warp, Scope scope);

  // warp_ops.cpp
  void shuffle(Warp& warp, const Instruction& i, uint32_t mask);
  void vote(Warp& warp, const Instruction& i, uint32_t mask);
  void match_any(Warp& warp, const Instruction& i, uint32_t mask);
  void reduce_warp(Warp& warp, const Instruction& i, uint32_t mask);
  void elect(Warp& warp, const Instruction& i, uint32_t mask);
  void read_clock(Warp& warp, const Instruction& i, uint32_t mask);
  void map_rank(Warp& warp, const Instruction& i, uint32_t mask);
  void fill(Warp& warp, uint32_t slot, uint32_t mask, uint32_t value);

  // barriers.cpp
  Flow bar(Warp& warp, const Instruction& i, uint32_t mask);
  void complete_barrier(Cta& cta, uint32_t number);
  uint32_t live_threads(const Cta& cta) const;
  void recheck_barriers(Cta& cta);
  void cluster_arrive(Warp& warp, const Instruction& i, uint32_t mask);
  Flow cluster_wait(Warp& warp, uint32_t mask);
  void check_cluster(ClusterState& cluster);
  Mbarrier* find_mbarrier(Warp& warp, Cta& own, uint64_t address, const Site& site, const Clock* clock);
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
  void bulk_load(Warp& warp, const Instruction& i, uint32_t mask);
  void bulk_store(Warp& warp, const Instruction& i, uint32_t mask);
  void bulk_wait(Warp& warp, const Instruction& i, uint32_t mask);
  void deliver(const BulkLoad& job);
  uint32_t deliver_bytes(const BulkLoad& job, Cta& to, Warp& warp, const Clock& clock, const Site& site);
  void finish_store(Warp& warp, const BulkStore& job);
  void reduce_into(Warp& warp, std::byte* to, const std::byte* from, uint32_t bytes, PtxType type);
  const TensorMap* tensor_map(Warp& warp, uint64_t address, const Site& site, int rank);
  template <class F>
  uint32_t each_chunk(const TensorMap& map, const std::array<int32_t, 5>& at, uint32_t shared, F f);

  // matrix_ops.cpp, wgmma.cpp
  void load_matrix(Warp& warp, const Instruction& i);
  void store_matrix(Warp& warp, const Instruction& i);
  void mma(Warp& warp, const Instruction& i);
  void issue_wgmma(Warp& warp, const Instruction& i);
  void check_wgmma_issue(Warp& warp, const Instruction& i);
  void mark_busy(Warp& warp, const WgmmaOp& op, int change);
  Flow wgmma_wait(Warp& warp, const Instruction& i);
  void finish_wgmma_group(Warp& warp, const Instruction& i);
  void compute_wgmma(Warp* group, const std::array<WgmmaOp*, 4>& ops);
  struct WgmmaReader;
  void check_wgmma_group(Warp* group, const std::array<WgmmaOp*, 4>& ops, const Site& site);

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
  uint32_t number_;  ///< of this run, in the history of global memory
  const bool checks_initialised_, checks_flight_;
  std::vector<Cta> ctas_;
  std::vector<Warp> warps_;
  std::vector<ClusterState> clusters_;
  std::vector<uint32_t> registers_;
  std::deque<BulkLoad> loads_;
  std::mt19937 random_;
  Counters counters_;
  uint64_t events_ = 0;  ///< progress that others can see
  uint64_t now_ = 1000;  ///< what %globaltimer reads
  int idleness_ = 0, jumps_ = 0;
  bool is_stopped_ = false, has_spun_ = false, has_computed_ = false, has_read_clock_ = false;
  int current_ = 0;                         ///< group of the warp that runs
  alignas(64) std::byte refused_[64] = {};  ///< where refused accesses go
};

}  // namespace seqtile::sim

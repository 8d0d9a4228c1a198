// jit/sim/exec/scheduler.cpp -- starts CTAs, gives warps their turns and lets late data arrive.
// SPDX-License-Identifier: Apache-2.0
//
// One rotation is a turn for every warp. Copies that were under way before a rotation arrive at its end (with a seed:
// later). Launches that do not come to their end are found in stuck.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "jit/sim/exec/cohort.h"
#include "seqtile/error.h"

namespace seqtile::sim {
namespace {

constexpr int kRegistersPerCta = 65536;

uint32_t dim_index(uint32_t linear, const std::array<int, 3>& dims, int d) {
  if (d == 0) return linear % static_cast<uint32_t>(dims[0]);
  linear /= static_cast<uint32_t>(dims[0]);
  return d == 1 ? linear % static_cast<uint32_t>(dims[1]) : linear / static_cast<uint32_t>(dims[1]);
}

}  // namespace

Cohort::Cohort(LaunchContext& context, uint32_t number)
    : context_(context),
      number_(number),
      checks_initialised_(context.options.checks.initialised),
      checks_flight_(context.options.checks.in_flight),
      is_watched_(checks_initialised_ || checks_flight_ || context.options.checks.races || context.options.profile),
      random_(context.options.seed + number * 7919),
      now_(context.start_ns) {}

void Cohort::run(const Grid& grid, int first_cta, int num_ctas, int64_t index) {
  if (static_cast<int>(ctas_.size()) != num_ctas) {
    ctas_.clear(), warps_.clear(), clusters_.clear();
    add_ctas(grid, first_cta, num_ctas);
    size_clocks();
  }
  // nothing remembers the times of the CTAs before
  for (Warp& warp : warps_) std::fill(warp.clock.begin(), warp.clock.end(), 0);
  for (int c = 0; c < num_ctas; ++c) start_cta(ctas_[c], first_cta + c);
  for (ClusterState& cluster : clusters_) cluster = {0, 0, cluster.first_cta, cluster.num_ctas, {}, {}, {}, {}, {}};
  loads_.clear();
  is_stopped_ = false;
  number_ = context_.first_cohort + static_cast<uint32_t>(index);
  rotate_until_done(index);
}

/// Makes room for CTAs of a grid behind those that are there.
void Cohort::add_ctas(const Grid& grid, int first_cta, int num_ctas) {
  const int size = grid.cluster_size();
  for (int c = 0; c < num_ctas; ++c) {
    const auto index = static_cast<int>(ctas_.size());
    if (c % size == 0) clusters_.push_back({0, 0, index, size, {}, {}, {}, {}, {}});
    Cta& cta = ctas_.emplace_back();
    cta.grid = &grid;
    cta.cluster = static_cast<int>(clusters_.size()) - 1;
    cta.first_in_cluster = index - c % size;
    cta.linear = first_cta + c;
    cta.first_warp = static_cast<int>(warps_.size());
    cta.num_warps = grid.num_warps();
    for (int w = 0; w < cta.num_warps; ++w) {
      Warp& warp = warps_.emplace_back();
      warp.id = static_cast<int>(warps_.size()) - 1;
      warp.cta = index;
      warp.grid = &grid;
    }
  }
}

void Cohort::size_clocks() {
  if (races() && init_thread(0) > kMaxThreads)
    throw Error(ErrorCode::unsupported,
                fmt::format("{} warps run together, the race check knows {}; launch fewer CTAs or switch it off",
                            warps_.size(), kMaxThreads / 3));
  size_t words = 16;
  may_be_lost_ = std::any_of(warps_.begin(), warps_.end(),
                             [](const Warp& warp) { return !warp.grid->program->never_ends.empty(); });
  for (const Warp& warp : warps_) words += size_t{warp.grid->program->num_slots} * kWarpLanes;
  if (registers_.size() < words) registers_.resize(words);
  auto* next = reinterpret_cast<uint32_t*>((reinterpret_cast<uintptr_t>(registers_.data()) + 63) & ~uintptr_t{63});
  for (Warp& warp : warps_) {
    warp.regs = next;
    next += size_t{warp.grid->program->num_slots} * kWarpLanes;
    warp.clock.assign(num_threads(), 0);
    fill_constants(warp);
  }
}

void Cohort::start_cta(Cta& cta, int linear) {
  const Grid& grid = *cta.grid;
  const std::array<int, 3>& c = grid.shape.cluster;
  // CTAs of a cluster have consecutive numbers here; in the grid they are a box
  const int cluster = linear / grid.cluster_size();
  cta.rank = linear % grid.cluster_size();
  const std::array<int, 3> clusters = {grid.shape.grid[0] / c[0], grid.shape.grid[1] / c[1], grid.shape.grid[2] / c[2]};
  for (int d = 0; d < 3; ++d)
    cta.id[d] = dim_index(static_cast<uint32_t>(cluster), clusters, d) * static_cast<uint32_t>(c[d]) +
                dim_index(static_cast<uint32_t>(cta.rank), c, d);
  cta.linear = static_cast<int>(cta.id[0] + static_cast<uint32_t>(grid.shape.grid[0]) *
                                                (cta.id[1] + static_cast<uint32_t>(grid.shape.grid[1]) * cta.id[2]));
  cta.shared.assign(static_cast<size_t>(grid.program->static_shared_bytes + grid.shape.shared_bytes), std::byte{0xff});
  if (tracks_shared()) cta.shadow.reset(cta.shared.size());
  cta.mbarriers.clear();
  cta.barriers = {};
  cta.released.clear();
  cta.copy_barriers.clear();
  cta.init_fences = 0;
  cta.free_registers = 0;
  cta.remote.clear();
  cta.loads.clear();
  cta.is_gone = false;
  for (int w = 0; w < cta.num_warps; ++w) start_warp(warps_[cta.first_warp + w], w);
}

void Cohort::start_warp(Warp& warp, int index) {
  Warp fresh;
  fresh.id = warp.id, fresh.cta = warp.cta, fresh.index = index, fresh.grid = warp.grid, fresh.regs = warp.regs;
  // the last warp of a block may have fewer threads than lanes
  const int threads = std::min(kWarpLanes, warp.grid->shape.num_threads() - index * kWarpLanes);
  fresh.live = kAllLanes >> (kWarpLanes - threads);
  fresh.groups = {{warp.grid->program->entry().entry, fresh.live, GroupState::running, 0}};
  fresh.clock = std::move(warp.clock);
  const uint32_t time = fresh.clock[warp.id];
  std::fill(fresh.clock.begin(), fresh.clock.end(), 0);
  fresh.clock[warp.id] = time + 1;
  const Program& program = *warp.grid->program;
  fresh.registers = start_registers(*warp.grid);
  fresh.local.assign(static_cast<size_t>(program.local_bytes) * kWarpLanes, std::byte{0xff});
  if (checks_initialised_) fresh.initialised.assign(program.num_virtual, kAllLanes);
  for (const uint32_t r : program.watched)
    if (checks_initialised_) fresh.initialised[r] = 0;
  if (program.has_wgmma && checks_flight_) {
    fresh.busy_accumulator.assign(program.num_virtual, 0);
    fresh.busy_fragment.assign(program.num_virtual, 0);
    fresh.written_after_fence.assign(program.num_virtual, 0);
  }
  warp = std::move(fresh);
  for (const SpecialSlot& special : program.specials)
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const uint32_t value = special_value(warp, special.what, lane);
      if (special.is_wide) wide_lanes(warp, special.slot)[lane] = value;
      else lanes(warp, special.slot)[lane] = value;
    }
}

int Cohort::start_registers(const Grid& grid) {
  if (grid.shape.registers != 0) return grid.shape.registers;
  if (grid.program->max_registers != 0) return grid.program->max_registers;
  return std::min(256, kRegistersPerCta / grid.shape.num_threads() & ~7);
}

void Cohort::fill_constants(Warp& warp) {
  for (const ConstantSlot& constant : warp.grid->program->constants) {
    if (constant.is_wide) std::fill_n(wide_lanes(warp, constant.slot), kWarpLanes, constant.value);
    else std::fill_n(lanes(warp, constant.slot), kWarpLanes, static_cast<uint32_t>(constant.value));
  }
}

uint32_t Cohort::special_value(const Warp& warp, Special what, int lane) const {
  const Cta& cta = cta_of(warp);
  const LaunchShape& shape = warp.grid->shape;
  const auto number = static_cast<int>(what);
  const auto within = [&](Special first) { return number - static_cast<int>(first); };
  const auto is_one_of = [&](Special first) { return within(first) >= 0 && within(first) < 3; };
  if (is_one_of(Special::tid_x))
    return dim_index(static_cast<uint32_t>(warp.index * kWarpLanes + lane),
                     {shape.threads, shape.threads_yz[0], shape.threads_yz[1]}, within(Special::tid_x));
  if (is_one_of(Special::ctaid_x)) return cta.id[within(Special::ctaid_x)];
  if (is_one_of(Special::nctaid_x)) return static_cast<uint32_t>(shape.grid[within(Special::nctaid_x)]);
  if (is_one_of(Special::clusterid_x))
    return cta.id[within(Special::clusterid_x)] / static_cast<uint32_t>(shape.cluster[within(Special::clusterid_x)]);
  if (is_one_of(Special::nclusterid_x))
    return static_cast<uint32_t>(shape.grid[within(Special::nclusterid_x)] /
                                 shape.cluster[within(Special::nclusterid_x)]);
  if (is_one_of(Special::cluster_ctaid_x))
    return cta.id[within(Special::cluster_ctaid_x)] %
           static_cast<uint32_t>(shape.cluster[within(Special::cluster_ctaid_x)]);
  if (is_one_of(Special::cluster_nctaid_x))
    return static_cast<uint32_t>(shape.cluster[within(Special::cluster_nctaid_x)]);
  switch (what) {
    case Special::ntid_x: return static_cast<uint32_t>(shape.threads);
    case Special::ntid_y: return static_cast<uint32_t>(shape.threads_yz[0]);
    case Special::ntid_z: return static_cast<uint32_t>(shape.threads_yz[1]);
    case Special::threads_of_warps: return static_cast<uint32_t>(cta.num_warps * kWarpLanes);
    case Special::laneid: return static_cast<uint32_t>(lane);
    case Special::warpid: return static_cast<uint32_t>(warp.index);
    case Special::nwarpid: return static_cast<uint32_t>(cta.num_warps);
    case Special::cluster_ctarank: return static_cast<uint32_t>(cta.rank);
    case Special::cluster_nctarank: return static_cast<uint32_t>(warp.grid->cluster_size());
    case Special::lanemask_eq: return 1u << lane;
    case Special::lanemask_lt: return (1u << lane) - 1;
    case Special::lanemask_le: return (2u << lane) - 1;
    case Special::lanemask_gt: return ~((2u << lane) - 1);
    case Special::lanemask_ge: return ~((1u << lane) - 1);
    case Special::warp_size: return kWarpLanes;
    case Special::is_explicit_cluster: return warp.grid->cluster_size() > 1 ? 1 : 0;
    case Special::envreg1:
    case Special::envreg2: {
      const uint64_t workspace = shape.cooperative ? warp.grid->program->grid_workspace : 0;
      return static_cast<uint32_t>(what == Special::envreg1 ? workspace >> 32 : workspace);
    }
    case Special::nsmid: return 132;
    case Special::smid: return static_cast<uint32_t>(cta.linear % 132);
    case Special::dynamic_smem_size: return static_cast<uint32_t>(shape.shared_bytes);
    case Special::total_smem_size: return static_cast<uint32_t>(cta.shared.size());
    default: return 0;
  }
}

bool Cohort::rotate_until_done(int64_t index) {
  idleness_ = jumps_ = 0;
  lost_since_ = 0;
  const uint64_t first = counters_.warp_instructions;
  while (!is_stopped_ && !context_.reports.is_enough()) {
    const bool is_alive = std::any_of(warps_.begin(), warps_.end(), [](const Warp& w) { return !w.is_done; });
    if (!is_alive) break;
    const uint64_t before = events_;
    rotate();
    note_progress();
    if (is_lost() || is_over_limit(first)) return false;
    if (events_ != before || !loads_.empty()) idleness_ = 0, jumps_ = events_ != before ? 0 : jumps_;
    else if (!note_idle(index)) return false;
  }
  while (!loads_.empty() && !is_stopped_) deliver_copies(loads_.size());
  return !is_stopped_;
}

void Cohort::rotate() {
  static constexpr uint32_t kFuel[] = {1u << 20, 15, 150, 3000};
  const bool is_random = context_.options.seed != 0;
  const size_t under_way = loads_.size();
  has_computed_ = false;
  now_ += 100;
  const auto turn = [&](Warp& warp) {
    if (warp.is_done || is_stopped_) return;
    const uint32_t most = kFuel[is_random ? context_.options.seed % 4 : 0];
    run_slice(warp, is_random ? 1 + random_() % most : most);
    warp.has_waited |= has_spun_;
  };
  if (is_random) {
    std::vector<size_t> order(warps_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random_);
    for (const size_t w : order) turn(warps_[w]);
    deliver_copies(under_way > 0 ? random_() % (under_way + 1) : 0);
  } else {
    for (Warp& warp : warps_) turn(warp);
    deliver_copies(under_way);
  }
}

void Cohort::deliver_copies(size_t count) {
  for (; count > 0 && !loads_.empty(); --count) {
    const BulkLoad job = std::move(loads_.front());
    loads_.pop_front();
    deliver(job);
  }
}

/// All CTAs of a stream's launch, from where the stream's past is known.
void Cohort::start_launch(StreamState& stream, const Launch& launch) {
  if (launch.before) launch.before();
  stream.grid.params = launch.params;
  for (int c = 0; c < stream.grid.num_ctas(); ++c) {
    Cta& cta = ctas_[stream.first_cta + static_cast<size_t>(c)];
    start_cta(cta, c);
    for (int w = cta.first_warp; w < cta.first_warp + cta.num_warps; ++w) learn(warps_[w], stream.clock);
  }
  for (ClusterState& cluster : clusters_)
    if (ctas_[cluster.first_cta].grid == &stream.grid)
      cluster = {0, 0, cluster.first_cta, cluster.num_ctas, {}, {}, {}, {}, {}};
  stream.is_running = true;
}

void Cohort::finish_launch(StreamState& stream, const Launch& launch) {
  for (const Warp& warp : warps_)
    if (warp.grid == &stream.grid) join(stream.clock, warp.clock);
  if (launch.after) launch.after();
  stream.is_running = false;
  ++stream.next;
  ++events_;
}

bool Cohort::is_over(const StreamState& stream) const {
  return std::all_of(warps_.begin(), warps_.end(), [&](const Warp& w) { return w.grid != &stream.grid || w.is_done; });
}

/// Ends and begins launches; false when all streams are through.
bool Cohort::advance_streams(std::vector<StreamState>& state, std::span<const std::vector<Launch>> streams) {
  bool is_alive = false;
  for (size_t s = 0; s < state.size(); ++s) {
    StreamState& stream = state[s];
    if (stream.is_running && is_over(stream)) finish_launch(stream, streams[s][stream.next]);
    if (!stream.is_running && stream.next < streams[s].size()) start_launch(stream, streams[s][stream.next]);
    is_alive |= stream.is_running;
  }
  return is_alive;
}

void Cohort::run_streams(std::span<const std::vector<Launch>> streams) {
  // every launch of a stream has the program and shape of its first one
  std::vector<StreamState> state(streams.size());
  for (size_t s = 0; s < streams.size(); ++s) {
    if (streams[s].empty()) continue;
    const Launch& launch = streams[s].front();
    state[s].grid = {launch.program, launch.shape, launch.params, static_cast<int>(s)};
    state[s].first_cta = ctas_.size();
    add_ctas(state[s].grid, 0, state[s].grid.num_ctas());
  }
  size_clocks();
  for (Warp& warp : warps_) warp.is_done = true;
  idleness_ = jumps_ = 0;
  lost_since_ = 0;
  while (!is_stopped_ && advance_streams(state, streams)) {
    const uint64_t before = events_;
    rotate();
    note_progress();
    if (is_lost() || is_over_limit(0)) break;
    if (events_ != before || !loads_.empty()) idleness_ = 0, jumps_ = events_ != before ? 0 : jumps_;
    else if (!note_idle(0)) break;
  }
}

}  // namespace seqtile::sim

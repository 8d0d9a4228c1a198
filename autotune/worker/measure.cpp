// autotune/worker/measure.cpp -- see measure.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "autotune/tuning/stats.h"
#include "jit/error.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kSmallestRegion = size_t{32} << 20, kLargestRegion = size_t{256} << 20;
constexpr double kProbeFlops = 2e8;     // a first launch is kept to about this much work
constexpr double kSliceAboveUs = 2500;  // longer launches are sliced to
constexpr double kSliceUs = 1500;       // this long
constexpr double kSampleUs = 150;       // short launches are repeated up to this time
constexpr double kEnoughUs = 5000;      // measured time after which a candidate needs no round beyond the least
constexpr double kSlowFactor = 25;      // times the yardstick: not worth a second launch

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

std::optional<DType> region_of(const ArgSpec& arg) {
  return arg.role == ArgRole::output ? std::nullopt : std::optional(arg.dtype);
}

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

OperandRegions::OperandRegions(bool cold, int64_t last_level_cache_bytes)
    : cold_(cold),
      size_(std::clamp(static_cast<size_t>(4 * last_level_cache_bytes), kSmallestRegion, kLargestRegion)) {}

void* OperandRegions::take(std::optional<DType> dtype, size_t bytes) {
  Region& region = regions_[dtype];
  if (region.pages.size() < std::max(size_, aligned(bytes))) {
    region.pages = Pages(std::max(size_, 2 * aligned(bytes)));
    region.next = 0;
    // Outputs are touched as well: a launch must not be charged for the system's first visit to a page.
    if (dtype) fill_normal(region.pages.data(), *dtype, region.pages.size() / dtype_bytes(*dtype), 1.0, 0);
    else std::memset(region.pages.data(), 1, region.pages.size());
  }
  if (region.next + bytes > region.pages.size()) region.next = 0;
  void* memory = region.pages.data() + region.next;
  region.next += aligned(bytes);
  return memory;
}

void OperandRegions::restart() {
  if (cold_) return;
  for (auto& [dtype, region] : regions_) region.next = 0;
}

/// One candidate in a race.
struct Meter::Lane {
  const LoadedCandidate* candidate = nullptr;
  Grid grid{};
  std::vector<Pages> workspaces;
  KernelCall call;
  Series series;
  int reps = 1;
  double estimate_us = 0;  ///< of a whole launch
  double spent_us = 0;
  bool running = true;
};

Meter::Meter(const OpDef& op, const Workload& workload, Device& device, OperandRegions& regions)
    : op_(op),
      workload_(workload),
      device_(device),
      regions_(regions),
      schema_(op.schema(workload)),
      layout_(schema_, device.target().is_gpu()) {
  problem_.workload = &workload_;
  problem_.schema = &schema_;
}

void Meter::bind(int64_t length) {
  if (length == bound_length_) return;
  problem_.symbols = call_symbols(op_, workload_, schema_, length);
  problem_.tensors.clear();
  filled_.clear();
  filled_.resize(schema_.args.size());
  bytes_.clear();
  regions_.restart();
  for (const ArgSpec& arg : schema_.args) {
    Tensor tensor = describe_arg(arg, schema_, problem_.symbols);
    bytes_.push_back(tensor_bytes(tensor));
    if (arg.role != ArgRole::output && !is_float(arg.dtype)) {
      filled_[problem_.tensors.size()] = Pages(bytes_.back());
      tensor.data = filled_[problem_.tensors.size()].data();
    } else {
      regions_.take(region_of(arg), bytes_.back());  // the region grows here, so that no pointer taken below moves
    }
    problem_.tensors.push_back(tensor);
  }
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (!filled_[i].data()) problem_.tensors[i].data = regions_.take(region_of(schema_.args[i]), bytes_[i]);
  // Floats keep the region's values: an operation's own content matters for its result, not for its time.
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (filled_[i].data() && op_.fill) op_.fill(problem_, i, 1);
  bound_length_ = length;
}

void Meter::rotate(Lane& lane) {
  regions_.restart();
  uint64_t* slot = lane.call.slots.data();
  for (size_t i = 0; i < schema_.args.size(); ++i) {
    const ArgSpec& arg = schema_.args[i];
    if (!filled_[i].data()) *slot = reinterpret_cast<uint64_t>(regions_.take(region_of(arg), bytes_[i]));
    slot += 1 + 2 * arg.dims.size();
  }
}

/// Mean microseconds of a whole launch over `reps` launches of a fraction of the grid.
double Meter::sample_us(Lane& lane, int reps, double fraction) {
  const auto timed = [&](const GridRange& programs) {
    const double start = now_us();
    device_.launch(*lane.candidate->kernel, lane.grid, lane.call.block(), {}, programs);
    const double us = now_us() - start;
    lane.spent_us += us;
    return us;
  };
  const int64_t total = lane.grid[0] * lane.grid[1] * lane.grid[2], threads = workload_.threads;
  const auto samples = sample_for(*lane.candidate, lane.grid, fraction, workload_.threads);
  // Threads take turns of `threads` programs; a run that does not fill its last turn leaves room for others.
  const auto whole_turns = [&](int64_t count) { return (count + threads - 1) / threads * threads; };
  double sum = 0;
  for (int i = 0; i < reps; ++i) {
    rotate(lane);
    if (samples.empty()) sum += timed({});
    double share = 0;
    for (const GridSample& sample : samples)
      share += timed({sample.first, sample.count}) * sample.stands_for / static_cast<double>(whole_turns(sample.count));
    sum += share * static_cast<double>(whole_turns(total)) / static_cast<double>(total);
  }
  lane.series.sliced = !samples.empty();
  return sum / reps;
}

std::vector<Series> Meter::measure(std::span<const LoadedCandidate* const> candidates, const MeasurePlan& plan,
                                   volatile int64_t* current) {
  bind(plan.length);
  std::vector<Lane> lanes;
  const auto scalars = std::span(problem_.symbols).subspan(schema_.symbols.size());
  for (const LoadedCandidate* candidate : candidates) {
    Lane& lane = lanes.emplace_back();
    lane.candidate = candidate;
    lane.grid = grid_of(candidate->grid, problem_.symbols);
    layout_.bind(problem_.tensors, plan.length, scalars, lane.call);
    for (const Workspace& workspace : candidate->workspaces) {
      const int64_t elements = workspace.elements.value(problem_.symbols);
      lane.workspaces.emplace_back(static_cast<size_t>(elements * dtype_bytes(workspace.dtype)));
      append_workspace(lane.call, lane.workspaces.back().data(), elements);
    }
    layout_.finish(scalars, nullptr, lane.call);
  }

  // First launches: they warm the code up and say how long a launch takes.
  const double start = now_us();
  const double flops = op_.cost(workload_, problem_.symbols).flops;
  for (size_t i = 0; i < lanes.size(); ++i) {
    Lane& lane = lanes[i];
    *current = static_cast<int64_t>(i);
    const double probe = flops > kProbeFlops ? kProbeFlops / flops : 1;
    lane.estimate_us = sample_us(lane, 1, probe);
    if (lane.estimate_us < kSlowFactor * kSliceAboveUs)
      lane.estimate_us = std::min(lane.estimate_us, sample_us(lane, 1, probe));
    lane.reps = std::clamp(static_cast<int>(kSampleUs / std::max(0.1, lane.estimate_us)), 1, 64);
    if (lane.estimate_us > kSlowFactor * lanes[0].estimate_us + 1000) {
      lane.series.verdict = {"slow", "the first launch took " + std::to_string(static_cast<int64_t>(lane.estimate_us)) +
                                         " us, the default's " +
                                         std::to_string(static_cast<int64_t>(lanes[0].estimate_us)) + " us"};
      lane.running = false;
    }
  }
  // One fraction for all, so that every candidate does the same share of the work.
  const double fraction = lanes[0].estimate_us > kSliceAboveUs ? kSliceUs / lanes[0].estimate_us : 1;

  for (Lane& lane : lanes) lane.spent_us = 0;
  for (int round = 0; round < plan.max_rounds; ++round) {
    if (round >= 3 && now_us() - start > plan.limit_s * 1e6) break;
    if (round >= plan.min_rounds && lanes[0].spent_us >= kEnoughUs) break;
    double best = 0;
    for (size_t i = 0; i < lanes.size(); ++i) {
      Lane& lane = lanes[i];
      if (!lane.running) continue;
      *current = static_cast<int64_t>(i);
      lane.series.us.push_back(sample_us(lane, lane.reps, fraction));
      const double so_far = median(lane.series.us);
      if (best == 0 || so_far < best) best = so_far;
    }
    if (!plan.stop_losers || round < 1) continue;
    // Drift hits all candidates alike, so a loser shows early.
    const double allowed = round < 3 ? 1.3 : 1.12;
    for (size_t i = 1; i < lanes.size(); ++i)
      if (lanes[i].running && median(lanes[i].series.us) > allowed * best) lanes[i].running = false;
  }
  *current = -1;
  std::vector<Series> result;
  for (Lane& lane : lanes) result.push_back(std::move(lane.series));
  return result;
}

}  // namespace seqtile::autotune

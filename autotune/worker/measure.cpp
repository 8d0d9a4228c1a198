// autotune/worker/measure.cpp -- see measure.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "autotune/tuning/stats.h"
#include "jit/error.h"
#include "jit/simulation.h"

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

OperandRegions::OperandRegions(Device& device, bool cold) : device_(device), cold_(cold) {
  const Target& target = device.target();
  const int64_t cache = target.is_gpu() ? target.gpu.l2_bytes : target.l3_bytes;
  size_ = std::clamp(static_cast<size_t>(4 * cache), kSmallestRegion, kLargestRegion);
  // Nothing of a simulated launch depends on where its operands lie, and every byte of them is tracked.
  if (device.info().kind == "sim") size_ = 0;
}

void OperandRegions::grow(Region& region, std::optional<DType> dtype, size_t bytes) {
  DeviceMemory& memory = device_.memory();
  region.bytes = std::max(size_, bytes);
  region.next = 0;
  Pages pages(region.bytes);
  // Outputs are touched as well: a launch must not be charged for the system's first visit to a page.
  if (dtype) fill_normal(pages.data(), *dtype, region.bytes / dtype_bytes(*dtype), 1.0, 0);
  else std::memset(pages.data(), 1, region.bytes);
  if (memory.is_host()) {
    region.pages = std::move(pages);
    return;
  }
  region.buffer = DeviceBuffer();  // first, so that both never exist at once
  region.buffer = DeviceBuffer(memory, region.bytes);
  memory.copy(region.buffer.data(), pages.data(), region.bytes);
  device_.streams().synchronize({});
}

void OperandRegions::reserve(std::optional<DType> dtype, size_t bytes) {
  Region& region = regions_[dtype];
  const size_t room = cold_ ? 2 * bytes : bytes;  // a cold call goes on where the last one ended, around the end
  if (region.bytes < std::max(size_, room)) grow(region, dtype, room);
}

void* OperandRegions::take(std::optional<DType> dtype, size_t bytes) {
  Region& region = regions_.at(dtype);
  if (region.next + bytes > region.bytes) region.next = 0;
  void* at = region.data() + region.next;
  region.next += aligned(bytes);
  return at;
}

void OperandRegions::flush(Stream stream) {
  if (!cold_) return;
  if (!flushed_.data())
    flushed_ = DeviceBuffer(device_.memory(), static_cast<size_t>(2 * device_.target().gpu.l2_bytes));
  device_.memory().fill(flushed_.data(), 0, flushed_.bytes(), stream);
}

void OperandRegions::restart() {
  if (cold_) return;
  for (auto& [dtype, region] : regions_) region.next = 0;
}

/// One candidate in a race.
struct Meter::Lane {
  const LoadedCandidate* candidate = nullptr;
  Grid grid{};
  std::vector<DeviceBuffer> workspaces;
  KernelCall call;
  Series series;
  int reps = 1;
  std::unique_ptr<Graph> graph;  ///< of graph_reps launches
  int graph_reps = 0;
  std::optional<double> simulated_us;
  double estimate_us = 0;  ///< of a whole launch
  double spent_us = 0;
  bool running = true;
};

Meter::Meter(const OpDef& op, const Workload& workload, Device& device, OperandRegions& regions, bool uses_graphs)
    : op_(op),
      workload_(workload),
      device_(device),
      regions_(regions),
      schema_(op.schema(workload)),
      layout_(schema_, device.target().is_gpu()),
      is_simulated_(is_simulated(device)),
      uses_graphs_(uses_graphs) {
  set_simulation(device, {.profile = true});
  problem_.workload = &workload_;
  problem_.schema = &schema_;
  if (device.memory().is_host()) return;
  stream_.emplace(device.streams());
  begun_ = device.streams().create_event();
  ended_ = device.streams().create_event();
}

void Meter::bind(int64_t length) {
  if (length == bound_length_) return;
  problem_.symbols = call_symbols(op_, workload_, schema_, length);
  problem_.tensors.clear();
  filled_.clear();
  filled_.resize(schema_.args.size());
  bytes_.clear();
  regions_.restart();
  std::map<std::optional<DType>, size_t> taken;
  for (const ArgSpec& arg : schema_.args) {
    Tensor tensor = describe_arg(arg, schema_, problem_.symbols);
    bytes_.push_back(tensor_bytes(tensor));
    if (arg.role != ArgRole::output && !is_float(arg.dtype)) {
      filled_[problem_.tensors.size()] = Pages(bytes_.back());
      tensor.data = filled_[problem_.tensors.size()].data();
    } else {
      taken[region_of(arg)] += aligned(bytes_.back());
    }
    problem_.tensors.push_back(tensor);
  }
  for (const auto& [region, bytes] : taken) regions_.reserve(region, bytes);
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (!filled_[i].data()) problem_.tensors[i].data = regions_.take(region_of(schema_.args[i]), bytes_[i]);
  // Floats keep the region's values: an operation's own content matters for its result, not for its time.
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (filled_[i].data() && op_.fill) op_.fill(problem_, i, 1);
  send_filled();
  bound_length_ = length;
}

void Meter::send_filled() {
  sent_.emplace(device_);
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (filled_[i].data())
      sent_->add({filled_[i].data(), bytes_[i]}, schema_.args[i].name, schema_.args[i].holds_addresses);
  sent_->upload();
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (filled_[i].data()) problem_.tensors[i].data = sent_->at(filled_[i].data());
  device_.streams().synchronize({});
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

/// Mean microseconds of a whole launch over `reps` launches; CPUs may run a fraction of the grid.
double Meter::sample_us(Lane& lane, int reps, double fraction) {
  if (is_simulated_) return simulate_us(lane);
  return stream_ ? sample_gpu_us(lane, reps) : sample_host_us(lane, reps, fraction);
}

/// What the model makes of the counters of one launch.
double Meter::simulate_us(Lane& lane) {
  if (lane.simulated_us) return *lane.simulated_us;
  rotate(lane);
  const KernelBinary& binary = lane.candidate->kernel->binary();
  device_.launch(*lane.candidate->kernel, lane.grid, lane.call.block(), *stream_);
  device_.streams().synchronize(*stream_);
  const double programs = static_cast<double>(lane.grid[0] * lane.grid[1] * lane.grid[2]);
  GpuWork work;
  if (op_.gpu_work) {
    work = op_.gpu_work(workload_, lane.candidate->config, bound_length_, device_.target());
  } else {
    const Cost cost = op_.cost(workload_, problem_.symbols);
    work.programs = programs;
    work.memory_bytes = cost.bytes_read + cost.bytes_written;
    work.threads = binary.gpu.threads;
    work.shared_bytes = binary.gpu.shared_bytes;
  }
  std::map<std::string, uint64_t> counters;
  for (const auto& [name, value] : last_launch(device_).counters) counters[name] = value;
  const auto of_program = [&](const char* name) { return static_cast<double>(counters.at(name)) / programs; };
  apply_counts({of_program("warp_instructions"), of_program("global_sectors"),
                of_program("shared_accesses") + of_program("bank_conflicts")},
               work);
  lane.simulated_us = predict_us(work, device_.target().gpu);
  return *lane.simulated_us;
}

double Meter::sample_gpu_us(Lane& lane, int reps) {
  const auto launch_all = [&] {
    for (int i = 0; i < reps; ++i) {
      rotate(lane);
      device_.launch(*lane.candidate->kernel, lane.grid, lane.call.block(), *stream_);
    }
  };
  if (uses_graphs_ && lane.graph_reps != reps) {
    device_.streams().begin_capture(*stream_);
    launch_all();
    lane.graph = device_.streams().end_capture(*stream_);
    lane.graph_reps = reps;
  }
  regions_.flush(*stream_);
  begun_->record(*stream_);
  if (uses_graphs_) lane.graph->launch(*stream_);
  else launch_all();
  ended_->record(*stream_);
  device_.streams().synchronize(*stream_);  // what a launch did wrong comes out here
  const double us = ended_->us_since(*begun_);
  lane.spent_us += us;
  return us / reps;
}

double Meter::sample_host_us(Lane& lane, int reps, double fraction) {
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

Meter::Lane Meter::make_lane(const LoadedCandidate& candidate, int64_t length) {
  DeviceMemory& memory = device_.memory();
  const auto scalars = std::span(problem_.symbols).subspan(schema_.symbols.size());
  Lane lane;
  lane.candidate = &candidate;
  lane.grid = grid_of(candidate.grid, problem_.symbols);
  layout_.bind(problem_.tensors, length, scalars, lane.call);
  for (const Workspace& workspace : candidate.workspaces) {
    const int64_t elements = workspace.elements.value(problem_.symbols);
    const auto bytes = static_cast<size_t>(elements * dtype_bytes(workspace.dtype));
    lane.workspaces.emplace_back(memory, std::max<size_t>(bytes, 1));
    memory.fill(lane.workspaces.back().data(), 0, bytes);
    append_workspace(lane.call, lane.workspaces.back().data(), elements);
  }
  layout_.finish(scalars, nullptr, lane.call);
  return lane;
}

std::vector<Series> Meter::measure(std::span<const LoadedCandidate* const> candidates, const MeasurePlan& plan,
                                   volatile int64_t* current) {
  bind(plan.length);
  std::vector<Lane> lanes;
  for (const LoadedCandidate* candidate : candidates) lanes.push_back(make_lane(*candidate, plan.length));
  device_.streams().synchronize({});

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
  const std::string condition = device_.condition();  // before the device cools down
  std::vector<Series> result;
  for (Lane& lane : lanes) {
    if (lane.series.verdict.ok()) lane.series.verdict.detail = condition;
    result.push_back(std::move(lane.series));
  }
  return result;
}

}  // namespace seqtile::autotune

// autotune/worker/measure.cpp -- see measure.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/measure.h"

#include <algorithm>
#include <chrono>

#include "autotune/gpu_model.h"
#include "autotune/worker/stats.h"
#include "jit/device/capture.h"
#include "jit/device/gpu_launch.h"
#include "jit/simulation.h"

namespace seqtile::autotune {
namespace {

constexpr double kProbeFlops = 2e8;     // work of a first launch, about
constexpr double kSliceAboveUs = 2500;  // longer launches run on a slice,
constexpr double kSliceUs = 1500;       // which takes about this time
constexpr double kSampleUs = 150;       // a sample repeats short launches up to this time
constexpr double kEnoughUs = 5000;      // measured time of the baseline after which min_rounds are enough
constexpr double kSlowFactor = 25;      // a candidate slower than this many baselines gets no second launch

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

/// One candidate of an interleaved measurement.
struct Meter::Lane : MeasuredCall {
  Series series;
  int reps = 1;
  std::unique_ptr<Graph> graph;  ///< graph_reps launches
  int graph_reps = 0;
  std::optional<double> simulated_us;  ///< time of the cost model, computed once
  double estimate_us = 0;              ///< time of a whole launch
  double spent_us = 0;
  bool running = true;
};

Meter::Meter(const OpDef& op, const Workload& workload, Device& device, OperandRegions& regions, bool uses_graphs)
    : op_(op),
      workload_(workload),
      device_(device),
      regions_(regions),
      operands_(op, workload, device, regions),
      is_simulated_(is_simulated(device)),
      uses_graphs_(uses_graphs) {
  set_simulation(device, {.profile = true});
  if (device.memory().is_host()) return;
  stream_.emplace(device.streams());
  begun_ = device.streams().create_event();
  ended_ = device.streams().create_event();
}

/// Mean microseconds of a whole launch over `reps` launches. CPUs may run a slice of the grid.
double Meter::sample_us(Lane& lane, int reps, double fraction) {
  if (is_simulated_) return simulate_us(lane);
  return stream_ ? sample_gpu_us(lane, reps) : sample_host_us(lane, reps, fraction);
}

/// Microseconds that the cost model predicts from the counts of one launch.
double Meter::simulate_us(Lane& lane) {
  if (lane.simulated_us) return *lane.simulated_us;
  operands_.rotate(lane);
  const KernelBinary& binary = lane.candidate->kernel->binary();
  launch_alone(device_, *lane.candidate->kernel, lane.grid, lane.call.block(), *stream_);
  device_.streams().synchronize(*stream_);
  const double programs = static_cast<double>(lane.grid[0] * lane.grid[1] * lane.grid[2]);
  GpuWork work;
  if (op_.gpu_work) {
    work = op_.gpu_work(workload_, lane.candidate->config, operands_.length(), device_.target());
  } else {
    const Cost cost = op_.cost(workload_, operands_.symbols());
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
      operands_.rotate(lane);
      launch_alone(device_, *lane.candidate->kernel, lane.grid, lane.call.block(), *stream_);
    }
  };
  if (uses_graphs_ && lane.graph_reps != reps) {
    lane.graph = capture(device_.streams(), *stream_, launch_all);
    lane.graph_reps = reps;
  }
  regions_.flush(*stream_);
  begun_->record(*stream_);
  if (uses_graphs_) lane.graph->launch(*stream_);
  else launch_all();
  ended_->record(*stream_);
  device_.streams().synchronize(*stream_);  // throws the errors of the launches
  const double us = ended_->us_since(*begun_);
  lane.spent_us += us;
  return us / reps;
}

double Meter::sample_host_us(Lane& lane, int reps, double fraction) {
  const auto timed = [&](const GridRange& programs) {
    const double start = now_us();
    launch_alone(device_, *lane.candidate->kernel, lane.grid, lane.call.block(), {}, programs);
    const double us = now_us() - start;
    lane.spent_us += us;
    return us;
  };
  const int64_t total = lane.grid[0] * lane.grid[1] * lane.grid[2], threads = workload_.threads;
  const auto samples = sample_for(*lane.candidate, lane.grid, fraction, workload_.threads);
  // Threads execute `threads` programs at a time. Times are per full group of programs, because threads without a
  // program in the last group wait.
  const auto whole_turns = [&](int64_t count) { return (count + threads - 1) / threads * threads; };
  double sum = 0;
  for (int i = 0; i < reps; ++i) {
    operands_.rotate(lane);
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
  operands_.bind(plan.length);
  std::vector<Lane> lanes;
  for (const LoadedCandidate* candidate : candidates) lanes.push_back({operands_.make_call(*candidate)});
  device_.streams().synchronize({});

  // First launches warm the code up and estimate the time of a launch.
  const double start = now_us();
  const double flops = op_.cost(workload_, operands_.symbols()).flops;
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
  // One fraction for all candidates, so that each runs the same share of the work.
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
    // Drift changes the times of all candidates alike, so that few rounds show a loser.
    const double allowed = round < 3 ? 1.3 : 1.12;
    for (size_t i = 1; i < lanes.size(); ++i)
      if (lanes[i].running && median(lanes[i].series.us) > allowed * best) lanes[i].running = false;
  }
  *current = -1;
  const std::string condition = device_.condition();  // read before the device cools down
  std::vector<Series> result;
  for (Lane& lane : lanes) {
    if (lane.series.verdict.ok()) lane.series.verdict.detail = condition;
    result.push_back(std::move(lane.series));
  }
  return result;
}

}  // namespace seqtile::autotune

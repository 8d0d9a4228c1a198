// tools/cli/plan/calibrate.cpp -- see calibrate.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan/calibrate.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "autotune/keys.h"
#include "seqtile/ops/collectives.h"
#include "seqtile/ops/linear.h"
#include "seqtile/ops/rows.h"
#include "seqtile/seqpar.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

constexpr int kRounds = 11;
constexpr int64_t kColumns = 1024;                                                           ///< columns of all tensors
constexpr int64_t kShortGather = 4 << 10, kLeastGather = 256 << 10, kMostGather = 16 << 20;  ///< bytes per rank
constexpr int64_t kGatherStep = 4;
constexpr int64_t kMostGathered = 64 << 20;  ///< bytes of all ranks
/// Bytes that a round of small calls moves, so that the round takes longer than the ranks need to meet.
constexpr int64_t kRoundBytes = 4 << 20;
constexpr int kMostCalls = 256;
constexpr int64_t kProductRows[] = {256, 512, 1024};
constexpr int64_t kTimesCache = 4, kLeastStream = 64 << 20;  ///< bytes per rank
constexpr int64_t kMostStreams = 1 << 30;                    ///< bytes of all ranks
constexpr int kLaunches = 1000;

/// Memory of a device, filled with small numbers that are finite in all formats.
class Operand {
 public:
  Operand(Device& device, DType dtype, int64_t rows, int64_t columns)
      : buffer_(device.memory(), static_cast<size_t>(rows * columns * dtype_bytes(dtype))),
        tensor_(make_tensor(buffer_.data(), dtype, {rows, columns})) {
    constexpr uint8_t kSmall = 0x3c;  // the value is 0.0115 in f32 and bf16, 1.06 in f16
    device.memory().fill(buffer_.data(), kSmall, static_cast<size_t>(rows * columns * dtype_bytes(dtype)));
    device.streams().synchronize({});
  }
  const Tensor& tensor() const { return tensor_; }

 private:
  DeviceBuffer buffer_;
  Tensor tensor_;
};

/// Seconds of one call, measured over `calls` calls in a row. Collective: all ranks must call it.
double seconds_of(Fabric& fabric, int calls, const std::function<void()>& call) {
  std::vector<double> mine;
  call();  // touches the memory and loads the code
  for (int round = 0; round < kRounds; ++round) {
    fabric.all_gather("");
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    mine.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls);
  }
  std::vector<double> slowest(kRounds);
  for (const std::string& text : fabric.all_gather(Json(mine).dump())) {
    const auto theirs = Json::parse(text).get<std::vector<double>>();
    for (size_t round = 0; round < slowest.size(); ++round) slowest[round] = std::max(slowest[round], theirs[round]);
  }
  std::ranges::nth_element(slowest, slowest.begin() + kRounds / 2);
  return slowest[kRounds / 2];
}

int calls_of(int64_t bytes) { return static_cast<int>(std::clamp<int64_t>(kRoundBytes / bytes, 1, kMostCalls)); }

std::unique_ptr<Engine> open_engine(const Session& session, const CalibrationSetup& setup, Fabric& fabric) {
  return Engine::open({.threads = setup.threads, .cache = setup.cache, .artifacts = setup.artifacts}, session.registry,
                      fabric);
}

/// Bytes per rank, ascending: one short message for the latency, then the sizes of activations and weights.
std::vector<int64_t> gather_sizes(int ranks) {
  std::vector<int64_t> sizes{kShortGather};
  for (int64_t bytes = kLeastGather; bytes <= std::min(kMostGather, kMostGathered / ranks); bytes *= kGatherStep)
    sizes.push_back(bytes);
  return sizes;
}

std::vector<planner::GatherTime> gather_on_rank(const Session& session, const CalibrationSetup& setup, Fabric& fabric) {
  namespace seqpar = kernels::seqpar;
  const int ranks = fabric.world_size();
  const std::vector<int64_t> sizes = gather_sizes(ranks);
  const int64_t row_bytes = kColumns * dtype_bytes(setup.dtype), most_rows = sizes.back() / row_bytes;
  seqpar::AllGather gather;
  gather.n = kColumns, gather.dtype = setup.dtype;
  const auto engine = open_engine(session, setup, fabric);
  Channel channel(fabric, most_rows * ranks);
  const auto call = engine->prepare(gather, channel);
  const Operand x(fabric.device(), setup.dtype, most_rows, kColumns),
      y(fabric.device(), setup.dtype, most_rows * ranks, kColumns);
  const auto rows_of = [](const Operand& operand, int64_t rows) {
    Tensor tensor = operand.tensor();
    tensor.sizes[0] = rows;
    return tensor;
  };
  std::vector<planner::GatherTime> times;
  for (const int64_t bytes : sizes) {
    const int64_t rows = bytes / row_bytes, all = rows * ranks;
    const double seconds =
        seconds_of(fabric, calls_of(bytes), [&] { call({.x = rows_of(x, rows), .y = rows_of(y, all)}, all); });
    times.push_back({static_cast<double>(bytes * ranks), seconds});
  }
  channel.check();
  return times;
}

double peak_flops(Engine& engine, const CalibrationSetup& setup, Fabric& fabric) {
  kernels::Linear linear;
  linear.n = linear.k = kColumns, linear.dtype = setup.dtype;
  const auto call = engine.prepare(linear);
  const Operand w(fabric.device(), setup.dtype, kColumns, kColumns);
  double best = 0;
  for (const int64_t rows : kProductRows) {
    const Operand x(fabric.device(), setup.dtype, rows, kColumns), y(fabric.device(), setup.dtype, rows, kColumns);
    const double flops = 2.0 * static_cast<double>(rows * kColumns * kColumns);
    const double seconds = seconds_of(fabric, 1, [&] { call({.x = x.tensor(), .w = w.tensor(), .y = y.tensor()}); });
    best = std::max(best, flops / seconds);
  }
  return best;
}

}  // namespace

std::vector<planner::GatherTime> time_gathers(const Session& session, const CalibrationSetup& setup, int ranks) {
  const World world{ranks, setup.fabric, nullptr};
  std::vector<planner::GatherTime> times;
  on_every_rank(world, setup.threads, [&](Fabric& fabric) {
    auto mine = gather_on_rank(session, setup, fabric);
    if (speaks_for_process(world, fabric)) times = std::move(mine);
  });
  return times;
}

DeviceMeasurement measure_device(const Session& session, const CalibrationSetup& setup, int ranks) {
  const World world{ranks, setup.fabric, nullptr};
  DeviceMeasurement result;
  on_every_rank(world, setup.threads, [&](Fabric& fabric) {
    Device& device = fabric.device();
    const auto engine = open_engine(session, setup, fabric);
    planner::DeviceFacts facts;
    facts.peak_flops = peak_flops(*engine, setup, fabric);
    const auto gate = engine->prepare(kernels::ActAndMul{kColumns, setup.dtype});
    const int64_t row_bytes = 3 * kColumns * dtype_bytes(setup.dtype);  // two rows are read, one is written
    const int64_t most_bytes = std::max(kMostStreams / ranks, kLeastStream);
    const int64_t rows = std::clamp(kTimesCache * device.target().l3_bytes, kLeastStream, most_bytes) / row_bytes;
    const auto seconds_of_rows = [&](int64_t count, int calls) {
      const Operand x(device, setup.dtype, count, 2 * kColumns), y(device, setup.dtype, count, kColumns);
      return seconds_of(fabric, calls, [&] { gate({.x = x.tensor(), .y = y.tensor()}); });
    };
    facts.bandwidth = static_cast<double>(rows * row_bytes) / seconds_of_rows(rows, 1);
    facts.launch_s = seconds_of_rows(1, kLaunches);
    if (speaks_for_process(world, fabric)) result = {facts, autotune::machine_of(device.info())};
  });
  return result;
}

}  // namespace seqtile::cli

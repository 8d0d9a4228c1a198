// tests/kernels/seqpar/fused_engine_test.cpp -- fused operations through tuner and engine: any length, one launch.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <atomic>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "jit/device/device_wrapper.h"
#include "kernels/seqpar/prepare.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "seqtile/ops/collectives.h"
#include "seqtile/ops/ranks.h"
#include "seqtile/seqpar.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/temp_folder.h"

using namespace seqtile;
using namespace seqtile::kernels;
using seqpar::FusedAllgatherAndLinear;
using seqpar::FusedHandle;
using seqpar::FusedLinearAndReducescatter;

namespace {

constexpr int kRanks = 2;
constexpr int64_t kHidden = 48, kWide = 64, kCapacity = 300;

FusedAllgatherAndLinear gather_op() { return {{.n = kWide, .k = kHidden}}; }
FusedLinearAndReducescatter reduce_op() { return {{.n = kHidden, .k = kWide, .residual = true}}; }

struct Home {
  EngineOptions options(MissPolicy policy) const {
    EngineOptions options;
    options.threads = 1;
    options.cache = folder.file("tuning.db");
    options.artifacts = artifacts;
    options.policy = policy;
    return options;
  }
  seqtile::test::TempFolder folder;
  const std::string artifacts = testing::shared_artifacts();  // set before the ranks' threads start
  const autotune::Registry registry = make_registry();
};

std::vector<float> ones_and_zeros(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 4 == 0);
  return values;
}

Tensor matrix(std::vector<float>& values, int64_t rows, int64_t columns, int64_t first = 0) {
  return make_tensor(values.data() + first * columns, DType::f32, {rows, columns});
}

int64_t first_row(int rank, int64_t length) { return rank * length / kRanks; }

/// A column-parallel layer, then a row-parallel one, on every rank, and the result of the unsharded layers.
struct Layer {
  std::vector<std::vector<float>> up, down;
  Layer() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      up.push_back(ones_and_zeros(kWide * kHidden, 10 + rank));
      down.push_back(ones_and_zeros(kHidden * kWide, 20 + rank));
    }
  }
  float wanted(const std::vector<float>& x, int64_t row, int64_t column) const {
    float sum = x[static_cast<size_t>(row * kHidden + column)];
    for (size_t rank = 0; rank < kRanks; ++rank)
      for (int64_t i = 0; i < kWide; ++i) {
        float inner = 0;
        for (int64_t j = 0; j < kHidden; ++j)
          inner += x[static_cast<size_t>(row * kHidden + j)] * up[rank][static_cast<size_t>(i * kHidden + j)];
        sum += inner * down[rank][static_cast<size_t>(column * kWide + i)];
      }
    return sum;
  }
};

/// A rank's tensors in memory that its kernels reach.
class RankTensors {
 public:
  explicit RankTensors(Device& device) : device_(device) {}
  Tensor place(std::vector<float>& values, int64_t rows, int64_t columns, int64_t first = 0) {
    const Tensor host = matrix(values, rows, columns, first);
    if (device_.memory().is_host()) return host;
    const auto bytes = static_cast<size_t>(host.num_elements()) * sizeof(float);
    buffers_.emplace_back(device_.memory(), bytes + 1);
    device_.memory().copy(buffers_.back().data(), host.data, bytes);
    return make_tensor(buffers_.back().data(), DType::f32, {rows, columns});
  }
  void fetch(const Tensor& tensor, std::vector<float>& values, int64_t columns, int64_t first) {
    device_.streams().synchronize({});
    if (device_.memory().is_host()) return;
    device_.memory().copy(values.data() + first * columns, tensor.data,
                          static_cast<size_t>(tensor.num_elements()) * sizeof(float));
    device_.streams().synchronize({});
  }

 private:
  Device& device_;
  std::deque<DeviceBuffer> buffers_;
};

/// Runs `work(rank)` on a thread for each rank; rethrows the lowest rank's error.
void on_every_rank(const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        work(rank);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

void check_element(int64_t length, int64_t row, int64_t column, float got, float want) {
  if (got != want)
    throw Error(ErrorCode::wrong_result,
                fmt::format("length {}: element [{}, {}] is {}, not {}", length, row, column, got, want));
}

/// Runs two layers at each length on every rank. Returns the launches of all ranks.
int64_t run_layers(const Home& home, std::vector<std::unique_ptr<Fabric>> fabrics,
                   const std::vector<int64_t>& lengths) {
  const Layer layer;
  auto x = ones_and_zeros(kCapacity * kHidden, 1);
  std::vector<float> z(x.size());
  std::atomic<int64_t> launches{0};
  on_every_rank([&](int rank) {
    Fabric& fabric = *fabrics[static_cast<size_t>(rank)];
    const auto engine = Engine::open(home.options(MissPolicy::fallback), home.registry, fabric);
    Channel channel(fabric, {.capacity = kCapacity});
    const FusedHandle up(*engine, gather_op(), channel);
    const FusedHandle down(*engine, reduce_op(), channel);
    auto up_weight = layer.up[static_cast<size_t>(rank)], down_weight = layer.down[static_cast<size_t>(rank)];
    std::vector<float> nothing(kCapacity * kWide);
    for (const int64_t length : lengths) {
      const int64_t first = first_row(rank, length), rows = first_row(rank + 1, length) - first;
      RankTensors tensors(fabric.device());
      const Tensor wide = tensors.place(nothing, length, kWide), own = tensors.place(x, rows, kHidden, first),
                   result = tensors.place(z, rows, kHidden, first);
      up({.x = own, .w = tensors.place(up_weight, kWide, kHidden), .y = wide}, length);
      down({.x = wide, .w = tensors.place(down_weight, kHidden, kWide), .residual = own, .y = result}, length);
      tensors.fetch(result, z, kHidden, first);
      // The residual may be y itself, on every rank.
      std::vector<float> sums = x;
      const Tensor in_place = tensors.place(sums, rows, kHidden, first);
      down({.x = wide, .w = tensors.place(down_weight, kHidden, kWide), .residual = in_place, .y = in_place}, length);
      tensors.fetch(in_place, sums, kHidden, first);
      for (const std::vector<float>* values : {&z, &sums})
        for (int64_t row = first; row < first + rows; ++row)
          for (int64_t column = 0; column < kHidden; ++column)
            check_element(length, row, column, (*values)[static_cast<size_t>(row * kHidden + column)],
                          layer.wanted(x, row, column));
    }
    channel.check();
    launches += engine->counters().launches;
    fabric.all_gather("");
  });
  return launches;
}

}  // namespace

TEST_CASE("fused operations: two layers through the engine, any length, without records", "[seqpar][engine]") {
  const Home home;
  CHECK(run_layers(home, make_thread_fabric(kRanks), {0, 1, 2, 17, 300, 64, 0, 255}) == kRanks * 3 * 8);
}

TEST_CASE("fused operations: the same on simulated GPUs", "[seqpar][engine][sim]") {
  for (const char* target : {"sm_80", "sm_90a"}) {
    const Home home;
    CHECK(run_layers(home, make_sim_fabric(target, kRanks), {0, 1, 17, 100}) == kRanks * 3 * 4);
  }
}

namespace {

/// A GPU that counts its launches.
class CountingGpu final : public DeviceWrapper {
 public:
  using DeviceWrapper::DeviceWrapper;
  void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream stream,
              GridRange range) override {
    ++launches;
    inner().launch(kernel, grid, slots, stream, range);
  }

  std::atomic<int64_t> launches{0};
};

}  // namespace

TEST_CASE("fused operations: ranks that share a GPU have one launch for all of them", "[seqpar][engine][sim]") {
  const Home home;
  const auto gpu = std::make_shared<CountingGpu>(open_device("sim:sm_80", 1));
  CHECK(run_layers(home, make_virtual_fabric(gpu, kRanks), {0, 1, 17, 100}) == kRanks * 3 * 4);
  CHECK(gpu->launches == 3 * 4);
}

TEST_CASE("fused operations: ranks that share a GPU refuse shares that differ", "[seqpar][engine][sim]") {
  const Home home;
  const auto fabrics = make_virtual_fabric(open_device("sim:sm_80", 1), kRanks);
  on_every_rank([&](int rank) {
    Fabric& fabric = *fabrics[static_cast<size_t>(rank)];
    const auto engine = Engine::open(home.options(MissPolicy::fallback), home.registry, fabric);
    FusedAllgatherAndLinear op = gather_op();
    Channel channel(fabric, 20);
    op.linear.n += rank;
    std::string refusal;
    try {
      const FusedHandle handle(*engine, op, channel);
    } catch (const Error& error) {
      refusal = error.what();
    }
    if (refusal != "a fused operation: n is 65 on rank 1 and 64 on rank 0; give all ranks the same")
      throw Error(ErrorCode::wrong_result, refusal);
    fabric.all_gather("");
  });
}

TEST_CASE("fused operations: bad calls are refused before they reach a peer", "[seqpar][engine]") {
  const Home home;
  const auto engine = Engine::open(home.options(MissPolicy::fallback), home.registry);
  auto fabrics = make_thread_fabric(1);
  const FusedAllgatherAndLinear op = gather_op();
  Channel channel(*fabrics[0], 64);
  CHECK_THROWS_WITH(seqpar::prepare_on_all(*engine, op.workload({.world_size = 2}), op.kShares, channel, 0),
                    Catch::Contains("world_size is 2, the channel's fabric has 1"));
  const auto handle = engine->prepare(op, channel);
  auto x = ones_and_zeros(100 * kHidden, 1), w = ones_and_zeros(kWide * kHidden, 2);
  std::vector<float> y(100 * kWide);
  const auto call = [&](int64_t rows, int64_t length) {
    handle({.x = matrix(x, rows, kHidden), .w = matrix(w, kWide, kHidden), .y = matrix(y, length, kWide)}, length);
  };
  CHECK_THROWS_WITH(call(100, 100), Catch::Contains("above the channel's capacity 64"));
  CHECK_THROWS_WITH(call(9, 10), Catch::Contains("rank 0 of 1 owns 10 of 10 rows, the tensor has 9"));
  CHECK_NOTHROW(call(10, 10));
}

TEST_CASE("fused operations: a rank's rows lie in the output at their own place, or elsewhere", "[seqpar][engine]") {
  const Home home;
  auto fabrics = make_thread_fabric(kRanks);
  const seqpar::AllGather op{.n = kHidden};
  on_every_rank([&](int rank) {
    const auto engine = Engine::open(home.options(MissPolicy::fallback), home.registry);
    Channel channel(*fabrics[static_cast<size_t>(rank)], 64);
    const FusedHandle handle(*engine, op, channel);
    constexpr int64_t kLength = 11;
    const int64_t first = first_row(rank, kLength), rows = first_row(rank + 1, kLength) - first;
    std::vector<float> y(kLength * kHidden);
    for (const int64_t wrong : {first > 0 ? first - 1 : 1, rank == 0 ? first_row(1, kLength) : int64_t{0}}) {
      std::string refusal;
      try {
        handle({.x = matrix(y, rows, kHidden, wrong), .y = matrix(y, kLength, kHidden)}, kLength);
      } catch (const Error& error) {
        refusal = error.what();
      }
      if (refusal !=
          fmt::format("all_gather: argument 'x': shares memory with 'y' but is not rows {} to {} of it, which rank {} "
                      "of 2 owns; give it those rows, or memory of its own",
                      first, first + rows - 1, rank))
        throw Error(ErrorCode::wrong_result, refusal);
    }
    const auto is_refused_in_a_graph = [&] {
      try {
        const int64_t length = kLength;
        (void)handle.capture({.x = matrix(y, 6, kHidden, first), .y = matrix(y, kLength, kHidden)}, kLength, &length,
                             {});
      } catch (const Error& error) {
        return std::string(error.what()).find("a graph needs memory of its own") != std::string::npos;
      }
      return false;
    };
    if (!is_refused_in_a_graph()) throw Error(ErrorCode::wrong_result, "a graph in place was not refused");
    for (int64_t i = 0; i < rows * kHidden; ++i)
      y[static_cast<size_t>(first * kHidden + i)] = static_cast<float>(rank + 1);
    handle({.x = matrix(y, rows, kHidden, first), .y = matrix(y, kLength, kHidden)}, kLength);
    for (int64_t row = 0; row < kLength; ++row)
      for (int64_t column = 0; column < kHidden; ++column)
        check_element(kLength, row, column, y[static_cast<size_t>(row * kHidden + column)],
                      row < first_row(1, kLength) ? 1 : 2);
    // Columns beside the output's in the same rows share no byte with the output.
    std::vector<float> both(2 * kLength * kHidden, static_cast<float>(rank + 1));
    Tensor left = matrix(both, kLength, kHidden), right = matrix(both, rows, kHidden);
    left.strides[0] = right.strides[0] = 2 * kHidden;
    right.data = both.data() + kHidden;
    handle({.x = right, .y = left}, kLength);
    for (int64_t row = 0; row < kLength; ++row)
      for (int64_t column = 0; column < 2 * kHidden; ++column)
        check_element(kLength, row, column, both[static_cast<size_t>(2 * row * kHidden + column)],
                      column >= kHidden             ? static_cast<float>(rank + 1)
                      : row < first_row(1, kLength) ? 1
                                                    : 2);
    fabrics[static_cast<size_t>(rank)]->all_gather("");
  });
}

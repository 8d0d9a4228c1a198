// tests/kernels/gpu_streams_test.cpp -- streams, events and graphs of a GPU, simulated or real, by one body.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <bit>
#include <memory>
#include <numeric>
#include <vector>

#include "seqtile/builder.h"
#include "seqtile/compiler.h"
#include "tests/support/kernels/kernel_cases.h"

namespace seqtile::testing {
namespace {

constexpr int64_t kProgram = 128, kCount = 4096;

/// y[i] = x[i] + 1.
std::unique_ptr<LoadedKernel> load_add_one(Device& device) {
  KernelBuilder b("add_one");
  Var x = b.view("x", DType::f32, {kDynamic}), y = b.view("y", DType::f32, {kDynamic});
  Var first = b.program_id(0) * kProgram;
  b.store(y, {first}, b.load(x, {first}, {kProgram}) + b.full({kProgram}, 1.0));
  return device.load(compile(*b.finish(), device.target()));
}

class AddOne {
 public:
  explicit AddOne(Device& device) : device_(device), kernel_(load_add_one(device)) {}
  void operator()(const DeviceBuffer& x, const DeviceBuffer& y, Stream stream) const {
    const uint64_t slots[] = {std::bit_cast<uint64_t>(x.data()), kCount, 1,
                              std::bit_cast<uint64_t>(y.data()), kCount, 1};
    device_.launch(*kernel_, {kCount / kProgram, 1, 1}, slots, stream);
  }

 private:
  Device& device_;
  std::unique_ptr<LoadedKernel> kernel_;
};

std::vector<float> counted(float first) {
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), first);
  return values;
}

void put(Device& device, const DeviceBuffer& to, const std::vector<float>& host, Stream stream) {
  device.memory().copy(to.data(), host.data(), to.bytes(), stream);
  device.streams().synchronize(stream);
}

std::vector<float> values_in(Device& device, const DeviceBuffer& from, Stream stream) {
  std::vector<float> host(kCount);
  device.memory().copy(host.data(), from.data(), from.bytes(), stream);
  device.streams().synchronize(stream);
  return host;
}

/// Checks that another stream's launches wait for an event behind a chain of launches, and that a graph runs its
/// captured work at each replay, not before.
void check_streams(Device& device) {
  constexpr int kChain = 50;
  INFO(device.info().name);
  DeviceStreams& streams = device.streams();
  const AddOne add_one(device);
  const OwnedStream first(streams), second(streams);
  const size_t bytes = kCount * sizeof(float);
  const DeviceBuffer x(device.memory(), bytes), y(device.memory(), bytes);
  const auto start = streams.create_event(), half = streams.create_event(), end = streams.create_event();

  put(device, x, counted(0), first);
  start->record(first);
  for (int i = 0; i < kChain; ++i) add_one(x, x, first);
  half->record(first);
  half->delay(second);
  add_one(x, y, second);
  end->record(second);
  REQUIRE(values_in(device, y, second) == counted(kChain + 1));
  CHECK(half->us_since(*start) > 0);
  CHECK(end->us_since(*start) >= half->us_since(*start));

  streams.begin_capture(first);
  add_one(x, x, first);
  add_one(x, y, first);
  const auto graph = streams.end_capture(first);
  CHECK(graph->num_kernels() == 2);
  put(device, x, counted(0), second);
  REQUIRE(values_in(device, y, second) == counted(kChain + 1));  // the graph has not run yet
  for (int replay = 1; replay <= 3; ++replay) {
    graph->launch(first);
    REQUIRE(values_in(device, y, first) == counted(static_cast<float>(replay + 1)));
  }
}

}  // namespace

TEST_CASE("simulated: streams, events and graphs", "[kernels][sim]") {
  for (const char* name : kSimulatedGpus) check_streams(*open_device(name, 1));
}

TEST_CASE("gpu: streams, events and graphs", "[kernels][gpu]") {
  const auto device = open_gpu();
  if (device) check_streams(*device);
}

}  // namespace seqtile::testing

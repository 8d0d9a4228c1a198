// tests/jit/device_test.cpp -- memory, streams, events and graphs by the interface of all devices.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/device.h"

#include <catch2/catch.hpp>

#include <bit>
#include <numeric>
#include <string>
#include <vector>

#include "seqtile/builder.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"

namespace seqtile {
namespace {

constexpr int64_t kCount = 256;

/// y[i] = x[i] + 1 for 128 elements a program.
std::unique_ptr<LoadedKernel> load_add_one(Device& device) {
  KernelBuilder b("add_one");
  Var x = b.view("x", DType::f32, {kDynamic}), y = b.view("y", DType::f32, {kDynamic});
  Var first = b.program_id(0) * 128;
  b.store(y, {first}, b.load(x, {first}, {128}) + b.full({128}, 1.0));
  return device.load(compile(*b.finish(), device.target()));
}

std::vector<uint64_t> slots_of(const void* x, const void* y, int64_t count = kCount) {
  const auto size = static_cast<uint64_t>(count);
  return {std::bit_cast<uint64_t>(x), size, 1, std::bit_cast<uint64_t>(y), size, 1};
}

std::vector<float> counted(float first) {
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// Device memory with the values of `host`.
DeviceBuffer upload(Device& device, const std::vector<float>& host) {
  DeviceBuffer buffer(device.memory(), host.size() * sizeof(float));
  device.memory().copy(buffer.data(), host.data(), buffer.bytes());
  return buffer;
}

std::vector<float> download(Device& device, const DeviceBuffer& buffer) {
  std::vector<float> host(buffer.bytes() / sizeof(float));
  device.memory().copy(host.data(), buffer.data(), buffer.bytes());
  device.streams().synchronize({});
  return host;
}

template <class Call>
void expect_error(Call&& call, ErrorCode code, const std::string& part) {
  try {
    call();
    FAIL("nothing thrown, expected: " << part);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    CHECK_THAT(error.what(), Catch::Contains(part));
  }
}

}  // namespace

TEST_CASE("device: memory, copies, a launch on a stream and events work alike on every device", "[jit][device]") {
  for (const char* name : {"cpu", "sim:sm_80", "sim:sm_90a"}) {
    INFO(name);
    const auto device = open_device(name, 1);
    const auto kernel = load_add_one(*device);
    const OwnedStream stream(device->streams());
    DeviceMemory& memory = device->memory();
    DeviceBuffer x(memory, kCount * sizeof(float)), y(memory, kCount * sizeof(float));
    CHECK(std::bit_cast<uintptr_t>(x.data()) % 256 == 0);
    CHECK(memory.is_host() == !device->target().is_gpu());

    const std::vector<float> host = counted(0);
    std::vector<float> result(kCount);
    const auto before = device->streams().create_event(), after = device->streams().create_event();
    before->record(stream);
    memory.copy(x.data(), host.data(), x.bytes(), stream);
    memory.fill(y.data(), 0, y.bytes(), stream);
    device->launch(*kernel, {1, 1, 1}, slots_of(x.data(), y.data()), stream);
    memory.copy(result.data(), y.data(), y.bytes(), stream);
    after->record(stream);
    device->streams().synchronize(stream);
    CHECK(after->us_since(*before) > 0);
    for (int i = 0; i < kCount; ++i) REQUIRE(result[i] == (i < 128 ? host[i] + 1 : 0));
    const auto never = device->streams().create_event();
    expect_error([&] { (void)after->us_since(*never); }, ErrorCode::invalid_argument, "not recorded");
  }
}

TEST_CASE("device: a graph replays its launches on what the memory holds then", "[jit][device][sim]") {
  const auto device = open_device("sim:sm_80", 1);
  const auto kernel = load_add_one(*device);
  DeviceStreams& streams = device->streams();
  const OwnedStream stream(streams);
  const DeviceBuffer x = upload(*device, counted(0)), y = upload(*device, counted(1000));

  streams.begin_capture(stream);
  device->launch(*kernel, {2, 1, 1}, slots_of(x.data(), y.data()), stream);
  device->memory().copy(x.data(), y.data(), x.bytes(), stream);
  expect_error([&] { streams.synchronize(stream); }, ErrorCode::invalid_argument, "captures");
  expect_error([&] { streams.begin_capture(stream); }, ErrorCode::invalid_argument, "captures already");
  const auto graph = streams.end_capture(stream);
  CHECK(graph->num_kernels() == 1);
  CHECK(download(*device, y) == counted(1000));  // the graph has not run yet

  for (int replay = 1; replay <= 3; ++replay) {
    graph->launch(stream);
    streams.synchronize(stream);
    CHECK(download(*device, y) == counted(static_cast<float>(replay)));
  }
  expect_error([&] { (void)streams.end_capture(stream); }, ErrorCode::invalid_argument, "does not capture");
  expect_error([&] { streams.begin_capture({}); }, ErrorCode::invalid_argument, "create a stream");
  const auto cpu = open_device("cpu", 1);
  expect_error([&] { cpu->streams().begin_capture({}); }, ErrorCode::unsupported, "CPU captures no graphs");
}

TEST_CASE("device: a simulated GPU reports what a launch does wrong, by the name of the memory", "[jit][device][sim]") {
  const auto device = open_device("sim:sm_80", 1);
  const auto kernel = load_add_one(*device);
  const DeviceBuffer fresh(device->memory(), kCount * sizeof(float)), y = upload(*device, counted(0)),
                                                                      x = upload(*device, counted(0));
  const auto launch = [&](const void* x, const void* to, int64_t count) {
    device->launch(*kernel, {2, 1, 1}, slots_of(x, to, count));
    device->streams().synchronize({});
  };
  expect_error([&] { launch(fresh.data(), y.data(), kCount); }, ErrorCode::driver, "uninitialised");
  const std::vector<float> host = counted(0);
  expect_error([&] { launch(host.data(), y.data(), kCount); }, ErrorCode::driver, "out of bounds");
  const DeviceBuffer small(device->memory(), 512);
  expect_error([&] { launch(x.data(), small.data(), kCount); }, ErrorCode::driver, "memory 4 + 512");
  launch(x.data(), fresh.data(), kCount);
  CHECK(download(*device, fresh) == counted(1));
}

TEST_CASE("device: requests that a simulated GPU cannot serve", "[jit][device][sim]") {
  const auto device = open_device("sim:sm_80", 1);
  const auto kernel = load_add_one(*device);
  DeviceMemory& memory = device->memory();
  expect_error([&] { DeviceBuffer(memory, size_t{1} << 40); }, ErrorCode::out_of_resources, "1099511627776 bytes");
  const DeviceBuffer x(memory, 64);
  std::vector<std::byte> host(128);
  expect_error([&] { memory.copy(x.data(), host.data(), 128); }, ErrorCode::invalid_argument, "64 bytes are left");
  const auto slots = slots_of(x.data(), x.data());
  expect_error([&] { device->launch(*kernel, {1, 65536, 1}, slots); }, ErrorCode::invalid_argument, "1 x 65536 x 1");
  expect_error(
      [&] {
        device->launch(*kernel, {2, 1, 1}, slots, {}, {0, 1});
      },
      ErrorCode::unsupported, "part of a grid");
  expect_error(
      [&] {
        device->launch(*kernel, {2, 1, 1}, std::span(slots).first(5));
      },
      ErrorCode::invalid_argument, "5 argument slots");
  expect_error([] { open_device("sim:sm_70", 1); }, ErrorCode::unsupported, "cpu, cuda:N, sim:sm_80, sim:sm_90a");
}

}  // namespace seqtile

// tests/jit/runtime/cuda/cuda_device_test.cpp -- the CUDA runtime against a fake driver.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/cuda_device.h"
#include "jit/runtime/cuda/gpu_condition.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "jit/device/capture.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"
#include "tests/support/fakes/fake_cuda_driver.h"
#include "tests/support/kernels/sample_kernels.h"

namespace seqtile {
namespace {

using test::FakeCuda;

std::unique_ptr<Device> open_gpu(int ordinal = 0) {
  const auto driver = cuda::Driver::open(FakeCuda::kPath);
  REQUIRE(driver);
  GpuFacts facts = cuda::describe_gpu(*driver, ordinal);
  Target target = gpu_target(facts);
  return cuda::make_cuda_device(driver, ordinal, std::move(facts), std::move(target));
}

KernelBinary sample(const char* target = "sm_80") { return compile(*testing::sample_softmax(64), gpu_target(target)); }

/// The fake driver reads nothing behind the header.
KernelBinary cubin_for(int sm, const char* target = "sm_80") {
  KernelBinary binary = sample(target);
  binary.stage = "cubin";
  binary.code.assign(64, std::byte{0});
  const unsigned char start[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41, 8};
  std::memcpy(binary.code.data(), start, sizeof start);
  const uint16_t machine = 190;
  const uint32_t flags = static_cast<uint32_t>(sm) << 8;
  std::memcpy(binary.code.data() + 18, &machine, sizeof machine);
  std::memcpy(binary.code.data() + 48, &flags, sizeof flags);
  return binary;
}

template <class Call>
void expect_error(Call&& call, ErrorCode code, const std::string& message) {
  try {
    call();
    FAIL("nothing thrown, expected: " << message);
  } catch (const Error& error) {
    CHECK(error_code_name(error.code()) == error_code_name(code));
    CHECK_THAT(error.what(), Catch::Contains(message));
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
  }
}

void expect_nothing_left(const test::FakeCudaState& state) {
  CHECK(state.live_contexts == 0);
  CHECK(state.live_pools == 0);
  CHECK(state.live_blocks == 0);
  CHECK(state.live_streams == 0);
  CHECK(state.live_events == 0);
  CHECK(state.live_graphs == 0);
  CHECK(state.live_executables == 0);
  CHECK(state.live_modules == 0);
  CHECK(state.pushed_contexts == 0);
}

const std::vector<uint64_t> kSlots = {0x1000, 3, 64, 64, 1, 0x2000, 3, 64, 64, 1};

}  // namespace

TEST_CASE("cuda driver: absent, too old, without a GPU", "[jit][cuda][fault]") {
  CHECK_FALSE(cuda::Driver::open("libcuda_that_is_not_here.so.1"));
  FakeCuda fake("version=11040");
  const auto open = [] { cuda::Driver::open(FakeCuda::kPath); };
  expect_error(open, ErrorCode::driver,
               "the NVIDIA driver supports CUDA 11.4, at least 12.0 is needed (driver 525); update the driver");
  CHECK(fake.calls("cuInit") == 0);
  fake.now("cuInit=100");
  expect_error(open, ErrorCode::driver,
               "the NVIDIA driver (CUDA 12.8) does not start: CUDA_ERROR_NO_DEVICE (words of the driver); look at "
               "CUDA_VISIBLE_DEVICES and the devices of the container");
  fake.now("cuInit=803");
  expect_error(open, ErrorCode::driver, "does not start: CUDA error 803; see whether nvidia-smi works");
  fake.now("gpus=0");
  expect_error([] { open_gpu(); }, ErrorCode::driver,
               "there is no GPU cuda:0; the driver (CUDA 12.8) shows 0 of them; look at CUDA_VISIBLE_DEVICES");
  fake.now("gpus=2");
  expect_error([] { open_gpu(2); }, ErrorCode::driver, "shows 2 of them; take cuda:0 to cuda:1, or look at");
}

TEST_CASE("cuda driver: a library without one of the functions is too old", "[jit][cuda][fault]") {
  expect_error([] { cuda::Driver::open("libm.so.6"); }, ErrorCode::driver,
               "the NVIDIA driver has no cuDriverGetVersion; it needs CUDA 12.0 or newer");
}

TEST_CASE("cuda device: lists show the driver's version, keys do not", "[jit][cuda]") {
  FakeCuda fake("version=13010");
  const auto shown = cuda::listed_info(*cuda::Driver::open(FakeCuda::kPath), 0).facts;
  CHECK(std::is_sorted(shown.begin(), shown.end()));
  const std::map<std::string, std::string> facts(shown.begin(), shown.end());
  CHECK(facts.at("cuda_driver") == "13.1");
  CHECK(facts.at("sm") == "90");
  CHECK(open_gpu()->info().facts.size() == facts.size() - 1);
}

TEST_CASE("cuda device: facts decide identity and code", "[jit][cuda]") {
  FakeCuda fake("gpus=2 name=NVIDIA_H200_MIG_1g.18gb");
  const auto gpu = open_gpu(1);
  CHECK(gpu->info().kind == "cuda");
  CHECK(gpu->info().name == "NVIDIA H200 MIG 1g.18gb");
  const std::map<std::string, std::string> facts(gpu->info().facts.begin(), gpu->info().facts.end());
  CHECK(facts.at("sm") == "90");
  CHECK(facts.at("multiprocessors") == "132");
  CHECK(facts.at("mig") == "1g.18gb");
  CHECK(gpu->target().name == "sm_90a");
  CHECK(gpu->target().shared_bytes == 232448);
  const auto driver = cuda::Driver::open(FakeCuda::kPath);
  CHECK(cuda::describe_gpu(*driver, 0).memory_gb_per_s == Approx(4917).epsilon(0.001));
}

TEST_CASE("cuda device: every GPU since Ampere has code, older ones are refused", "[jit][cuda]") {
  for (const int sm : {80, 86, 89, 90, 100, 103, 120}) {
    FakeCuda fake("sm=" + std::to_string(sm));
    const auto driver = cuda::Driver::open(FakeCuda::kPath);
    const GpuFacts facts = cuda::describe_gpu(*driver, 0);
    CHECK(gpu_target(facts).name == (sm == 90 ? "sm_90a" : "sm_80"));
    CHECK(cuda::cubin_arch_of(facts) == (sm == 90 ? "sm_90a" : "sm_" + std::to_string(sm)));
  }
  FakeCuda fake("sm=75");
  expect_error([] { open_gpu(); }, ErrorCode::unsupported,
               "compute capability 7.5; kernels need at least 8.0; take a newer GPU, the CPU, or a simulated GPU");
}

TEST_CASE("cuda device: memory is copied, filled and given back", "[jit][cuda]") {
  for (const char* pools : {"pools=1", "pools=0"}) {
    FakeCuda fake(pools);
    {
      const auto gpu = open_gpu();
      std::vector<int> values(100), back(100);
      std::iota(values.begin(), values.end(), 7);
      DeviceBuffer buffer(gpu->memory(), 400);
      CHECK_FALSE(gpu->memory().is_host());
      gpu->memory().copy(buffer.data(), values.data(), 400);
      gpu->memory().fill(buffer.data(), 0xff, 8);
      gpu->memory().copy(back.data(), buffer.data(), 400);
      gpu->streams().synchronize({});
      CHECK(back[1] == -1);
      CHECK(back[2] == values[2]);
      CHECK(fake.calls("cuMemAllocFromPoolAsync") == (pools == std::string("pools=1")));
      gpu->memory().free(nullptr);
      const DeviceBuffer empty(gpu->memory(), 0);
    }
    expect_nothing_left(fake.state());
  }
}

TEST_CASE("cuda device: out of memory is told with what is free, and is not the end", "[jit][cuda][fault]") {
  FakeCuda fake("cuMemAllocFromPoolAsync@2=2");
  const auto gpu = open_gpu();
  const DeviceBuffer first(gpu->memory(), 64);
  expect_error(
      [&] { gpu->memory().allocate(1 << 20); }, ErrorCode::out_of_resources,
      "cuda:0: allocate 1048576 bytes (12345 of 67890 are free): CUDA_ERROR_OUT_OF_MEMORY (out of memory); free "
      "memory of the GPU, or use smaller tensors");
  const DeviceBuffer third(gpu->memory(), 64);
  CHECK(third.data());
  fake.now("cuMemAllocFromPoolAsync=700");  // the fault of an earlier launch, not of the memory
  expect_error([&] { gpu->memory().allocate(64); }, ErrorCode::driver, "cuda:0: allocate 64 bytes: CUDA_ERROR_ILLEGAL");
}

TEST_CASE("cuda device: a memory pool that cannot be made leaves nothing", "[jit][cuda][fault]") {
  FakeCuda fake("cuMemPoolCreate=2");
  CHECK_THROWS_WITH(open_gpu(), Catch::Contains("make a memory pool"));
  expect_nothing_left(fake.state());
}

TEST_CASE("cuda device: what spoils a capture is told, not that the capture is spoiled", "[jit][cuda][fault]") {
  FakeCuda fake("cuStreamEndCapture=901");
  const auto gpu = open_gpu();
  const OwnedStream stream(gpu->streams());
  CHECK_THROWS_WITH(
      capture(gpu->streams(), stream, [] { throw Error(ErrorCode::invalid_argument, "the launch was refused"); }),
      "the launch was refused");
}

TEST_CASE("cuda device: memory freed during a capture goes when the capture is over", "[jit][cuda]") {
  FakeCuda fake;
  const auto gpu = open_gpu();
  void* pointer = gpu->memory().allocate(64);
  fake.now("cuCtxSynchronize=900");
  gpu->memory().free(pointer);
  CHECK(fake.state().live_blocks == 1);
  fake.now("");
  gpu->memory().free(gpu->memory().allocate(64));
  CHECK(fake.state().live_blocks == 0);
}

TEST_CASE("cuda device: a launch hands over grid, block, shared memory, stream and every slot", "[jit][cuda]") {
  FakeCuda fake;
  {
    const auto gpu = open_gpu();
    const OwnedStream stream(gpu->streams());
    KernelBinary binary = sample();
    binary.gpu.shared_bytes = 100 << 10;
    const uint32_t threads = binary.gpu.threads;
    const auto kernel = gpu->load(std::move(binary));
    CHECK_THAT(fake.state().image, Catch::Contains(".entry " + kernel->binary().symbol));
    CHECK(fake.state().dynamic_shared_limit == 100 << 10);
    gpu->launch(*kernel, {5, 6, 7}, kSlots, stream);
    gpu->launch(*kernel, {5, 0, 7}, kSlots, stream);  // an empty grid is not launched
    REQUIRE(fake.state().launches.size() == 1);
    const test::FakeLaunch& launch = fake.state().launches[0];
    CHECK((launch.grid[0] == 5 && launch.grid[1] == 6 && launch.grid[2] == 7));
    CHECK(launch.threads == threads);
    CHECK(launch.shared_bytes == 100 << 10);
    CHECK(launch.stream == static_cast<Stream>(stream).handle);
    REQUIRE(launch.parameters.size() == 8 * kSlots.size());
    CHECK(std::memcmp(launch.parameters.data(), kSlots.data(), launch.parameters.size()) == 0);
    CHECK(launch.attributes.empty());
  }
  expect_nothing_left(fake.state());
}

TEST_CASE("cuda device: clusters and tensor maps go with a launch", "[jit][cuda]") {
  FakeCuda fake("maps=2");
  const auto gpu = open_gpu();
  KernelBinary binary = sample("sm_90a");
  binary.gpu.cluster = {2, 1, 1};
  binary.gpu.tensor_maps = {{.first_slot = 0, .dtype = DType::f32, .box = {1, 64}, .swizzle_bytes = 128},
                            {.first_slot = 5, .dtype = DType::f32, .box = {1, 32}}};
  const auto kernel = gpu->load(std::move(binary));
  for (int repeat = 0; repeat < 3; ++repeat) gpu->launch(*kernel, {5, 1, 1}, kSlots);
  CHECK(fake.calls("cuTensorMapEncodeTiled") == 2);
  const test::FakeLaunch& launch = fake.state().launches.back();
  CHECK(launch.grid[0] == 6);  // the grid is rounded up to whole clusters
  CHECK(launch.attributes == std::vector<int>{4});
  CHECK(launch.cluster == 2);
  REQUIRE(launch.parameters.size() == 80 + 2 * 128);
  CHECK(std::memcmp(launch.parameters.data(), kSlots.data(), 80) == 0);
  const auto word = [&](size_t map, size_t index) {
    uint64_t value = 0;
    std::memcpy(&value, launch.parameters.data() + 80 + 128 * map + 8 * index, 8);
    return value;
  };
  CHECK(word(0, 2) == 0x1000);
  CHECK(word(0, 8) == 3);  // swizzle of 128 bytes
  CHECK(word(1, 2) == 0x2000);
  CHECK(word(1, 6) == 32);
  CHECK(word(1, 8) == 0);
}

TEST_CASE("cuda device: a persistent kernel is launched once over and told its grid", "[jit][cuda]") {
  FakeCuda fake("more_slots=3");
  const auto gpu = open_gpu();
  KernelBinary binary = sample("sm_90a");
  binary.gpu.is_persistent = true;
  const auto kernel = gpu->load(std::move(binary));
  gpu->launch(*kernel, {500, 6, 7}, kSlots);
  const test::FakeLaunch& launch = fake.state().launches.back();
  CHECK((launch.grid[0] == 2 * 132 && launch.grid[1] == 1 && launch.grid[2] == 1));
  REQUIRE(launch.parameters.size() == 80 + 3 * 8);
  uint64_t sides[3] = {};
  std::memcpy(sides, launch.parameters.data() + 80, sizeof sides);
  CHECK((sides[0] == 500 && sides[1] == 6 && sides[2] == 7));
}

TEST_CASE("cuda device: blocks that wait for each other are launched together or not at all", "[jit][cuda]") {
  FakeCuda fake;
  const auto gpu = open_gpu();
  KernelBinary binary = sample("sm_90a");
  binary.gpu.is_cooperative = true;
  const auto kernel = gpu->load(std::move(binary));
  gpu->launch(*kernel, {132, 2, 1}, kSlots);
  CHECK(fake.state().launches.back().attributes == std::vector<int>{2});
  const auto too_many = [&] { gpu->launch(*kernel, {133, 2, 1}, kSlots); };
  expect_error(too_many, ErrorCode::out_of_resources, "266 blocks wait for each other");
}

TEST_CASE("cuda device: what a launch is refused for", "[jit][cuda][fault]") {
  FakeCuda fake;
  const auto gpu = open_gpu();
  const auto kernel = gpu->load(sample());
  const auto launch = [&](const Grid& grid, std::span<const uint64_t> slots, GridRange range = {}) {
    return [&, grid, slots, range] { gpu->launch(*kernel, grid, slots, {}, range); };
  };
  const std::span all(kSlots);
  expect_error(launch({1, 1, 1}, all.first(9)), ErrorCode::invalid_argument,
               "9 argument slots were given, it takes 10");
  expect_error(launch({1, 65536, 1}, all), ErrorCode::invalid_argument, "at most 2147483647 x 65535 x 65535");
  expect_error(launch({-1, 1, 1}, all), ErrorCode::invalid_argument, "a grid of -1 x 1 x 1 programs");
  expect_error(launch({4, 1, 1}, all, {1, 2}), ErrorCode::unsupported, "a part of a grid");
  fake.now("cuLaunchKernelEx=701");
  expect_error(launch({1, 1, 1}, all), ErrorCode::out_of_resources, "use fewer warps or smaller tiles");
  fake.now("cuLaunchKernelEx=1");
  expect_error(launch({1, 1, 1}, all), ErrorCode::driver,
               "cuda:0: launch kernel " + kernel->binary().symbol + ": CUDA_ERROR_INVALID_VALUE");
  fake.now("");
  launch({1, 1, 1}, all)();
}

TEST_CASE("cuda device: code of other GPUs and damaged code are refused before the driver sees them",
          "[jit][cuda][fault]") {
  FakeCuda fake("sm=89");
  const auto gpu = open_gpu();
  const auto load = [&](KernelBinary binary) { return [&gpu, binary] { gpu->load(binary); }; };
  expect_error(load(sample("sm_90a")), ErrorCode::invalid_argument,
               "code for sm_90a, cuda:0 is an sm_89 (Fake GPU); compile it again");
  expect_error(load(cubin_for(90)), ErrorCode::invalid_argument, "a cubin for sm_90, cuda:0 is an sm_89");
  expect_error(load(cubin_for(75)), ErrorCode::invalid_argument, "a cubin for sm_75");
  KernelBinary damaged = cubin_for(89);
  damaged.code.resize(30);
  expect_error(load(damaged), ErrorCode::invalid_argument, "a damaged cubin");
  KernelBinary blob = sample();
  blob.stage = "blob";
  expect_error(load(blob), ErrorCode::invalid_argument, "stage blob is not code for a GPU");
  CHECK(fake.calls("cuModuleLoadDataEx") == 0);
  gpu->load(cubin_for(86));
  gpu->load(cubin_for(89));
  CHECK(fake.calls("cuModuleLoadDataEx") == 2);
}

TEST_CASE("cuda device: what loading a kernel is refused for", "[jit][cuda][fault]") {
  FakeCuda fake("cuModuleLoadDataEx=218");
  const auto gpu = open_gpu();
  const std::string symbol = sample().symbol;
  expect_error([&] { gpu->load(sample()); }, ErrorCode::compile_failed,
               "cuda:0: load the ptx of kernel " + symbol +
                   ": ptxas application ptx input, line 7; fatal : odd: CUDA_ERROR_INVALID_PTX");
  fake.now("cuModuleGetFunction=500");
  expect_error([&] { gpu->load(sample()); }, ErrorCode::driver, "find kernel " + symbol + " in its code");
  fake.now("static_shared=232440");
  KernelBinary large = sample();
  large.gpu.shared_bytes = 1000;
  expect_error([&] { gpu->load(large); }, ErrorCode::out_of_resources,
               "a block needs 233440 B of shared memory, cuda:0 (Fake GPU) allows 232448 B");
  fake.now("blocks=0");
  expect_error([&] { gpu->load(sample()); }, ErrorCode::out_of_resources, "threads of 128 registers and");
  CHECK(fake.state().live_modules == 0);
}

TEST_CASE("cuda device: a device that is lost says so from then on", "[jit][cuda][fault]") {
  FakeCuda fake;
  {
    const auto gpu = open_gpu();
    const auto kernel = gpu->load(sample());
    const DeviceBuffer buffer(gpu->memory(), 64);
    const OwnedStream stream(gpu->streams());
    const auto event = gpu->streams().create_event();
    gpu->launch(*kernel, {1, 1, 1}, kSlots, stream);
    fake.now("cuStreamSynchronize=700");
    expect_error(
        [&] { gpu->streams().synchronize(stream); }, ErrorCode::driver,
        "cuda:0: wait for the work of a stream: CUDA_ERROR_ILLEGAL_ADDRESS (words of the driver); the kernel is "
        "at fault: run it on sim: to see where; the device is lost to this process, start a new one");
    fake.now("");
    const int calls = fake.calls("cuLaunchKernelEx");
    const std::string again =
        "cuda:0 is lost to this process, start a new one; the first error was \"cuda:0: wait for the work of a "
        "stream: ";
    expect_error([&] { gpu->launch(*kernel, {1, 1, 1}, kSlots, stream); }, ErrorCode::driver, again);
    expect_error([&] { gpu->memory().allocate(64); }, ErrorCode::driver, again);
    expect_error([&] { gpu->load(sample()); }, ErrorCode::driver, again);
    CHECK(fake.calls("cuLaunchKernelEx") == calls);
  }
  CHECK(fake.state().live_contexts == 0);  // a lost context may be released
}

TEST_CASE("cuda device: a captured launch is one kernel node, and the graph launches", "[jit][cuda]") {
  FakeCuda fake;
  {
    const auto gpu = open_gpu();
    const auto kernel = gpu->load(sample());
    const OwnedStream stream(gpu->streams());
    const DeviceBuffer buffer(gpu->memory(), 64);
    gpu->streams().begin_capture(stream);
    expect_error([&] { gpu->streams().begin_capture(stream); }, ErrorCode::invalid_argument, "being captured already");
    gpu->launch(*kernel, {1, 1, 1}, kSlots, stream);
    gpu->memory().fill(buffer.data(), 1, 64, stream);
    const auto graph = gpu->streams().end_capture(stream);
    CHECK(graph->num_kernels() == 1);
    graph->launch(stream);
    graph->launch(stream);
    CHECK(fake.calls("cuGraphLaunch") == 2);
    expect_error([&] { gpu->streams().begin_capture({}); }, ErrorCode::invalid_argument, "the default order");
    gpu->streams().begin_capture(stream);
    fake.now("cuGraphInstantiate=1");
    expect_error([&] { gpu->streams().end_capture(stream); }, ErrorCode::driver, "make a captured graph executable");
  }
  expect_nothing_left(fake.state());
}

TEST_CASE("cuda device: events give the time between them", "[jit][cuda]") {
  FakeCuda fake;
  {
    const auto gpu = open_gpu();
    const auto start = gpu->streams().create_event(), end = gpu->streams().create_event();
    end->delay({});
    CHECK(fake.calls("cuStreamWaitEvent") == 0);
    start->record({});
    expect_error([&] { end->us_since(*start); }, ErrorCode::invalid_argument, "one was not recorded");
    end->record({});
    end->delay({});
    CHECK(fake.calls("cuStreamWaitEvent") == 1);
    CHECK(end->us_since(*start) == Approx(1500));
  }
  expect_nothing_left(fake.state());
}

TEST_CASE("cuda device: the context that was current before a call is current after it", "[jit][cuda]") {
  FakeCuda fake;
  const auto gpu = open_gpu();
  gpu->streams().synchronize({});
  CHECK(fake.state().pushed_contexts == 0);
  CHECK(fake.calls("cuCtxPushCurrent") == fake.calls("cuCtxPopCurrent"));
}

TEST_CASE("cuda device: the condition names clocks and what slows them, as far as it is known", "[jit][cuda]") {
  const char* kBus = "0000:3b:00.0";
  FakeCuda fake("sm_clock=1755 reasons=13");  // a power cap, a slowdown, and idleness, which is not reported
  CHECK(cuda::gpu_condition(kBus, FakeCuda::kPath) ==
        "1755 of 1980 MHz, memory 2619 MHz, 312 W, slowed by sw_power_cap hw_slowdown");
  fake.now("power=0");
  CHECK(cuda::gpu_condition(kBus, FakeCuda::kPath) == "1980 of 1980 MHz, memory 2619 MHz, not slowed");
  CHECK(cuda::gpu_condition("0000:00:00.0", FakeCuda::kPath).empty());
  CHECK(cuda::gpu_condition(kBus, "no_such_library.so").empty());
  fake.now("nvml=0");
  CHECK(cuda::gpu_condition(kBus, FakeCuda::kPath).empty());
  CHECK(open_gpu()->condition().empty());  // this machine has no NVML, or its NVML does not know the GPU
  CHECK(fake.calls("cuDeviceGetPCIBusId") == 1);
}

}  // namespace seqtile

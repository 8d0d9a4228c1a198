// tests/autotune/engine/engine_gpu_test.cpp -- the engine on a simulated GPU: device memory, streams, workspaces,
// capture.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <span>

#include "autotune/keys.h"
#include "jit/ir/length_sizes.h"
#include "jit/ir/row_alignment.h"
#include "seqtile/builder.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "seqtile/stores.h"
#include "tests/support/fakes/fake_op.h"
#include "tests/support/ptx/cubin_header.h"

using namespace seqtile;
using namespace seqtile::test;
using Catch::Contains;

namespace {

/// A ScaleCall whose tensors lie on the device.
struct DeviceCall {
  DeviceCall(Device& on, int64_t length) : device(on), host(length), x(on.memory(), bytes()), y(on.memory(), bytes()) {
    device.memory().copy(x.data(), host.x.data(), bytes());
    device.memory().fill(y.data(), 0xff, bytes());
  }
  size_t bytes() const { return host.x.size() * sizeof(float); }
  std::vector<Tensor> tensors(int64_t rows) const {
    return {make_tensor(x.data(), DType::f32, {rows, host.n}), make_tensor(y.data(), DType::f32, {rows, host.n})};
  }
  bool is_right(int64_t factor) {
    device.memory().copy(host.y.data(), y.data(), bytes());
    device.streams().synchronize({});
    return host.is_right(factor);
  }

  Device& device;
  ScaleCall host;
  DeviceBuffer x, y;
};

struct GpuWorld : FakeWorld {
  GpuWorld() {
    EngineOptions chosen = options(MissPolicy::fallback);
    chosen.device = "sim:sm_80";
    chosen.max_length = 64;
    engine = Engine::open(chosen, registry);
    handle = engine->prepare(workload);
  }
  std::unique_ptr<Engine> engine;
  Handle handle;
};

template <class Call>
void expect_error(Call&& call, ErrorCode code, const std::string& part) {
  try {
    call();
    FAIL("nothing thrown, expected: " << part);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    CHECK_THAT(error.what(), Contains(part));
  }
}

}  // namespace

TEST_CASE("engine on a GPU: a strict miss names the command that tunes for that GPU", "[autotune][engine][sim]") {
  FakeWorld world;
  EngineOptions options = world.options(MissPolicy::strict);
  options.device = "sim:sm_80";
  const auto engine = Engine::open(options, world.registry);
  const Handle handle = engine->prepare(world.workload);
  DeviceCall call(engine->device(), 16);
  expect_error([&] { handle(call.tensors(16), 16, std::array<int64_t, 1>{3}); }, ErrorCode::no_record,
               " --dtype f32 --length 16 --device sim:sm_80 --cache " + options.cache + " --artifacts " +
                   options.artifacts + "`");
}

TEST_CASE("engine: an operation of one's own on a simulated GPU, on several streams", "[autotune][engine][sim]") {
  GpuWorld world;
  Device& device = world.engine->device();
  const OwnedStream first(device.streams()), second(device.streams());
  for (const Stream stream : {Stream{}, Stream(first), Stream(second)})
    for (const int64_t length : {1, 7, 16, 33, 64}) {
      DeviceCall call(device, length);
      const int64_t factor = 3;
      world.handle(call.tensors(length), length, {&factor, 1}, stream);
      device.streams().synchronize(stream);
      CHECK(call.is_right(factor));
    }
  CHECK(world.engine->counters().launches == 15);
  CHECK(world.engine->counters().compiles == 0);
  CHECK(world.handle.workload().threads == 1);
}

TEST_CASE("engine: binaries for GPUs come back from the store with what their launches need",
          "[autotune][engine][sim]") {
  GpuWorld world;
  CHECK(world.engine->counters().compiles_at_load > 0);
  EngineOptions options = world.options(MissPolicy::fallback);
  options.device = "sim:sm_80";
  options.max_length = 64;
  const auto again = Engine::open(options, world.registry);
  const Handle handle = again->prepare(world.workload);
  CHECK(again->counters().compiles_at_load == 0);
  DeviceCall call(again->device(), 9);
  const int64_t factor = 2;
  handle(call.tensors(9), 9, {&factor, 1});
  CHECK(call.is_right(factor));
}

TEST_CASE("engine: a stored cubin for another GPU is never loaded, its kernel is compiled anew", "[autotune][engine]") {
  FakeWorld world;
  Target target = gpu_target("sm_80");
  target.loads_cubins = true;
  target.gpu.compute_capability = 86;
  const auto open = [&] {
    autotune::EngineParts parts = world.parts();
    world.device->target_ = target;
    parts.compile = [compile = parts.compile](const auto& op, const auto& w, const auto& config, const Target& to) {
      KernelBinary binary = compile(op, w, config, to);
      binary.stage = "ptx";
      binary.num_slots = 15;  // the kernel also takes the length in memory
      return binary;
    };
    return autotune::open_engine(world.options(MissPolicy::fallback), world.registry, std::move(parts));
  };
  autotune::Workload workload;
  {
    const auto engine = open();
    workload = engine->prepare(world.workload).workload();
    REQUIRE(engine->counters().compiles_at_load == 2);  // blocks of 4 and of 16 rows
  }
  const auto store = cache::ArtifactDb::open(world.artifacts, cache::default_key_path());
  const ArtifactKey key =
      autotune::make_artifact_key(world.registry.find("scale_rows"), workload, {{"block", int64_t{4}}}, target);
  for (const int sm : {89, 90}) {
    auto binary = store->load(key);
    REQUIRE(binary);
    const std::string header = cubin_header(sm);
    const auto code = std::as_bytes(std::span(header));
    binary->stage = "cubin";
    binary->code.assign(code.begin(), code.end());
    REQUIRE(store->store(key, *binary));
    const auto engine = open();
    engine->prepare(world.workload);
    CHECK(engine->counters().compiles_at_load == 1);
    CHECK(world.device->loads == 2);  // the stored binary of the other GPU, and the compiled one
  }
  const auto engine = open();
  engine->prepare(world.workload);
  CHECK(engine->counters().compiles_at_load == 0);
}

TEST_CASE("engine: tensors that GPU kernels cannot take are refused in one line", "[autotune][engine][sim]") {
  GpuWorld world;
  DeviceCall call(world.engine->device(), 8);
  const int64_t factor = 1;
  auto tensors = call.tensors(4);
  tensors[0].data = static_cast<float*>(tensors[0].data) + 1;
  expect_error(
      [&] {
        world.handle(tensors, 4, {&factor, 1});
      },
      ErrorCode::invalid_argument, "4, 16-byte alignment expected; align the buffer");
  tensors = call.tensors(4);
  tensors[1].strides[0] = 5;
  expect_error(
      [&] {
        world.handle(tensors, 4, {&factor, 1});
      },
      ErrorCode::invalid_argument, "'y': stride 5 of dimension 0 is 20 bytes, a multiple of 16 expected; pad the rows");
  ScaleCall host(4);
  expect_error([&] { world.handle(host.tensors(), 4, {&factor, 1}); }, ErrorCode::driver, "out of bounds");
}

TEST_CASE("engine: a captured call follows the length in device memory, eager calls go on beside it",
          "[autotune][engine][sim]") {
  GpuWorld world;
  Device& device = world.engine->device();
  const OwnedStream stream(device.streams());
  const DeviceBuffer length(device.memory(), sizeof(int64_t));
  const auto* device_length = static_cast<const int64_t*>(length.data());
  DeviceCall captured(device, 64);
  const int64_t factor = 5;
  device.streams().begin_capture(stream);
  const auto kept = world.handle.capture(captured.tensors(64), 64, device_length, {&factor, 1}, stream);
  const auto graph = device.streams().end_capture(stream);
  CHECK(graph->num_kernels() == 1);
  for (const int64_t rows : {64, 1, 17, 0, 64}) {
    device.memory().fill(captured.y.data(), 0xff, captured.bytes(), stream);
    device.memory().copy(length.data(), &rows, sizeof rows, stream);
    graph->launch(stream);
    DeviceCall eager(device, 7);
    world.handle(eager.tensors(7), 7, {&factor, 1}, stream);
    device.streams().synchronize(stream);
    CHECK(eager.is_right(factor));
    (void)captured.is_right(factor);
    for (int64_t i = 0; i < 64 * 4; ++i) {
      const float want = 5 * captured.host.x[i] + static_cast<float>(i / 4);
      if (i < rows * 4) REQUIRE(captured.host.y[i] == want);
      else REQUIRE(std::isnan(captured.host.y[i]));
    }
  }
  expect_error(
      [&] {
        (void)world.handle.capture(captured.tensors(64), 64, nullptr, {&factor, 1}, stream);
      },
      ErrorCode::invalid_argument, "device_length is null");
  const auto cpu = Engine::open(world.options(MissPolicy::fallback), world.registry);
  expect_error(
      [&] {
        (void)cpu->prepare(world.workload).capture(captured.tensors(8), 8, device_length, {&factor, 1});
      },
      ErrorCode::unsupported, "a CPU captures no graphs");
}

TEST_CASE("engine: a call as a larger one takes the plan of the larger one", "[autotune][engine][sim]") {
  GpuWorld world;
  DeviceCall call(world.engine->device(), 5);
  const int64_t factor = 2;
  world.handle.call_as(64, call.tensors(5), 5, {&factor, 1});
  CHECK(call.is_right(factor));
  expect_error(
      [&] {
        world.handle.call_as(4, call.tensors(5), 5, {&factor, 1});
      },
      ErrorCode::invalid_argument, "the capacity is 4, it must be at least the length 5");
  expect_error(
      [&] {
        world.handle.call_as(65, call.tensors(5), 5, {&factor, 1});
      },
      ErrorCode::invalid_argument, "above the engine's max_length 64");
}

TEST_CASE("launch: GPU kernels promise the alignment that calls are checked for", "[autotune][engine]") {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{ir::kDynamic, 576}, {ir::kDynamic, 3, 20}, {64}, {13}}) {
    const int promised = row_alignment(DType::bf16, sizes, kGpuAlignment);
    CHECK(promised == (sizes.back() % 8 == 0 || sizes.size() == 1 ? 16 : 8));
  }
  CHECK(row_alignment(DType::f32, std::vector<int64_t>{ir::kDynamic}, kGpuAlignment) == 4);
  CHECK(row_alignment(DType::i32, std::vector<int64_t>{ir::kDynamic, 5}, kGpuAlignment) == 4);

  const autotune::Registry registry = kernels::make_registry();
  const autotune::OpDef& norm = registry.find("rms_norm");
  const auto workload = norm.normalize({"rms_norm", DType::bf16, 1, {{"n", int64_t{72}}}});
  const Target target = gpu_target("sm_80");
  const auto kernel = autotune::build_kernel(norm, workload, norm.default_config(workload, 64, target), target);
  const auto sizes = ir::length_sizes(*kernel);
  REQUIRE(sizes);
  REQUIRE(sizes->size() == 2);  // the sizes of x and y
  CHECK((*sizes)[0].slot == 1);
  CHECK((*sizes)[1].slot == 5 + 3 + 1);
  CHECK(ir::num_slots(*kernel) == 5 + 3 + 5 + 1);
  CHECK(ir::length_sizes(*ir::parse(ir::print(*kernel)))->size() == 2);
}

TEST_CASE("length sizes: what is not a run-time size of a view is refused", "[jit][ir]") {
  const auto sizes_of = [](const std::string& list) {
    const auto kernel = ir::parse(
        "kernel @k(%0 x: view<[?, 4], f32, contiguous, align 4>, %1 n: i64) {length_sizes = " + list + "} {}");
    ir::verify(*kernel);
    return *ir::length_sizes(*kernel);
  };
  CHECK(sizes_of("[]").empty());
  CHECK(sizes_of("[1, 2]").front().plus == 2);
  expect_error([&] { sizes_of("[2, 0]"); }, ErrorCode::compile_failed, "slot 2 is not a run-time size of a view");
  expect_error([&] { sizes_of("[5, 0]"); }, ErrorCode::compile_failed, "slot 5 is not a run-time size of a view");
  expect_error([&] { sizes_of("[1]"); }, ErrorCode::compile_failed, "pairs of a slot");
  expect_error([&] { sizes_of("3"); }, ErrorCode::compile_failed, "pairs of a slot");
}

// tests/autotune/gpu_measure_test.cpp -- measuring on GPUs: events, graphs, flushed caches, memory of the device.
// SPDX-License-Identifier: Apache-2.0
//
// The device runs on the PTX machine. It is not registered as a simulated one, so that it is timed as a GPU.
#include <catch2/catch.hpp>

#include "autotune/call/verify.h"
#include "autotune/worker/measure.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"
#include "tests/support/fakes/toy_ops.h"

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

/// A GPU that counts the meter's calls and may have too little memory.
class CountingGpu final : public Device, public DeviceMemory, public DeviceStreams {
 public:
  CountingGpu() : inner_(open_device("sim:sm_80", 1)), target_(inner_->target()), info_{"cuda", "fake GPU", {}} {
    target_.gpu.l2_bytes = 1 << 16;  // a small cache makes flushing cheap
  }
  const DeviceInfo& info() const override { return info_; }
  const Target& target() const override { return target_; }
  DeviceMemory& memory() override { return *this; }
  DeviceStreams& streams() override { return *this; }
  std::string condition() override { return "1980 of 1980 MHz"; }
  std::unique_ptr<LoadedKernel> load(KernelBinary binary) override { return inner_->load(std::move(binary)); }
  void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream stream,
              GridRange range) override {
    ++launches;
    bases.push_back(slots[0]);
    inner_->launch(kernel, grid, slots, stream, range);
  }

  void* allocate(size_t bytes) override {
    if (bytes > most_bytes) throw Error(ErrorCode::out_of_resources, "the GPU has no more memory");
    return inner_->memory().allocate(bytes);
  }
  void free(void* pointer) noexcept override { inner_->memory().free(pointer); }
  void copy(void* to, const void* from, size_t bytes, Stream stream) override {
    inner_->memory().copy(to, from, bytes, stream);
  }
  void fill(void* pointer, uint8_t byte, size_t bytes, Stream stream) override {
    if (bytes == static_cast<size_t>(2 * target_.gpu.l2_bytes)) ++flushes;
    inner_->memory().fill(pointer, byte, bytes, stream);
  }
  bool is_host() const override { return false; }

  Stream create() override { return inner_->streams().create(); }
  void destroy(Stream stream) noexcept override { inner_->streams().destroy(stream); }
  void synchronize(Stream stream) override { inner_->streams().synchronize(stream); }
  std::unique_ptr<Event> create_event() override { return inner_->streams().create_event(); }
  void begin_capture(Stream stream) override { inner_->streams().begin_capture(stream); }
  std::unique_ptr<Graph> end_capture(Stream stream) override {
    ++graphs;
    return inner_->streams().end_capture(stream);
  }

  int64_t launches = 0, flushes = 0, graphs = 0;
  size_t most_bytes = SIZE_MAX;
  std::vector<uint64_t> bases;  ///< address of the first tensor, by launch

 private:
  std::unique_ptr<Device> inner_;
  Target target_;
  DeviceInfo info_;
};

struct Bench {
  CountingGpu gpu;
  OpDef op = test::toy_add_op();
  Workload workload = test::toy_add("plain");
  volatile int64_t current = -1;

  LoadedCandidate load(const std::string& form) {
    const Config config{{"form", form}, {"block", int64_t{16}}};
    KernelBinary binary = compile(*build_kernel(op, workload, config, gpu.target()), gpu.target());
    return {config, gpu.load(std::move(binary)), op.grid(workload, config), op.workspaces(workload, config)};
  }
  Series measure(const LoadedCandidate& candidate, bool cold, bool graphs) {
    OperandRegions regions(gpu, cold);
    Meter meter(op, workload, gpu, regions, graphs);
    const LoadedCandidate* candidates[] = {&candidate};
    return meter.measure(candidates, {64, 3, 3, 10, false}, &current)[0];
  }
};

}  // namespace

TEST_CASE("gpu measuring: cold samples flush the L2 and rotate operands, warm ones do neither", "[autotune][worker]") {
  Bench bench;
  const LoadedCandidate plain = bench.load("plain");
  const Series cold = bench.measure(plain, true, false);
  REQUIRE(cold.us.size() == 3);
  for (const double us : cold.us) CHECK(us > 0);
  CHECK(cold.verdict.detail == "1980 of 1980 MHz");
  CHECK_FALSE(cold.sliced);
  CHECK(bench.gpu.flushes >= 3);
  CHECK(bench.gpu.bases[0] != bench.gpu.bases[1]);

  bench.gpu.flushes = 0;
  bench.gpu.bases.clear();
  CHECK(bench.measure(plain, false, false).us.size() == 3);
  CHECK(bench.gpu.flushes == 0);
  CHECK(bench.gpu.bases.front() == bench.gpu.bases.back());
}

TEST_CASE("gpu measuring: a graph is captured once for a candidate's samples", "[autotune][worker]") {
  Bench bench;
  const LoadedCandidate plain = bench.load("plain");
  const Series series = bench.measure(plain, true, true);
  CHECK(series.us.size() == 3);
  CHECK(bench.gpu.graphs >= 1);
  CHECK(bench.gpu.graphs <= 2);  // the first launches make a graph of one launch
}

TEST_CASE("gpu measuring: verified through copies, guard bands included", "[autotune][worker]") {
  Bench bench;
  ReferenceCache reference;
  Checker checker(bench.op, bench.workload, bench.gpu, 64, reference);
  const Probe probes[] = {{64, 0}, {7, 1}};
  CHECK(checker.check(bench.load("plain"), probes, true, 1e9).detail == "");
  CHECK(checker.check(bench.load("wrong"), probes, true, 1e9).outcome == "wrong_result");
  CHECK(checker.check(bench.load("unwritten"), probes, true, 1e9).outcome == "wrong_result");
  CHECK(checker.check(bench.load("oob"), probes, true, 1e9).outcome == "oob_write");
  CHECK(checker.check(bench.load("under"), probes, true, 1e9).outcome == "oob_write");
  CHECK(checker.check(bench.load("dirty"), probes, true, 1e9).outcome == "nondeterministic");
}

TEST_CASE("gpu measuring: memory that is short is said to be", "[autotune][worker]") {
  Bench bench;
  const LoadedCandidate plain = bench.load("plain");
  bench.gpu.most_bytes = 1 << 20;
  try {
    bench.measure(plain, true, false);
    FAIL("measured");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::out_of_resources);
  }
}

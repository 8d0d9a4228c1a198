// tests/jit/fabric/virtual_fabric_test.cpp -- ranks that share a GPU: their joint launches and their driver calls.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "jit/device/gpu_launch.h"
#include "jit/runtime/cuda/cuda_device.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"
#include "tests/support/fakes/fake_cuda_driver.h"
#include "tests/support/ranks/ranks.h"

using namespace seqtile;
using seqtile::test::FakeCuda;
using seqtile::testing::on_threads;
using namespace std::chrono_literals;

namespace {

constexpr int kRanks = 3;
using Row = std::array<uint64_t, 5>;  ///< two slots, three sides

std::shared_ptr<Device> fake_gpu() {
  const auto driver = cuda::Driver::open(FakeCuda::kPath);
  GpuFacts facts = cuda::describe_gpu(*driver, 0);
  Target target = gpu_target(facts);
  return cuda::make_cuda_device(driver, 0, std::move(facts), std::move(target));
}

/// The fake driver reads only the parameters: a row of the table is two slots and a grid.
KernelBinary kernel_of(const std::string& symbol, uint32_t ranks = kRanks) {
  KernelBinary binary{.symbol = symbol, .target = "sm_90a", .stage = "ptx", .num_slots = 2};
  const std::string text =
      fmt::format(".entry {}(\n.param .align 8 .b8 table[{}]\n) {{ ret; }}\n", symbol, ranks * sizeof(Row));
  const auto bytes = std::as_bytes(std::span(text.c_str(), text.size() + 1));
  binary.code.assign(bytes.begin(), bytes.end());
  binary.gpu.threads = 128;
  binary.gpu.is_persistent = binary.gpu.is_cooperative = binary.gpu.is_in_order = true;
  binary.gpu.ranks_in_launch = ranks;
  return binary;
}

/// A launch of `programs` with the rank's number in its slots.
void launch(Fabric& fabric, const LoadedKernel& kernel, int64_t programs, Stream stream = {}) {
  const auto rank = static_cast<uint64_t>(fabric.rank());
  const uint64_t slots[] = {rank, 10 + rank};
  fabric.device().launch(kernel, {programs, 1, 1}, slots, stream);
}

std::vector<Row> table_of(const test::FakeLaunch& launch) {
  std::vector<Row> rows(launch.parameters.size() / sizeof(Row));
  std::memcpy(rows.data(), launch.parameters.data(), rows.size() * sizeof(Row));
  return rows;
}

void check_none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == "");
}

void check_all(const std::vector<std::string>& errors, const std::string& wanted) {
  for (const std::string& error : errors) CHECK(error == wanted);
}

}  // namespace

TEST_CASE("virtual fabric: the launches of all ranks are one, with a row of parameters each", "[fabric][cuda]") {
  FakeCuda fake;
  check_none(on_threads(make_virtual_fabric(fake_gpu(), kRanks), [&](Fabric& fabric) {
    const auto kernel = fabric.device().load(kernel_of("fused"));
    launch(fabric, *kernel, 5 + fabric.rank());
    launch(fabric, *kernel, 1000);
  }));
  CHECK(fake.calls("cuModuleLoadDataEx") == 1);
  CHECK(fake.calls("cuLaunchKernelEx") == 2);
  CHECK(fake.calls("cuEventRecord") == 0);
  const test::FakeLaunch &few = fake.state().launches[0], &many = fake.state().launches[1];
  // Each rank gets as many blocks as the longest rank has programs.
  CHECK(few.grid[0] == kRanks * 7);
  // The blocks that run at once.
  CHECK(many.grid[0] == 2 * 132 / kRanks * kRanks);
  for (const auto& each : fake.state().launches) CHECK(each.attributes == std::vector<int>{2});
  CHECK(table_of(few) == std::vector<Row>{{0, 10, 5, 1, 1}, {1, 11, 6, 1, 1}, {2, 12, 7, 1, 1}});
  CHECK(table_of(many)[2] == Row{2, 12, 1000, 1, 1});
}

TEST_CASE("virtual fabric: a launch comes behind and before what its ranks ask for on streams", "[fabric][cuda]") {
  FakeCuda fake;
  check_none(on_threads(make_virtual_fabric(fake_gpu(), kRanks), [&](Fabric& fabric) {
    const OwnedStream stream(fabric.device().streams());
    const auto kernel = fabric.device().load(kernel_of("fused"));
    launch(fabric, *kernel, 1, stream);
    fabric.all_gather("");
  }));
  CHECK(fake.calls("cuLaunchKernelEx") == 1);
  CHECK(fake.calls("cuEventRecord") == 2 * (kRanks - 1));
  CHECK(fake.calls("cuStreamWaitEvent") == 2 * (kRanks - 1));
}

TEST_CASE("virtual fabric: different kernels are refused on all ranks, which go on", "[fabric][cuda][fault]") {
  FakeCuda fake;
  check_all(on_threads(make_virtual_fabric(fake_gpu(), kRanks),
                       [&](Fabric& fabric) {
                         const auto one = fabric.device().load(kernel_of("one"));
                         const auto other = fabric.device().load(kernel_of("other"));
                         std::string refusal;
                         try {
                           launch(fabric, fabric.rank() == 1 ? *other : *one, 1);
                         } catch (const Error& error) {
                           refusal = error.what();
                         }
                         launch(fabric, *other, 1);
                         throw Error(ErrorCode::invalid_argument, refusal);
                       }),
            "ranks 0 and 1 launch different kernels, one and other; ranks that share a GPU take the same operations in "
            "the same order, with shares of the same size");
  CHECK(fake.calls("cuLaunchKernelEx") == 1);
}

TEST_CASE("virtual fabric: nobody waits for ever for a rank that stays away or has left", "[fabric][cuda]") {
  FakeCuda fake;
  check_none(on_threads(make_virtual_fabric(fake_gpu(), kRanks, 500ms), [&](Fabric& fabric) {
    const auto kernel = fabric.device().load(kernel_of("fused"));
    fabric.all_gather("");
    if (fabric.rank() != 1) launch(fabric, *kernel, 2);
    fabric.all_gather("");
  }));
  CHECK(table_of(fake.state().launches.front()) == std::vector<Row>{{0, 10, 2, 1, 1}, {}, {2, 12, 2, 1, 1}});
  check_none(on_threads(make_virtual_fabric(fake_gpu(), kRanks, 1h), [&](Fabric& fabric) {
    const auto kernel = fabric.device().load(kernel_of("fused"));
    if (fabric.rank() != 0) launch(fabric, *kernel, 2);
  }));
  CHECK(table_of(fake.state().launches.back()) == std::vector<Row>{{}, {1, 11, 2, 1, 1}, {2, 12, 2, 1, 1}});
}

TEST_CASE("virtual fabric: a driver's refusal is told to all ranks", "[fabric][cuda][fault]") {
  FakeCuda fake("cuLaunchKernelEx=701");
  for (const std::string& error : on_threads(make_virtual_fabric(fake_gpu(), kRanks), [&](Fabric& fabric) {
         const auto kernel = fabric.device().load(kernel_of("fused"));
         launch(fabric, *kernel, 2);
       }))
    CHECK_THAT(error, Catch::Contains("launch kernel fused"));
}

TEST_CASE("virtual fabric: what it cannot do is refused in one line", "[fabric][cuda][fault]") {
  FakeCuda fake;
  const auto refused = [](const std::string& wanted, const std::function<void(Device&)>& act) {
    const auto fabrics = make_virtual_fabric(fake_gpu(), kRanks);
    CHECK(fabrics[0]->kind() == "virtual:sm_90a");
    CHECK_THROWS_WITH(act(fabrics[0]->device()), wanted);
  };
  refused("kernel plain: compiled for 1 ranks in a launch, 3 share the GPU",
          [](Device& device) { device.load(kernel_of("plain", 1)); });
  refused(
      "ranks that share Fake GPU cannot capture: a launch is that of all of them; call without a graph, or give each "
      "rank a GPU",
      [](Device& device) { device.streams().begin_capture(device.streams().create()); });
  KernelBinary large = kernel_of("large");
  large.num_slots = 200;
  refused("kernel large: 609 slots and 0 tensor maps are more than the 4096 bytes of parameters that a GPU takes",
          [&](Device& device) { device.load(large); });
  CHECK_THROWS_WITH(make_virtual_fabric(make_cpu_device(1), 2),
                    Catch::Contains("2 ranks cannot share") && Catch::Contains("which is no GPU; use threads"));
  for (const int size : {0, 17})
    CHECK_THROWS_WITH(make_virtual_fabric(fake_gpu(), size), Catch::Contains("from 1 to 16"));
}

TEST_CASE("virtual fabric: blocks of all ranks run at once, or none", "[fabric][fault]") {
  const uint64_t slots[] = {1, 2};
  const std::vector<RankArguments> ranks(kRanks, {{4, 1, 1}, slots});
  const KernelBinary fused = kernel_of("fused");
  const JointArguments joint = joint_arguments(fused, ranks, "a GPU");
  CHECK(joint.grid == Grid{kRanks * 4, 1, 1});
  CHECK(gpu_grid(fused, joint.grid, 3, "a GPU").blocks[0] == 3);
  CHECK(gpu_grid(fused, joint.grid, 8, "a GPU").blocks[0] == 6);
  CHECK(gpu_grid(fused, joint.grid, 100, "a GPU").blocks[0] == 12);
  CHECK_THROWS_WITH(
      gpu_grid(fused, joint.grid, 2, "a GPU"),
      "kernel fused: 3 ranks wait for each other in one launch, a GPU runs 2 blocks at once; use fewer ranks "
      "or smaller blocks");
}

TEST_CASE("joint arguments: ranks without slots or programs have empty rows", "[fabric]") {
  const uint64_t slots[] = {1, 2};
  const RankArguments ranks[] = {{}, {{2, 3, 1}, slots}};
  const JointArguments joint = joint_arguments(kernel_of("fused"), ranks, "a GPU");
  CHECK(joint.grid == Grid{kRanks * 6, 1, 1});
  CHECK(joint.slots == std::vector<uint64_t>{0, 0, 0, 0, 0, 1, 2, 2, 3, 1, 0, 0, 0, 0, 0});
  CHECK(gpu_grid(kernel_of("fused"), joint_arguments(kernel_of("fused"), {}, "a GPU").grid, 8, "a GPU").is_empty());
}

TEST_CASE("joint arguments: a wrong number of ranks or slots is refused", "[fabric][fault]") {
  const uint64_t slots[] = {1, 2, 3};
  const std::vector<RankArguments> ranks(kRanks, {{4, 1, 1}, slots});
  CHECK_THROWS_WITH(joint_arguments(kernel_of("fused", 2), ranks, "a GPU"),
                    "kernel fused: a launch of 3 ranks, it is compiled for 2");
  CHECK_THROWS_WITH(joint_arguments(kernel_of("fused"), ranks, "a GPU"),
                    "kernel fused: 3 argument slots were given for a rank, it takes 2");
  FakeCuda fake;
  const auto gpu = fake_gpu();
  const auto kernel = gpu->load(kernel_of("fused"));
  CHECK_THROWS_WITH(gpu->launch(*kernel, {4, 1, 1}, slots), "kernel fused: 3 argument slots were given, it takes 15");
}

TEST_CASE("launch alone: the first rank's row is filled in", "[fabric]") {
  FakeCuda fake;
  const auto gpu = fake_gpu();
  const auto kernel = gpu->load(kernel_of("fused"));
  const uint64_t slots[] = {1, 2};
  launch_alone(*gpu, *kernel, {4, 1, 1}, slots);
  CHECK(table_of(fake.state().launches.back()) == std::vector<Row>{{1, 2, 4, 1, 1}, {}, {}});
  CHECK(fake.state().launches.back().grid[0] == kRanks * 4);
}

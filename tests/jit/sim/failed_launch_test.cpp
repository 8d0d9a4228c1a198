// tests/jit/sim/failed_launch_test.cpp -- launches that throw: all GPUs of a world report the error, nothing is left.
// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <span>
#include <thread>

#include "jit/sim/device/sim_device.h"
#include "jit/sim/device/sim_world.h"
#include "seqtile/error.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

/// The code and message that each of two GPUs reports at its wait; "" without an error.
std::vector<std::string> finish_both(SimWorld& world, const Options& options = {}) {
  std::vector<std::string> seen(2);
  const auto wait = [&](int device) {
    try {
      world.finish(device, options);
    } catch (const Error& error) {
      seen[static_cast<size_t>(device)] = std::string(error_code_name(error.code())) + ": " + error.what();
    }
  };
  std::thread other([&] { wait(1); });
  wait(0);
  other.join();
  return seen;
}

}  // namespace

TEST_CASE("ptx machine: what ends a round of several GPUs is an error on each of them, with its code", "[jit][sim]") {
  std::vector<uint32_t> data(64, 0);
  SimWorld world(2);
  world.machine().register_memory("data", data.data(), data.size() * sizeof(uint32_t), 0, true);
  const Program store = decode_text(kernel_text("st.global.u32 [%rd0], 7;"), "k"),
                endless = decode_text(kernel_text("LOOP:\nst.global.u32 [%rd0], 7;\nbra LOOP;"), "k");
  Launch good{&store, {}, {}}, bad = good, lost{&endless, {}, {}};
  for (Launch* launch : {&good, &bad, &lost}) append_param(launch->params, data.data());
  bad.shape.threads = 1048;
  Options options;
  options.checks = Checks::none();
  options.instruction_limit = 100'000;
  const auto check = [&](const std::function<void()>& add, const std::string& want) {
    world.add(1, good);
    add();
    for (const std::string& error : finish_both(world, options)) CHECK_THAT(error, Catch::StartsWith(want));
    // The world still runs launches.
    data[0] = 0;
    world.add(0, good), world.add(1, [] {});
    CHECK(finish_both(world, options) == std::vector<std::string>(2));
    CHECK(data[0] == 7);
  };
  check([&] { world.add(0, bad); }, "invalid_argument: launch of k: a block of 1048,1,1");
  check([&] { world.add(0, lost); }, "timeout: limit: k");
  check([&] { world.add(0, [] { throw Error(ErrorCode::io, "no more disk"); }); }, "io: no more disk");
}

TEST_CASE("ptx machine: a launch beyond .maxntid or a block's shared memory is refused", "[jit][sim]") {
  const std::string text = kernel_text("", 0);
  Machine machine;
  LaunchShape shape;
  shape.threads = 96;
  const Program program = decode_text(replaced(text, "k()\n", "k()\n.maxntid 64, 1, 1\n"), "k");
  CHECK_THROWS_WITH(machine.launch(program, shape, {}),
                    "launch of k: 96 threads per block, the kernel takes at most 64");
  KernelBinary binary;
  binary.symbol = "k", binary.stage = "ptx", binary.target = "sm_80", binary.gpu.threads = 32;
  binary.gpu.shared_bytes = 164 * 1024;
  const std::string portable = replaced(text, "sm_90a", "sm_80");
  const auto bytes = std::as_bytes(std::span(portable));
  binary.code.assign(bytes.begin(), bytes.end());
  const auto device = make_sim_device("sm_80");
  const auto kernel = device->load(std::move(binary));
  CHECK_THROWS_WITH(device->launch(*kernel, {1, 1, 1}, {}),
                    "kernel k: 167936 bytes of shared memory, a block of sm_80 has 166912");
}

TEST_CASE("ptx machine: a launch that throws leaves no memory of the module behind", "[jit][sim]") {
  const Program program =
      decode_text(kernel_text("st.global.u32 [counter], 7;", 0, ".visible .global .align 4 .u32 counter[4];\n"), "k");
  Machine machine;
  LaunchShape shape;
  shape.cooperative = true, shape.grid = {4000, 1, 1};  // more warps than the race check knows
  const auto code = [&](const std::function<void()>& launch) {
    try {
      launch();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  CHECK(code([&] { machine.launch(program, shape, {}); }) == ErrorCode::unsupported);
  CHECK_THAT(machine.describe(program.globals[0].storage->data()), !Catch::Contains("counter"));
  const std::vector<Launch> stream(1, Launch{&program, shape, {}});
  CHECK(code([&] { machine.run_streams({&stream, 1}); }) == ErrorCode::unsupported);
  CHECK_THAT(machine.describe(program.globals[0].storage->data()), !Catch::Contains("counter"));
}

}  // namespace seqtile::sim

// bench/suites/simulate_bench.cpp -- one launch on the PTX machine, with and without its checks.
// SPDX-License-Identifier: Apache-2.0
//
// The kernels are ours, compiled for a GPU. Shapes are small, because the time of the machine follows the number of
// multiply-adds. Each launch runs on the calling thread alone. The counters are the best time of the rounds, and the
// instructions and tensor operations of one launch.

#include <algorithm>
#include <chrono>
#include <utility>

#include "autotune/engine/launch.h"
#include "bench/op_arena.h"
#include "bench/suites.h"
#include "jit/sim/device/sim_device.h"
#include "seqtile/compiler.h"

namespace seqtile::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Launch {
  const char* shape;
  const char* target;
  autotune::Workload workload;
  int64_t length;
  std::vector<std::pair<const char*, int64_t>> config;  ///< values that replace the default's
};

std::vector<Launch> launches() {
  const autotune::Workload linear{"linear", DType::bf16, 1, {{"n", int64_t{256}}, {"k", int64_t{256}}}};
  const autotune::Workload wide{"linear", DType::bf16, 1, {{"n", int64_t{512}}, {"k", int64_t{256}}}};
  const autotune::Workload attention{
      "attention_forward",
      DType::bf16,
      1,
      {{"heads", int64_t{1}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{128}}, {"phase", std::string("prefill")}}};
  return {{"linear_sm80_m256_n256_k256",
           "sm_80",
           linear,
           256,
           {{"block_m", 128}, {"block_n", 128}, {"block_k", 32}, {"num_warps", 8}, {"num_stages", 3}}},
          {"attention_sm80_l256_d128",
           "sm_80",
           attention,
           256,
           {{"block_m", 64}, {"block_n", 64}, {"num_warps", 4}, {"num_stages", 2}}},
          {"linear_sm90a_m512_n512_k256",
           "sm_90a",
           wide,
           512,
           {{"block_m", 128}, {"block_n", 256}, {"block_k", 64}, {"num_warps", 8}, {"num_stages", 3}}},
          {"attention_sm90a_l256_d128",
           "sm_90a",
           attention,
           256,
           {{"block_m", 128}, {"block_n", 128}, {"num_warps", 8}, {"num_stages", 2}}}};
}

/// A kernel on a PTX machine of its own, with an arena's operands registered as memory.
class SimulatedCall {
 public:
  SimulatedCall(const OpArena& arena, const Launch& launch) : device_(sim::make_sim_device(launch.target)) {
    const autotune::OpDef& op = arena.op();
    autotune::Config config = op.default_config(arena.workload(), launch.length, device_->target());
    for (const auto& [name, value] : launch.config) config.set(name, value);
    kernel_ = device_->load(
        compile(*autotune::build_kernel(op, arena.workload(), config, device_->target()), device_->target()));
    const autotune::Schema schema = op.schema(arena.workload());
    for (const autotune::ArgSpec& arg : schema.args) {
      const Operand& operand = arena.operand(0, arg.name);
      device_->register_memory(arg.name, {operand.as<std::byte>(), static_cast<size_t>(operand.bytes())});
    }
    const autotune::CallLayout layout(schema, true);
    layout.bind(arena.tensors()[0], launch.length, {}, call_);
    layout.finish({}, nullptr, call_);
    grid_ = autotune::grid_of(op.grid(arena.workload(), config), call_.symbol_values());
  }
  sim::SimDevice& device() { return *device_; }
  void run() { device_->launch(*kernel_, grid_, call_.block()); }

 private:
  std::unique_ptr<sim::SimDevice> device_;
  std::unique_ptr<LoadedKernel> kernel_;
  autotune::KernelCall call_;
  Grid grid_{};
};

Result measure(const OpArena& arena, const Launch& launch, const std::string& implementation, int rounds) {
  SimulatedCall call(arena, launch);
  if (implementation == "unchecked") call.device().options().checks = sim::Checks::none();
  Result result;
  result.implementation = implementation;
  for (int round = 0; round < std::max(rounds, 25); ++round) {
    const auto start = Clock::now();
    call.run();
    result.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  result.calls = static_cast<int64_t>(result.seconds.size());
  const sim::Counters& counters = call.device().last_launch().counters;
  result.counters = {{"best_ms", *std::min_element(result.seconds.begin(), result.seconds.end()) * 1e3},
                     {"warp_instructions", static_cast<double>(counters.warp_instructions)},
                     {"tensor_operations", static_cast<double>(counters.mma + counters.wgmma)}};
  return result;
}

}  // namespace

void add_simulate_cases(std::vector<Case>& cases, Environment& environment) {
  for (const Launch& launch : launches()) {
    Case item;
    item.operation = "simulate";
    item.dtype = "bf16";
    item.shape = launch.shape;
    item.implementations = {"unchecked", "checked"};
    item.run = [&environment, launch](const Case&, const std::vector<std::string>& selected,
                                      const RunOptions& options) {
      const autotune::OpDef& op = environment.registry().find(launch.workload.operation);
      const OpArena arena(environment, op.normalize(launch.workload), launch.length, {});
      std::vector<Result> results;
      for (const std::string& name : selected) results.push_back(measure(arena, launch, name, options.rounds));
      return results;
    };
    cases.push_back(std::move(item));
  }
}

}  // namespace seqtile::bench

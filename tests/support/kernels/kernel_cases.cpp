// tests/support/kernels/kernel_cases.cpp -- see kernel_cases.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <span>

#include "autotune/call/device_mirror.h"
#include "autotune/call_sizes.h"
#include "jit/base/tensor_runs.h"
#include "jit/ir/row_alignment.h"
#include "jit/simulation.h"
#include "seqtile/device.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "tests/support/fakes/emulated_device.h"

namespace seqtile::testing {

using autotune::Config;
using autotune::OpDef;
using autotune::Workload;

namespace {

constexpr int64_t kFullyCheckedRows = 24;
constexpr size_t kConfigsALength = 3;
constexpr size_t kManyKernels = 4;  ///< number of kernels of a case after which further lengths reuse them

Device& test_device() {
  static const std::unique_ptr<Device> device = make_cpu_device(2);
  return *device;
}

std::vector<int64_t> symbols_at(const OpDef& op, const Workload& workload, int64_t length) {
  return autotune::call_symbols(op, workload, op.schema(workload), length);
}

/// The number of parameters of `config` whose value no chosen configuration has.
size_t novelty(const Config& config, const std::vector<Config>& chosen) {
  size_t new_values = 0;
  for (const auto& [name, value] : config.values())
    new_values += std::none_of(chosen.begin(), chosen.end(), [&, &name = name, &value = value](const Config& other) {
      const auto it = other.values().find(name);
      return it != other.values().end() && it->second == value;
    });
  return new_values;
}

/// Compiled kernels by configuration, shared by all lengths; at least three, if the space has as many.
class Runners {
 public:
  Runners(const OpDef& op, const Workload& workload, const Target& target, Backend backend, Device& device,
          size_t many = kManyKernels)
      : op_(op), workload_(workload), target_(target), backend_(backend), device_(device), many_(many) {}
  KernelRunner& get(const Config& config) {
    auto& runner = runners_[config.json()];
    if (!runner) runner = std::make_unique<KernelRunner>(op_, workload_, config, target_, backend_, device_);
    return *runner;
  }
  bool is_empty() const { return runners_.empty(); }
  /// `most` configurations for `length`: the default and different ones. With `many_` compiled kernels: the default and
  /// compiled ones of the length's space, in turn.
  std::vector<Config> configs(int64_t length, size_t most) const {
    if (runners_.size() < many_) return diverse_configs(op_, workload_, length, target_, most);
    const std::vector<Config> space = op_.config_space(workload_, length, target_).enumerate();
    std::vector<Config> chosen = {op_.default_config(workload_, length, target_)};
    for (size_t i = 0; i < space.size() && chosen.size() < most; ++i) {
      const Config& config = space[(i + static_cast<size_t>(length)) % space.size()];
      if (runners_.contains(config.json()) && config != chosen.front()) chosen.push_back(config);
    }
    return chosen;
  }
  void require_several(int64_t length) const {
    const size_t space = op_.config_space(workload_, length, target_).enumerate().size();
    INFO(op_.name << " " << workload_.json() << " " << target_.name << ": " << runners_.size() << " of " << space);
    REQUIRE(runners_.size() >= std::min(kConfigsALength, space));
  }

 private:
  const OpDef& op_;
  const Workload& workload_;
  const Target& target_;
  Backend backend_;
  Device& device_;
  size_t many_;
  std::map<std::string, std::unique_ptr<KernelRunner>> runners_;
};

void check_call(KernelRunner& runner, GuardedCall& call, const std::vector<int64_t>& rows,
                const std::vector<std::vector<double>>& want) {
  call.poison_outputs();
  runner.run(call.problem());
  REQUIRE(call.check(rows, want) == "");
  const auto first = call.output_bytes();
  call.poison_outputs();
  runner.run(call.problem());
  REQUIRE(call.output_bytes() == first);
}

/// Every third length, and the last.
std::vector<int64_t> every_third(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> some;
  for (size_t i = 0; i + 1 < lengths.size(); i += 3) some.push_back(lengths[i]);
  if (!lengths.empty()) some.push_back(lengths.back());
  return some;
}

/// Checks all lengths on the first target. Every other target takes one length in `turns`, and the last.
void check(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths,
           const std::vector<Target>& targets, Backend backend, size_t turns = 1) {
  const OpDef& op = library_op(test_case.operation);
  const Workload workload = normalized(test_case, dtype);
  std::vector<Runners> runners;
  const size_t many = turns == 1 ? SIZE_MAX : kManyKernels;
  for (const Target& target : targets) runners.emplace_back(op, workload, target, backend, test_device(), many);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i];
    GuardedCall call(op, workload, symbols_at(op, workload, length), 17 * static_cast<uint64_t>(length));
    const std::vector<int64_t> rows = call.sample_rows(kFullyCheckedRows);
    const auto want = call.want(rows);
    for (size_t t = 0; t < targets.size(); ++t) {
      const bool is_turn = i % turns == t % turns || i + 1 == lengths.size();
      if (t != 0 && !is_turn) continue;
      // If targets take turns, a length has one or two configurations; the last length has all.
      const size_t configs = turns == 1 || i + 1 == lengths.size() ? kConfigsALength : 1 + i % 2;
      for (const Config& config : runners[t].configs(length, configs)) {
        INFO(op.name << " " << workload.json() << " length " << length << " " << targets[t].name << " "
                     << config.json());
        check_call(runners[t].get(config), call, rows, want);
      }
    }
  }
  for (const Runners& of_target : runners)
    if (!of_target.is_empty()) of_target.require_several(lengths.back());
}

/// Checks on the AArch64 machine, where a launch starts a process: the default, and at three lengths another
/// configuration.
void check_emulated(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths) {
  static const std::unique_ptr<EmulatedDevice> device = make_emulated_device();
  if (!device) return;
  const OpDef& op = library_op(test_case.operation);
  const Workload workload = normalized(test_case, dtype, 1);
  Runners runners(op, workload, device->target(), Backend::compiled, *device);
  for (const int64_t length : lengths) {
    GuardedCall call(op, workload, symbols_at(op, workload, length), 17 * static_cast<uint64_t>(length));
    const std::vector<int64_t> rows = call.sample_rows(kFullyCheckedRows);
    const auto want = call.want(rows);
    const bool has_two = length == 3 || length == 7 || length == 65;
    for (const Config& config : diverse_configs(op, workload, length, device->target(), has_two ? 2 : 1)) {
      INFO(op.name << " " << workload.json() << " length " << length << " AArch64 " << config.json());
      KernelRunner& runner = runners.get(config);
      device->forget_memory();
      for (const auto& memory : call.memory()) device->register_memory(memory->bytes());
      for (const DeviceBuffer& memory : runner.workspaces(call.problem()))
        device->register_memory({static_cast<std::byte*>(memory.data()), memory.bytes()});
      call.poison_outputs();
      runner.run(call.problem());
      REQUIRE(call.check(rows, want) == "");
    }
  }
}

/// Poisons all memory except the elements of inputs, so that a read of unwritten memory is reported.
void poison_all_but_inputs(Device& device, const GuardedCall& call, const autotune::DeviceMirror& mirror) {
  for (size_t i = 0; i < call.memory().size(); ++i) {
    const Tensor& tensor = call.problem().tensors[i];
    const auto bytes = call.memory()[i]->bytes();
    poison_memory(device, mirror.at(bytes.data()), bytes.size());
    if (call.problem().schema->args[i].role == autotune::ArgRole::output) continue;
    for_each_run_bytes(
        tensor, [&](std::span<const std::byte> run) { unpoison_memory(device, mirror.at(run.data()), run.size()); });
  }
}

/// Checks some configurations for the length.
void check_on(Device& device, Runners& runners, GuardedCall& call, const Workload& workload, int64_t length) {
  const OpDef& op = library_op(workload.operation);
  const std::vector<int64_t> rows = call.sample_rows(kFullyCheckedRows);
  const auto want = call.want(rows);
  autotune::DeviceMirror mirror(device);
  for (size_t i = 0; i < call.memory().size(); ++i) {
    const autotune::ArgSpec& arg = call.problem().schema->args[i];
    mirror.add(call.memory()[i]->bytes(), arg.name, arg.holds_addresses);
  }
  autotune::Problem problem = call.problem();
  problem.tensors = mirror.at(call.problem().tensors);
  for (const Config& config : runners.configs(length, kConfigsALength)) {
    INFO(op.name << " " << workload.json() << " length " << length << " " << device.info().name << " "
                 << config.json());
    call.poison_outputs();
    mirror.upload();
    poison_all_but_inputs(device, call, mirror);
    runners.get(config).run(problem);
    mirror.download();
    REQUIRE(call.check(rows, want) == "");
  }
}

}  // namespace

void check_on(Device& device, const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths) {
  const OpDef& op = library_op(test_case.operation);
  const Workload workload = normalized(test_case, dtype, 1);
  Runners runners(op, workload, device.target(), Backend::compiled, device);
  for (const int64_t length : lengths) {
    GuardedCall call(op, workload, symbols_at(op, workload, length), 17 * static_cast<uint64_t>(length), kGpuAlignment);
    check_on(device, runners, call, workload, length);
  }
  if (!lengths.empty()) runners.require_several(lengths.back());
}

void check_call_on(Device& device, GuardedCall& call, const Workload& workload, int64_t length) {
  Runners runners(library_op(workload.operation), workload, device.target(), Backend::compiled, device);
  check_on(device, runners, call, workload, length);
}

void on_simulated_gpus(const std::function<void(Device&)>& work) {
  static const auto devices = [] {
    std::vector<std::unique_ptr<Device>> opened;
    for (const char* name : kSimulatedGpus) opened.push_back(open_device(name, 1));
    return opened;
  }();
  for (const auto& device : devices) work(*device);
}

void check_simulated(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths) {
  on_simulated_gpus([&](Device& device) { check_on(device, test_case, dtype, lengths); });
}

std::unique_ptr<Device> open_gpu() {
  try {
    return open_device("cuda:0", 1);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::driver) throw;
    std::printf("not run: %s\n", error.what());
    return nullptr;
  }
}

const OpDef& library_op(const std::string& name) {
  static const autotune::Registry registry = kernels::make_registry();
  return registry.find(name);
}

Workload normalized(const KernelCase& test_case, DType dtype, int threads) {
  return library_op(test_case.operation).normalize({test_case.operation, dtype, threads, test_case.fields});
}

std::vector<Target> executable_targets() {
  std::vector<Target> targets;
  for (const std::string& name : cpu_target_names())
    if (const Target target = cpu_target(name); is_executable(target)) targets.push_back(target);
  return targets;
}

std::vector<Config> diverse_configs(const OpDef& op, const Workload& workload, int64_t length, const Target& target,
                                    size_t most) {
  const std::vector<Config> space = op.config_space(workload, length, target).enumerate();
  std::vector<Config> chosen = {op.default_config(workload, length, target)};
  while (chosen.size() < most) {
    // Ties are broken by the length, so that a list of lengths sees many configurations.
    const Config* best = nullptr;
    size_t best_novelty = 0;
    for (size_t i = 0; i < space.size(); ++i) {
      const Config& config = space[(i + static_cast<size_t>(length) * 7) % space.size()];
      if (std::ranges::find(chosen, config) != chosen.end()) continue;
      if (const size_t n = novelty(config, chosen); !best || n > best_novelty) best_novelty = n, best = &config;
    }
    if (!best) break;
    chosen.push_back(*best);
  }
  return chosen;
}

std::vector<Config> configs_on(const std::string& device, const Workload& workload) {
  constexpr int64_t kLength = 300;
  const size_t colon = device.find(':');
  const Target target = colon == std::string::npos ? host_target() : gpu_target(device.substr(colon + 1));
  return diverse_configs(library_op(workload.operation), workload, kLength, target, kConfigsALength);
}

void check_interpreted(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths) {
  check(test_case, dtype, lengths, {cpu_target("avx512")}, Backend::interpreter);
}

void check_compiled(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths) {
  if (dtype == DType::f16) return check(test_case, dtype, every_third(lengths), {host_target()}, Backend::compiled, 3);
  check(test_case, dtype, lengths, executable_targets(), Backend::compiled, 3);
  constexpr int64_t kLongestEmulated = 130;  // longer calls take seconds
  std::vector<int64_t> few;
  for (size_t i = 0; i < lengths.size(); i += 2)
    if (lengths[i] <= kLongestEmulated) few.push_back(lengths[i]);
  check_emulated(test_case, dtype, few);
}

void check_compiled_at_all(const KernelCase& test_case, DType dtype, const std::vector<int64_t>& lengths) {
  check(test_case, dtype, lengths, executable_targets(), Backend::compiled);
  check_emulated(test_case, dtype, lengths);
}

}  // namespace seqtile::testing

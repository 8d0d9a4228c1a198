// tools/cli/simulate/simulate.cpp -- `seqtile simulate`: one call of a kernel on a simulated GPU, with all checks.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "autotune/call/verify.h"
#include "jit/simulation.h"
#include "seqtile/compiler.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/ranks/ranks.h"
#include "tools/cli/simulate/ptx_file.h"
#include "tools/cli/simulate/simulate_foreign.h"
#include "tools/cli/simulate/simulation_watch.h"
#include "tools/cli/tune/config_choice.h"

namespace seqtile::cli {
namespace {

struct SimulateOptions : ForeignOptions {
  std::vector<std::string> config;
};

/// The outcome of a call: the machine's reports, or the comparison with the reference.
struct Outcome {
  std::string name, detail;  ///< "ok", "fault", "wrong_result", "oob_write"
  double max_rel_err = 0, seconds = 0;
};

KernelBinary read_ptx(KernelBinary binary, const std::string& path) {
  const std::string text = read_ptx_file(
      "--ptx", path, fmt::format("`seqtile compile OP ... --device {} --emit ptx` prints such a text", binary.target));
  binary.code.assign(reinterpret_cast<const std::byte*>(text.data()),
                     reinterpret_cast<const std::byte*>(text.data()) + text.size());
  return binary;
}

/// Loads a kernel. Errors in the caller's PTX name its file.
std::unique_ptr<LoadedKernel> load(Device& device, KernelBinary binary, const std::string& ptx) {
  try {
    return device.load(std::move(binary));
  } catch (const Error& error) {
    if (ptx.empty()) throw;
    throw Error(error.code(), fmt::format("--ptx {}: {}", ptx, error.what()));
  }
}

Outcome run_call(const autotune::OpDef& op, const autotune::Workload& workload, int64_t length, Device& device,
                 const autotune::LoadedCandidate& candidate) {
  autotune::ReferenceCache references;
  autotune::Checker checker(op, workload, device, length, references);
  const autotune::Probe probe{length, 0};
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome;
  try {
    const SimulationWatch watch([&device] { return simulation_progress(device); });
    const autotune::Verdict verdict =
        checker.check(candidate, {&probe, 1}, false, std::numeric_limits<double>::infinity());
    outcome = {verdict.outcome, verdict.detail, verdict.max_rel_err, 0};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::driver && error.code() != ErrorCode::timeout) throw;
    outcome = {"fault", error.what(), 0, 0};
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

void print_outcome(const Outcome& outcome, const SimulatedLaunch& launch, bool with_counters) {
  if (outcome.name == "ok")
    print_line(fmt::format("  agrees with the reference, largest relative error {:.2g}; no reports; {}",
                           outcome.max_rel_err, format_seconds(outcome.seconds)));
  else if (outcome.name == "fault")
    print_line(fmt::format("  {}, the first of each kind and line:",
                           format_counted(static_cast<int64_t>(launch.num_reports), "report")));
  else print_line(fmt::format("  {}: {}", outcome.name, outcome.detail));
  for (const std::string& report : launch.reports) print_line("  " + report);
  if (!with_counters) return;
  Table table({"  counter", "value"});
  for (const auto& [name, value] : launch.counters) table.add({"  " + name, format_count(static_cast<int64_t>(value))});
  table.print();
}

int run_operation(const Session& session, SimulateOptions options) {
  if (!options.ranks.empty() && options.fabric.empty())
    options.fabric = options.device.empty() ? "sim:sm_80" : options.device;
  // With ranks, set_rank_fields() replaces "cpu" by the fabric's device.
  if (options.device.empty()) options.device = options.ranks.empty() ? "sim:sm_80" : "cpu";
  set_rank_fields(session, options);
  if (options.length.empty()) bad_input("--length is required");
  const autotune::OpDef& op = session.registry.find(options.operation);
  if (!options.device.starts_with("sim"))
    bad_input(fmt::format("--device {}: is not simulated; use sim:sm_80 or sim:sm_90a", options.device));
  const auto device = open_device_of(options, options.threads.empty() ? 0 : host_threads(options));
  const autotune::Workload workload = workload_of(session.registry, options, 1);
  const int64_t length = parse_length("--length", options.length);
  const Target& target = device->target();
  const autotune::Config config = chosen_config(op, workload, length, options.config, target);
  KernelBinary binary = compile(*autotune::build_kernel(op, workload, config, target), target);
  if (!options.ptx.empty()) binary = read_ptx(std::move(binary), options.ptx);
  const std::string symbol = binary.symbol;
  const autotune::LoadedCandidate candidate{
      config, load(*device, std::move(binary), options.ptx), op.grid(workload, config),
      op.workspaces ? op.workspaces(workload, config) : std::vector<autotune::Workspace>{}};

  set_simulation(*device, {.profile = options.profile, .seed = options.seed});
  const Outcome outcome = run_call(op, workload, length, *device, candidate);
  const SimulatedLaunch launch = last_launch(*device);
  print_line(fmt::format("{}, length {}, on {}", symbol, length, options.device));
  print_line("  " + format_fields(config));
  print_outcome(outcome, launch, options.profile);
  if (options.json) {
    Json counters = Json::object();
    for (const auto& [name, value] : launch.counters)
      if (options.profile) counters[name] = value;
    print_json({{"operation", op.name},
                {"symbol", symbol},
                {"device", options.device},
                {"length", length},
                {"config", fields_json(config)},
                {"outcome", outcome.name},
                {"detail", outcome.detail},
                {"max_rel_err", outcome.max_rel_err},
                {"num_reports", launch.num_reports},
                {"reports", launch.reports},
                {"seconds", outcome.seconds},
                {"counters", std::move(counters)}});
  }
  return outcome.name == "ok" ? kDone : kNo;
}

/// Simulates an operation of the registry, or a kernel of a foreign PTX file.
int run(const Session& session, const SimulateOptions& options) {
  if (options.operation.empty()) return run_foreign(options);
  if (const std::string flag = foreign_flag(options); !flag.empty())
    bad_input(fmt::format("{}: belongs to a kernel of a text, which is run without an operation; leave `{}` out, or {}",
                          flag, options.operation, flag));
  return run_operation(session, options);
}

}  // namespace

void add_simulate(CLI::App& app, Session& session) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App& command = add_command(
      app, session, "simulate", "Run one call of a kernel on a simulated GPU, check everything, count what it does",
      "  seqtile simulate rms_norm --set n=576 --dtype bf16 --length 64\n"
      "  seqtile simulate linear --set n=512 --set k=256 --dtype bf16 --length 100 --profile\n"
      "  seqtile compile softmax --set n=100 --length 8 --device sm_80 --emit ptx > softmax.ptx\n"
      "  seqtile simulate softmax --set n=100 --length 8 --ptx softmax.ptx --seed 7\n"
      "  seqtile simulate --ptx add.ptx --entry add_kernel --grid 4 --block 128 --arg f32[1000]=random:1 \\\n"
      "    --arg f32[1000]=random:2 --arg f32[1000] --arg i32=1000 --arg null --arg null",
      options, run);
  add_operation(command, *options);
  command.get_option("operation")->required(false);
  add_key(command, *options);
  command.get_option("--device")
      ->description("sim:sm_80 or sim:sm_90a (default: sim:sm_80, or the target of the PTX of --entry)")
      ->default_str("");
  command.get_option("--threads")->description("Host threads that simulate (default: all cores)");
  add_ranks(command, *options);
  add_length(command, *options);
  add_config(command, options->config);
  command.add_flag("--profile", options->profile, "Count instructions by class, sectors, bytes and bank conflicts");
  command.add_option("--seed", options->seed, "Run warps in a random order of this seed (default: in turn)")
      ->type_name("N")
      ->check(CLI::Validator(
          [](std::string& text) {
            uint32_t seed = 0;
            const char* end = text.data() + text.size();
            const auto result = std::from_chars(text.data(), end, seed);
            const bool is_seed = result.ec == std::errc() && result.ptr == end;
            return is_seed ? std::string() : fmt::format("{}: not a whole number from 0 to {}", text, UINT32_MAX);
          },
          ""));
  command
      .add_option("--ptx", options->ptx,
                  "PTX to execute: instead of the operation's own, for the same configuration, or with --entry")
      ->type_name("FILE");
  add_foreign(command, *options);
}

}  // namespace seqtile::cli

// tools/cli/simulate/simulate_foreign.cpp -- see simulate_foreign.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/simulate/simulate_foreign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "jit/base/nearest_word.h"
#include "jit/sim/exec/machine.h"
#include "seqtile/device.h"
#include "tools/cli/errors.h"
#include "tools/cli/output.h"
#include "tools/cli/parse_number.h"
#include "tools/cli/simulate/foreign_call.h"
#include "tools/cli/simulate/ptx_file.h"
#include "tools/cli/simulate/simulation_watch.h"

namespace seqtile::cli {
namespace {

constexpr int64_t kMaxBlocks = 1 << 24;
constexpr std::string_view kAdvice = "give the PTX of a kernel, for example of nvcc -ptx or Triton's asm[\"ptx\"]";

/// Parses "4", "4,2" or "4,2,1", the value of a flag.
std::array<int, 3> parse_sides(const std::string& flag, const std::string& text, std::array<int64_t, 3> most) {
  std::array<int, 3> sides = {1, 1, 1};
  const char *at = text.data(), *end = at + text.size();
  for (size_t axis = 0; axis < sides.size(); ++axis) {
    const auto [rest, error] = std::from_chars(at, end, sides[axis]);
    const bool is_number = error == std::errc() && sides[axis] >= 1;
    if (!is_number || (rest != end && (*rest != ',' || axis == 2)))
      bad_input(fmt::format("{} {}: X, X,Y or X,Y,Z of whole numbers from 1 on is expected", flag, text));
    if (sides[axis] > most[axis])
      bad_input(
          fmt::format("{} {}: {} along {}, at most {} are possible", flag, text, sides[axis], "xyz"[axis], most[axis]));
    if (rest == end) return sides;
    at = rest + 1;
  }
  return sides;
}

sim::LaunchShape shape_of(const ForeignOptions& options, const sim::Program& program) {
  sim::LaunchShape shape;
  shape.grid = parse_sides("--grid", options.grid, {INT32_MAX, 65535, 65535});
  const int64_t blocks = int64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  if (blocks > kMaxBlocks)
    bad_input(fmt::format("--grid {}: {} blocks, at most {} are simulated; give a part of the grid", options.grid,
                          blocks, kMaxBlocks));
  const bool says_block = program.required_block[0] != 0;
  if (options.block.empty() && !says_block)
    bad_input(fmt::format("--block X,Y,Z is needed: the text does not say how many threads '{}' has", program.kernel));
  const auto block =
      options.block.empty() ? program.required_block : parse_sides("--block", options.block, {1024, 1024, 64});
  shape.threads = block[0], shape.threads_yz = {block[1], block[2]};
  if (!options.cluster.empty()) shape.cluster = parse_sides("--cluster", options.cluster, {16, 16, 16});
  else if (program.required_cluster[0] != 0) shape.cluster = program.required_cluster;
  shape.shared_bytes = options.shared_bytes;
  shape.cooperative = options.is_cooperative;
  return shape;
}

/// The device of --device, or the first that takes the PTX: sim:sm_80 takes targets below sm_89.
std::string device_of(const ForeignOptions& options, const sim::PtxModule& module) {
  const bool is_old = module.target < sim::PtxTarget::sm_89;
  if (options.device.empty()) return is_old ? "sim:sm_80" : "sim:sm_90a";
  if (options.device != "sim:sm_80" && options.device != "sim:sm_90a")
    bad_input(fmt::format("--device {}: is not simulated; use sim:sm_80 or sim:sm_90a", options.device));
  if (options.device == "sim:sm_80" && !is_old)
    bad_input(fmt::format("--device sim:sm_80: the text is for {}; use sim:sm_90a", module.target_name));
  return options.device;
}

void check_shared(const sim::Program& program, const sim::LaunchShape& shape, const std::string& device) {
  const int64_t most = (device == "sim:sm_80" ? 163 : 227) << 10,
                all = program.static_shared_bytes + shape.shared_bytes;
  if (all > most)
    bad_input(
        fmt::format("kernel '{}': its .shared variables of {} bytes and --shared {} are {} bytes, a block of {} has "
                    "{}; declare smaller ones",
                    program.kernel, program.static_shared_bytes, shape.shared_bytes, all, device, most));
  if (!program.dynamic_shared.empty() && shape.shared_bytes == 0)
    warn(fmt::format("kernel '{}' uses dynamic shared memory, {}, which has no bytes here; give them by --shared N",
                     program.kernel, program.dynamic_shared));
}

sim::PtxModule parse(const ForeignOptions& options) {
  try {
    return sim::parse_ptx(read_ptx_file("--ptx", options.ptx, std::string(kAdvice)));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::compile_failed) throw;
    throw Error(error.code(), fmt::format("--ptx {}: {}", options.ptx, error.what()));
  }
}

std::vector<std::string> kernels_of(const sim::PtxModule& module) {
  std::vector<std::string> names;
  for (const sim::PtxKernel& kernel : module.kernels) names.emplace_back(kernel.name);
  return names;
}

std::string names_of(const sim::PtxModule& module) {
  return module.kernels.empty() ? "none" : fmt::format("{}", fmt::join(kernels_of(module), ", "));
}

sim::Program decode(const ForeignOptions& options, const sim::PtxModule& module) {
  if (options.entry.empty())
    bad_input(fmt::format("--entry NAME is needed: the kernels of {} are {}", options.ptx, names_of(module)));
  if (module.find(options.entry) == nullptr)
    bad_input(fmt::format("--entry {}: {} has no such kernel; its kernels are {}{}", options.entry, options.ptx,
                          names_of(module), did_you_mean(options.entry, kernels_of(module))));
  try {
    return sim::decode(module, options.entry);
  } catch (const Error& error) {
    const std::string problem = fmt::format("--ptx {}: {}", options.ptx, error.what());
    if (error.code() == ErrorCode::out_of_resources) bad_input(problem);  // the text asks for too much
    throw Error(error.code(), problem);
  }
}

void print(const ForeignOptions& options, const std::string& device, const ForeignCall& call,
           const sim::LaunchResult& result, double seconds) {
  print_line(fmt::format("{} of {}, grid {}, block {}, on {}", options.entry, options.ptx,
                         fmt::join(call.shape().grid, ","), fmt::join(call.block(), ","), device));
  for (const std::string& line : result.printed) print_text("  printed: " + line + (line.ends_with('\n') ? "" : "\n"));
  if (result.num_printed > result.printed.size())
    print_line("  printed: " + format_counted(result.num_printed - result.printed.size(), "more line"));
  for (const std::string& line : call.describe_buffers()) print_line("  " + line);
  if (result.ok()) print_line(fmt::format("  no reports; {}", format_seconds(seconds)));
  else
    print_line(fmt::format("  {}, the first of each kind and line; {}:",
                           format_counted(static_cast<int64_t>(result.num_reports), "report"),
                           format_seconds(seconds)));
  for (const sim::Report& report : result.reports) print_line("  " + report.message);
  for (const std::string& line : call.differences()) print_line("  " + line);
  if (!options.profile) return;
  Table table({"  counter", "value"});
  for (const auto& [name, value] : result.counters.named())
    table.add({"  " + name, format_count(static_cast<int64_t>(value))});
  table.print();
}

Json json_of(const ForeignOptions& options, const std::string& device, const ForeignCall& call,
             const sim::LaunchResult& result, double seconds) {
  Json counters = Json::object(), reports = Json::array(), arguments = Json::array();
  for (const auto& [name, value] : result.counters.named())
    if (options.profile) counters[name] = value;
  for (const sim::Report& report : result.reports) reports.push_back(report.message);
  for (const std::string& line : call.describe_buffers()) arguments.push_back(line);
  return {{"file", options.ptx},
          {"entry", options.entry},
          {"device", device},
          {"grid", call.shape().grid},
          {"block", call.block()},
          {"outcome", !result.ok()                 ? "fault"
                      : call.differences().empty() ? "ok"
                                                   : "wrong_result"},
          {"num_reports", result.num_reports},
          {"reports", std::move(reports)},
          {"buffers", std::move(arguments)},
          {"differences", call.differences()},
          {"num_printed", result.num_printed},
          {"printed", result.printed},
          {"seconds", seconds},
          {"counters", std::move(counters)}};
}

/// CLI::NonNegativeNumber accepts NaN, and prints its range with 300 digits.
CLI::Validator at_least_zero() {
  const auto complaint = [](const std::string& text) {
    double number = 0;
    const bool is_good = parse_number(text, number) && number >= 0 && std::isfinite(number);
    if (text.empty()) return std::string();  // refused as empty
    return is_good ? std::string() : text + ": a finite number from 0 on is wanted, for example 1e-3";
  };
  return {complaint, ""};
}

}  // namespace

std::string foreign_flag(const ForeignOptions& options) {
  if (!options.entry.empty()) return "--entry";
  if (!options.grid.empty()) return "--grid";
  if (!options.block.empty()) return "--block";
  if (!options.cluster.empty()) return "--cluster";
  if (!options.arguments.empty()) return "--arg";
  if (!options.dumps.empty()) return "--dump";
  if (!options.expectations.empty()) return "--expect";
  return options.shared_bytes != 0 ? "--shared" : options.is_cooperative ? "--cooperative" : "";
}

int run_foreign(const ForeignOptions& options) {
  if (options.ptx.empty())
    bad_input("an operation is needed, or --ptx FILE with --entry NAME; see seqtile simulate --help");
  if (!options.length.empty() || !options.set.empty() || !options.dtype.empty())
    bad_input("--set, --dtype and --length belong to an operation; a kernel of a text takes --grid, --block and --arg");
  const sim::PtxModule module = parse(options);
  const sim::Program program = decode(options, module);
  if (options.grid.empty()) bad_input("--grid X,Y,Z is needed: the number of blocks of the launch");
  const std::string device = device_of(options, module);
  const sim::LaunchShape shape = shape_of(options, program);
  check_shared(program, shape, device);
  ForeignCall call(program, shape, options);
  const auto executor = make_executor(options.threads.empty() ? host_threads(options) : one_thread_count(options));
  sim::Options how;
  how.executor = executor.get(), how.profile = options.profile, how.seed = options.seed;
  how.instruction_limit = options.max_instructions;
  const auto start = std::chrono::steady_clock::now();
  const sim::LaunchResult result = [&] {
    const SimulationWatch watch([&] {
      const sim::LaunchProgress& now = call.machine().progress();
      return SimulationProgress{now.is_running, now.ctas, now.ctas_done, now.warp_instructions};
    });
    return call.machine().launch(program, shape, call.parameters(), how);
  }();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  call.finish();
  print(options, device, call, result, seconds);
  if (options.json) print_json(json_of(options, device, call, result, seconds));
  return result.ok() && call.differences().empty() ? kDone : kNo;
}

void add_foreign(CLI::App& command, ForeignOptions& options) {
  const auto repeated = [&](const char* flag, std::vector<std::string>& into, const char* what, const char* type) {
    return command.add_option(flag, into, what)
        ->type_name(type)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  command.add_option("--entry", options.entry, "Run this kernel of --ptx, without an operation")->type_name("NAME");
  command.add_option("--grid", options.grid, "Blocks of the launch")->type_name("X[,Y[,Z]]");
  command.add_option("--block", options.block, "Threads of a block (default: the text's .reqntid)")
      ->type_name("X[,Y[,Z]]");
  command.add_option("--cluster", options.cluster, "Blocks of a cluster (default: the text's)")->type_name("X[,Y[,Z]]");
  command.add_option("--shared", options.shared_bytes, "Bytes of dynamic shared memory")
      ->type_name("BYTES")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command.add_flag("--cooperative", options.is_cooperative, "All blocks of the grid run together");
  repeated("--arg", options.arguments,
           "The kernel's parameters in turn: f32[1024] (unwritten), f32[1024]=zeros, =random:7, =iota, =1.5, =@FILE; "
           "i32=1000, null, same=0, raw=HEX",
           "ARG");
  repeated("--dump", options.dumps, "Write the bytes of argument N (from 0) after the run", "N=FILE");
  CLI::Option* expect =
      repeated("--expect", options.expectations, "Compare argument N with the bytes of a file", "N=FILE");
  command
      .add_option("--tolerance", options.tolerance,
                  "For --expect: largest |difference| / max(1, |expected|) (default: by the type)")
      ->type_name("X")
      ->check(at_least_zero())
      ->needs(expect);
  command
      .add_option("--max-instructions", options.max_instructions,
                  "Limit of warp instructions for one block, cluster or cooperative grid")
      ->type_name("N")
      ->check(at_least_one());
}

}  // namespace seqtile::cli

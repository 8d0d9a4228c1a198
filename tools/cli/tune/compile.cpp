// tools/cli/tune/compile.cpp -- `seqtile compile`: compiles one kernel and shows any stage.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "jit/base/env.h"
#include "jit/base/nearest_word.h"
#include "seqtile/compiler.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/ranks/ranks.h"
#include "tools/cli/tune/config_choice.h"

namespace seqtile::cli {
namespace {

struct CompileOptions : Options {
  std::string emit, output;
  int repeat = 0;
  std::vector<std::string> config;
};

/// A target by name. Its code need not execute on this machine.
Target named_target(const std::string& flag, const std::string& name) {
  if (name.starts_with("sm_")) return gpu_target(name);
  const Target target = cpu_target(name);
  if (!can_compile_for(target))
    throw Error(ErrorCode::unsupported,
                fmt::format("{} {}: the LLVM of this build generates no code for it; use a build with LLVM's shared "
                            "library",
                            flag, name));
  // The target of this machine has its cache sizes.
  return is_executable(target) && target.name == host_target().name ? host_target() : target;
}

/// The target that --device names, or the target of that device. `cpu` means this machine, or SEQTILE_CPU_TARGET.
Target compile_target(const Options& options) {
  const auto names = cpu_target_names();
  const auto is_cpu_target = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
  const auto variable = env::cpu_target();
  if (options.device == "cpu" && !variable) return host_target();
  if (options.device == "cpu" && !is_cpu_target(*variable))
    bad_input(fmt::format("SEQTILE_CPU_TARGET {}: unknown; the targets are {}{}", *variable, fmt::join(names, ", "),
                          did_you_mean(*variable, names)));
  if (options.device == "cpu") return named_target("SEQTILE_CPU_TARGET", *variable);
  if (options.device.starts_with("sm_") || is_cpu_target(options.device))
    return named_target("--device", options.device);
  try {
    return open_device_of(options, 1)->target();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    std::vector<std::string_view> targets(names.begin(), names.end());
    targets.insert(targets.end(), {"sm_80", "sm_90a"});
    const std::string reason = error.what();
    const bool is_asked = reason.ends_with('?');  // whether a device was meant
    bad_input(fmt::format("{}; code alone is also made for the targets {}{}", reason, fmt::join(targets, ", "),
                          is_asked ? "" : did_you_mean(options.device, targets)));
  }
}

/// Sets the fields of ranks. A fabric of GPUs gives the target, and a GPU's target alone gives the fabric.
void set_rank_fields_of_target(const Session& session, Options& options) {
  const bool names_fabric = options.fabric.empty() && !options.ranks.empty() && options.device.starts_with("sm_");
  if (names_fabric) options.fabric = "sim:" + options.device;
  const size_t colon = options.fabric.find(':');
  if (options.device == "cpu" && colon != std::string::npos) options.device = options.fabric.substr(colon + 1);
  name_rank_fields(session, options);
}

bool is_for_stdout(const CompileOptions& options) {
  return options.output.empty() || is_standard_output(options.output);
}

/// Refuses a stage that the target does not have, a cubin on a terminal, and a file that cannot be written.
void check_emit(const CompileOptions& options, const Target& target) {
  const bool is_of_gpus = options.emit == "ptx" || options.emit == "cubin", is_of_cpus = options.emit == "asm";
  if (target.is_gpu() ? is_of_cpus : is_of_gpus)
    bad_input(fmt::format("--emit {}: compiling for {} has no such stage; there are tile, ll{}", options.emit,
                          target.name, target.is_gpu() ? ", ptx and cubin" : " and asm"));
  const bool is_shown = options.output.empty() || isatty(STDOUT_FILENO) == 1 || options.json;
  if (options.emit == "cubin" && is_for_stdout(options) && is_shown)
    bad_input("--emit cubin: a cubin is not text; name a file for it with --output, or - for a pipe without --json");
  if (options.emit.empty() && !options.output.empty()) bad_input("--output: give the stage of the file with --emit");
  if (!is_for_stdout(options)) check_can_write("--output", options.output);
}

/// The target with its assembler, if the answer has the cubin or the resources that ptxas prints.
Target with_cubin(const CompileOptions& options, const Target& target) {
  const bool is_text_only = !options.emit.empty() && options.emit != "cubin" && is_for_stdout(options) && !options.json;
  if (!target.is_gpu() || is_text_only) return target;
  Target with = assembled(target);
  if (options.emit == "cubin" && with.cubin_arch.empty())
    throw Error(ErrorCode::unsupported,
                env::ptxas_program() == "none"
                    ? "--emit cubin: SEQTILE_PTXAS=none rules out ptxas; unset it, or use --emit ptx"
                    : "--emit cubin: no ptxas that works in SEQTILE_PTXAS, CUDA_HOME, CUDA_PATH, PATH or "
                      "/usr/local/cuda/bin; install a CUDA toolkit, or use --emit ptx");
  return with;
}

void write_stage(const CompileOptions& options, std::string_view text) {
  if (options.emit == "cubin" && is_for_stdout(options)) return print_text(text);
  if (is_for_stdout(options)) return print_text(fmt::format("{}{}", text, text.ends_with('\n') ? "" : "\n"));
  write_file("--output", options.output, text);
}

void print_summary(const KernelBinary& binary, const Target& target, const autotune::Config& config, double ms) {
  print_line(binary.symbol);
  const std::string size = format_bytes(static_cast<double>(binary.code.size()));
  if (!target.is_gpu()) {
    print_line(fmt::format("  target {}, {} of code, {} of scratch a program, compiled in {:.1f} ms", binary.target,
                           size, format_bytes(static_cast<double>(binary.arena_bytes)), ms));
  } else {
    print_line(fmt::format("  target {}, {} of {}, {} threads and {} of shared memory a program, compiled in {:.1f} ms",
                           binary.target, size, binary.stage == "cubin" ? "cubin" : "PTX", binary.gpu.threads,
                           format_bytes(binary.gpu.shared_bytes), ms));
  }
  if (const auto& use = binary.resources) {
    print_line(fmt::format("  {} registers a thread, spills {} B stored and {} B loaded, stack {} B ({} for {})",
                           use->registers, use->spill_store_bytes, use->spill_load_bytes, use->stack_bytes,
                           target.ptxas, target.cubin_arch));
    for (const std::string& warning : use->warnings) print_line("  ptxas: " + warning);
  }
  if (!binary.gpu.loop.empty()) print_line("  loop of products: " + binary.gpu.loop);
  print_line("  " + format_fields(config));
}

Json summary_json(const std::string& operation, const KernelBinary& binary, const autotune::Config& config, double ms) {
  Json json{{"operation", operation},           {"symbol", binary.symbol},
            {"target", binary.target},          {"stage", binary.stage},
            {"code_bytes", binary.code.size()}, {"arena_bytes", binary.arena_bytes},
            {"threads", binary.gpu.threads},    {"shared_bytes", binary.gpu.shared_bytes},
            {"loop", binary.gpu.loop},          {"compile_ms", ms},
            {"config", fields_json(config)}};
  if (const auto& use = binary.resources) {
    json["registers"] = use->registers;
    json["spill_store_bytes"] = use->spill_store_bytes;
    json["spill_load_bytes"] = use->spill_load_bytes;
    json["stack_bytes"] = use->stack_bytes;
    json["static_shared_bytes"] = use->shared_bytes;
    json["ptxas_warnings"] = use->warnings;
  }
  return json;
}

/// Processor time of this process and of the child processes that have ended.
double processor_ms() {
  double ms = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage = {};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) ms += 1e3 * time.tv_sec + 1e-3 * time.tv_usec;
  }
  return ms;
}

/// Adds the median times of `repeat` further compilations to PTX, and also to a cubin if the target has one.
void time_again(const ir::Function& function, const Target& target, int repeat, Json& json) {
  const auto time = [&](const std::string& stage, const Target& wanted) {
    std::vector<double> wall, processor;
    for (int i = 0; i < repeat; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const double before = processor_ms();
      compile(function, wanted);
      wall.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
      processor.push_back(processor_ms() - before);
    }
    const auto median = [](std::vector<double> times) {
      std::sort(times.begin(), times.end());
      return times[times.size() / 2];
    };
    json["repeat"][stage] = {{"ms", median(wall)}, {"processor_ms", median(processor)}};
  };
  Target without = target;
  without.cubin_arch.clear();
  time(target.is_gpu() ? "ptx" : "blob", without);
  if (!target.cubin_arch.empty()) time("cubin", target);
}

int run(const Session& session, const CompileOptions& given) {
  CompileOptions options = given;
  set_rank_fields_of_target(session, options);
  const autotune::OpDef& op = session.registry.find(options.operation);
  const int threads = host_threads(options);
  const int64_t length = parse_length("--length", options.length);
  const Target wanted = compile_target(options);
  const autotune::Workload workload = workload_of(session.registry, options, wanted.is_gpu() ? 1 : threads);
  check_emit(options, wanted);
  const Target target = with_cubin(options, wanted);
  const autotune::Config config = chosen_config(op, workload, length, options.config, target);
  const auto function = autotune::build_kernel(op, workload, config, target);

  const auto start = std::chrono::steady_clock::now();
  const KernelBinary binary = compile(*function, target, [&](std::string_view stage, std::string_view text) {
    if (stage == options.emit) write_stage(options, text);
  });
  if (options.emit == "cubin" && binary.stage != "cubin")
    throw Error(ErrorCode::unsupported, fmt::format("--emit cubin: {} does not know {}; install a newer CUDA toolkit",
                                                    target.ptxas, target.cubin_arch));
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (options.emit.empty() || !is_for_stdout(options)) print_summary(binary, target, config, ms);
  Json json = summary_json(op.name, binary, config, ms);
  if (options.repeat > 0) time_again(*function, target, options.repeat, json);
  if (options.json) print_json(json);
  return kDone;
}

}  // namespace

void add_compile(CLI::App& app, Session& session) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App& command =
      add_command(app, session, "compile", "Compile one kernel and show a stage of it",
                  "  seqtile compile linear --set n=4096 --set k=4096 --length 512 --dtype f32 --emit tile\n"
                  "  seqtile compile linear --set n=4096 --set k=4096 --length 512 --emit asm | less\n"
                  "  seqtile compile rms_norm --set n=576 --length 64 --device neon --emit ll\n"
                  "  seqtile compile rms_norm --set n=576 --length 64 --dtype bf16 --device sm_80 --emit ptx\n"
                  "  seqtile compile rms_norm --set n=576 --length 64 --device sm_90a --emit cubin -o rms_norm.cubin",
                  options, run);
  add_operation(command, *options);
  add_key(command, *options);
  command.get_option("--device")
      ->description("Target of the code: a device, or by name a CPU's instruction set or a GPU (neon, sm_80, sm_90a)");
  add_ranks(command, *options);
  add_length(command, *options);
  command.get_option("--length")->required();
  command.add_option("--emit", options->emit, "tile (tile IR), ll (LLVM IR), asm (assembly); for GPUs ptx or cubin")
      ->check(CLI::IsMember({"tile", "ll", "asm", "ptx", "cubin"}));
  command
      .add_option("-o,--output", options->output,
                  "Write the stage of --emit to a file and print the kernel's resources; - is standard output")
      ->type_name("FILE");
  command
      .add_option("--repeat", options->repeat,
                  "With --json: also the median times of N more compilations in this process")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  add_config(command, options->config);
}

}  // namespace seqtile::cli

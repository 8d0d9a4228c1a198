// tools/cli/compile.cpp -- `seqtile compile`: one kernel through the compiler, every stage to be seen.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "jit/compiler.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

struct CompileOptions : Options {
  std::string emit;
  std::vector<std::string> config;
};

autotune::Config config_of(const autotune::OpDef& op, const autotune::Workload& workload, int64_t length,
                           const CompileOptions& options, const Target& target) {
  autotune::Config config = op.default_config(workload, length, target);
  const autotune::Fields given = parse_fields("--config", options.config);
  if (given.values().empty()) return config;
  for (const auto& [name, value] : given.values()) config.set(name, value);
  // A configuration of another form of the kernel has other parameters, so the text may also be complete by itself.
  const autotune::ConfigSpace space = op.config_space(workload, length, target);
  const auto refusal = space.refusal(config);
  if (!refusal) return config;
  if (!space.refusal(given)) return given;
  bad_input(fmt::format("--config {}: {}", format_fields(given), *refusal));
}

int run(const Session& session, const CompileOptions& options) {
  const autotune::OpDef& op = session.registry.find(options.operation);
  const autotune::Workload workload = workload_of(session.registry, options, one_thread_count(options));
  const int64_t length = parse_length("--length", options.length);
  const Target& target = host_target();
  const autotune::Config config = config_of(op, workload, length, options, target);
  const auto function = autotune::build_kernel(op, workload, config, target);

  const auto start = std::chrono::steady_clock::now();
  const KernelBinary binary = compile(*function, target, [&](std::string_view stage, std::string_view text) {
    if (stage == options.emit) fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
  });
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (options.emit.empty())
    print_line(fmt::format("{}\n  target {}, {} of code, {} of scratch a program, compiled in {:.1f} ms\n  {}",
                           binary.symbol, binary.target, format_bytes(binary.code.size()),
                           format_bytes(binary.arena_bytes), ms, format_fields(config)));
  if (options.json)
    print_json({{"operation", op.name},
                {"symbol", binary.symbol},
                {"target", binary.target},
                {"stage", binary.stage},
                {"code_bytes", binary.code.size()},
                {"arena_bytes", binary.arena_bytes},
                {"compile_ms", ms},
                {"config", fields_json(config)}});
  return kDone;
}

}  // namespace

void add_compile(CLI::App& app, Session& session) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App& command =
      add_command(app, session, "compile", "Compile one kernel and show a stage of it",
                  "  seqtile compile linear --set n=4096 --set k=4096 --length 512 --dtype f32 --emit tile\n"
                  "  seqtile compile linear --set n=4096 --set k=4096 --length 512 --emit asm | less\n"
                  "  SEQTILE_CPU_TARGET=neon seqtile compile rms_norm --set n=576 --length 64 --emit ll",
                  options, run);
  add_operation(command, *options);
  add_key(command, *options);
  add_length(command, *options);
  command.get_option("--length")->required();
  command.add_option("--emit", options->emit, "tile (tile IR), ll (LLVM IR) or asm (assembly)")
      ->check(CLI::IsMember({"tile", "ll", "asm"}));
  command
      .add_option("--config", options->config, "A parameter of the configuration (default: the operation's default)")
      ->type_name("KEY=VALUE");
}

}  // namespace seqtile::cli

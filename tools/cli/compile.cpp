// tools/cli/compile.cpp -- `seqtile compile`: one kernel through the compiler, every stage to be seen.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "jit/base/env.h"
#include "jit/compiler.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

struct CompileOptions : Options {
  std::string emit;
  std::vector<std::string> config;
};

std::string text_of(const autotune::FieldValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

/// Refuses a parameter or a value that no configuration has.
void refuse_values(const autotune::Config& given, const std::vector<autotune::Config>& space) {
  std::map<std::string, std::set<autotune::FieldValue>> known;
  for (const autotune::Config& config : space)
    for (const auto& [name, value] : config.values()) known[name].insert(value);
  const auto list = [](const auto& items, auto text) {
    std::string all;
    for (const auto& item : items) all += (all.empty() ? "" : ", ") + text(item);
    return all;
  };
  for (const auto& [name, value] : given.values()) {
    const auto values = known.find(name);
    if (values == known.end())
      bad_input(fmt::format("--config {}={}: there is no such parameter; there are {}", name, text_of(value),
                            list(known, [](const auto& item) { return item.first; })));
    if (!values->second.contains(value))
      bad_input(fmt::format("--config {}={}: no configuration of this length has this value; {} can be {}", name,
                            text_of(value), name, list(values->second, text_of)));
  }
}

/// The next step for values that exist, but not together with the default's others.
std::string whole_example(const autotune::Config& given, const autotune::Config& wanted,
                          const std::vector<autotune::Config>& space) {
  const auto shared = [](const autotune::Config& a, const autotune::Config& b) {
    return std::count_if(a.values().begin(), a.values().end(), [&](const auto& item) {
      const auto other = b.values().find(item.first);
      return other != b.values().end() && other->second == item.second;
    });
  };
  const autotune::Config* nearest = nullptr;
  for (const autotune::Config& config : space)
    if (shared(given, config) == static_cast<int64_t>(given.values().size()) &&
        (!nearest || shared(wanted, config) > shared(wanted, *nearest)))
      nearest = &config;
  if (!nearest) return "no configuration has these values together";
  std::string text = "give all of one, for example";
  for (const auto& [name, value] : nearest->values()) text += fmt::format(" --config {}={}", name, text_of(value));
  return text;
}

autotune::Config config_of(const autotune::OpDef& op, const autotune::Workload& workload, int64_t length,
                           const CompileOptions& options, const Target& target) {
  autotune::Config config = op.default_config(workload, length, target);
  const autotune::Fields given = parse_fields("--config", options.config);
  if (given.values().empty()) return config;
  for (const auto& [name, value] : given.values()) config.set(name, value);
  // A configuration of another form of the kernel has other parameters, so the text may also be complete by itself.
  const autotune::ConfigSpace space = op.config_space(workload, length, target);
  if (!space.refusal(config)) return config;
  if (!space.refusal(given)) return given;
  refuse_values(given, space.enumerate());
  bad_input(fmt::format("--config {}: does not go with the default's other values; {}", format_fields(given),
                        whole_example(given, config, space.enumerate())));
}

/// That of SEQTILE_CPU_TARGET, or of this machine, whether it executes here or not.
Target compile_target() {
  const auto name = env::cpu_target();
  if (!name) return host_target();
  const Target target = cpu_target(*name);
  if (!can_compile_for(target))
    throw Error(ErrorCode::unsupported,
                fmt::format("SEQTILE_CPU_TARGET={}: the LLVM of this build generates no code for it; use a build with "
                            "LLVM's shared library",
                            *name));
  return is_executable(target) ? host_target() : target;  // the host's has this machine's cache sizes
}

int run(const Session& session, const CompileOptions& options) {
  const autotune::OpDef& op = session.registry.find(options.operation);
  const autotune::Workload workload = workload_of(session.registry, options, one_thread_count(options));
  const int64_t length = parse_length("--length", options.length);
  if (options.device != "cpu") open_device_of(options, 1);  // refuses it: only the CPU has a target here
  const Target target = compile_target();
  const autotune::Config config = config_of(op, workload, length, options, target);
  const auto function = autotune::build_kernel(op, workload, config, target);

  const auto start = std::chrono::steady_clock::now();
  const KernelBinary binary = compile(*function, target, [&](std::string_view stage, std::string_view text) {
    if (stage == options.emit) print_text(fmt::format("{}{}", text, text.ends_with('\n') ? "" : "\n"));
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

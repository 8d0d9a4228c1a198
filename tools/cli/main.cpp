// tools/cli/main.cpp -- the program `seqtile`: a list of commands and the way errors leave it.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "autotune/runner.h"
#include "jit/compiler.h"
#include "kernels/registry.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 the answer is no, 2 bad usage or input, 3 the machine, 130 interrupted.\n"
    "`seqtile COMMAND --help` shows flags and examples.";

void report(const Session& session, ErrorCode code, const std::string& message) {
  warn(message);
  if (session.json) print_json({{"error", {{"code", std::string(error_code_name(code))}, {"message", message}}}});
}

int report_usage(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  std::string chosen;
  for (const CLI::App* command : app.get_subcommands()) chosen += command->get_name() + " ";
  warn(fmt::format("{}; see `seqtile {}--help`", error.what(), chosen));
  return kBadInput;
}

int run(int argc, char** argv, const autotune::Registry& registry) {
  Session session{registry, argv[0]};
  CLI::App app{"Tile kernels, compiled by LLVM, tuned once per bucket of sequence lengths", "seqtile"};
  app.set_version_flag("--version", std::string(toolchain_version()));
  app.require_subcommand(1);
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  for (auto* add : {add_devices, add_prewarm, add_tune, add_prove, add_replay, add_report, add_explain, add_cache,
                    add_compile, add_bench})
    add(app, session);
  try {
    app.parse(argc, argv);
    return session.exit_code;
  } catch (const CLI::ParseError& error) {
    return report_usage(app, error);
  } catch (const Error& error) {
    report(session, error.code(), error.what());
    return exit_code_of(error.code());
  } catch (const std::bad_alloc&) {
    report(session, ErrorCode::out_of_resources, "out of memory; use shorter lengths or fewer threads");
    return kMachine;
  } catch (const std::exception& error) {
    report(session, ErrorCode::internal, fmt::format("unexpected: {}", error.what()));
    return kNo;
  }
}

}  // namespace
}  // namespace seqtile::cli

int main(int argc, char** argv) {
  const seqtile::autotune::Registry registry = seqtile::kernels::make_registry();
  int exit_code = 0;
  if (seqtile::autotune::run_worker(argc, argv, registry, exit_code)) return exit_code;
  seqtile::cli::install_interrupt_handler();
  return seqtile::cli::run(argc, argv, registry);
}

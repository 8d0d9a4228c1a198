// tools/cli/command.h -- one function for each command, which adds it to the program; its body runs if it is chosen.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "seqtile/op.h"
#include "tools/cli/errors.h"
#include "tools/cli/file_conflicts.h"
#include "tools/cli/options.h"

namespace seqtile::cli {

/// The input of a command and its result.
struct Session {
  const autotune::Registry& registry;
  std::string program;  ///< path of this executable
  int exit_code = kDone;
  bool json = false;  ///< --json of the chosen command; errors are then JSON too
};

void add_devices(CLI::App& app, Session& session);
void add_prewarm(CLI::App& app, Session& session);
void add_tune(CLI::App& app, Session& session);
void add_prove(CLI::App& app, Session& session);
void add_replay(CLI::App& app, Session& session);
void add_report(CLI::App& app, Session& session);
void add_explain(CLI::App& app, Session& session);
void add_cache(CLI::App& app, Session& session);
void add_operations(CLI::App& app, Session& session);
void add_compile(CLI::App& app, Session& session);
void add_simulate(CLI::App& app, Session& session);
void add_timeline(CLI::App& app, Session& session);
void add_plan(CLI::App& app, Session& session);
void add_bench(CLI::App& app, Session& session);
void add_help_commands(CLI::App& app, Session& session);  ///< hidden commands: completion and man

/// Adds a subcommand with its own options object. `run` returns the exit code; --help shows `examples`.
template <class CommandOptions>
CLI::App& add_command(CLI::App& parent, Session& session, const char* name, const char* summary, const char* examples,
                      std::shared_ptr<CommandOptions> options, int (*run)(const Session&, const CommandOptions&)) {
  CLI::App& command = *parent.add_subcommand(name, summary);
  command.footer(std::string("Examples:\n") + examples);
  command.callback([options, run, &session, &command] {
    session.json = options->json;
    refuse_file_conflicts(command);
    session.exit_code = run(session, *options);
  });
  add_json(command, *options);
  return command;
}

}  // namespace seqtile::cli

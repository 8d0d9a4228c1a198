// tools/cli/help/help.cpp -- `seqtile completion` and `seqtile man`, which --help does not show.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "tools/cli/command.h"
#include "tools/cli/help/completion.h"
#include "tools/cli/help/man_page.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

struct HelpOptions : Options {
  const CLI::App* app = nullptr;  ///< the whole program; outlives the command
  std::string shell, folder;
  std::vector<std::string> command;
};

int run_completion(const Session& session, const HelpOptions& options) {
  std::vector<std::string> operations;
  for (const auto& op : session.registry.ops()) operations.push_back(op->name);
  const auto table = command_table(*options.app);
  print_text(options.shell == "bash" ? bash_completion(table, operations) : zsh_completion(table, operations));
  return kDone;
}

int run_man(const Session&, const HelpOptions& options) {
  const auto table = command_table(*options.app);
  if (options.folder.empty()) {
    const std::string path = fmt::format("{}", fmt::join(options.command, " "));
    const auto found = std::ranges::find(table, path, &CommandEntry::path);
    if (found == table.end()) bad_input(fmt::format("there is no command {}; see `seqtile --help`", path));
    print_text(man_page(*found, table));
    return kDone;
  }
  if (!options.command.empty()) bad_input("--output: takes the pages of all commands; leave the command out");
  if (std::error_code error; !std::filesystem::is_directory(options.folder, error))
    bad_input(fmt::format("--output {}: is no folder; make it first", options.folder));
  for (const CommandEntry& command : table)
    write_file("--output", options.folder + "/" + page_name(command) + ".1", man_page(command, table));
  return kDone;
}

}  // namespace

void add_help_commands(CLI::App& app, Session& session) {
  const auto options = std::make_shared<HelpOptions>();
  options->app = &app;
  CLI::App& completion = add_command(app, session, "completion", "Print a script that completes words in a shell",
                                     "  seqtile completion bash > ~/.local/share/bash-completion/completions/seqtile\n"
                                     "  seqtile completion zsh > ~/.zsh/functions/_seqtile",
                                     options, run_completion);
  completion.add_option("shell", options->shell, "The shell")->required()->check(CLI::IsMember({"bash", "zsh"}));
  CLI::App& man = add_command(app, session, "man", "Print a command's page for man(1)",
                              "  seqtile man cache rm | man -l -\n"
                              "  seqtile man -o /usr/local/share/man/man1",
                              options, run_man);
  man.add_option("command", options->command, "A command; without one, the page of the program");
  man.add_option("-o,--output", options->folder, "Write the pages of all commands into this folder")->type_name("DIR");
  for (CLI::App* command : {&completion, &man}) command->group("");
}

}  // namespace seqtile::cli

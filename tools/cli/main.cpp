// tools/cli/main.cpp -- the program `seqtile`: its list of commands, and its handling of errors.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <vector>

#include "jit/base/log.h"
#include "jit/base/nearest_word.h"
#include "seqtile/compiler.h"
#include "seqtile/operations.h"
#include "seqtile/tuner.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 the answer is no, 2 bad usage or input, 3 the machine, 70 a bug of this program,\n"
    "130 or 143 interrupted.\n"
    "`seqtile COMMAND --help` shows flags and examples.";

void report(const Session& session, ErrorCode code, const std::string& message) {
  warn(message);
  if (session.json) print_json({{"error", {{"code", std::string(error_code_name(code))}, {"message", message}}}});
}

void add_commands(CLI::App& app, Session& session) {
  struct Group {
    const char* name;
    std::vector<void (*)(CLI::App&, Session&)> add;
  };
  for (const Group& group :
       {Group{"Tune", {add_prewarm, add_tune, add_prove}}, Group{"Serve", {add_replay, add_report, add_explain}},
        Group{"Look", {add_cache, add_devices, add_operations, add_compile, add_simulate, add_timeline}},
        Group{"Plan", {add_plan}}, Group{"Bench", {add_bench}}}) {
    const size_t before = app.get_subcommands({}).size();
    for (const auto add : group.add) add(app, session);
    const std::vector<CLI::App*> all = app.get_subcommands({});
    for (size_t i = before; i < all.size(); ++i) all[i]->group(group.name);
  }
}

/// Makes options strict. An empty value usually comes from an unset shell variable and does not mean the default, a
/// flag takes no value ("--dry-run=0" is not read as "no"), and an option that may be repeated takes one value each
/// time.
void make_strict(CLI::App& app) {
  const CLI::Validator not_empty(
      [](std::string& text) { return std::string(text.empty() ? "the value is empty; give one or leave it out" : ""); },
      "");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) option->disable_flag_override();
    else option->check(not_empty);
    if (!option->get_positional()) option->allow_extra_args(false);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) make_strict(*command);
}

std::vector<std::string> subcommand_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* known : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(known->get_name());
  return names;
}

/// The long names of options that --help shows, without dashes.
std::vector<std::string_view> option_names(const CLI::App& command) {
  std::vector<std::string_view> names;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty())
      names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  return names;
}

/// The members of a set as CLI11 writes them: "a,b,c".
std::vector<std::string_view> words_of(std::string_view set) {
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin <= set.size();) {
    const size_t end = std::min(set.find(',', begin), set.size());
    words.push_back(set.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// The error for a word that `command` does not know.
std::string unknown_word(const CLI::App& command, const std::string& word) {
  if (word.starts_with("-")) {
    const std::string flag = word.substr(0, word.find('='));
    const size_t dashes = std::min(flag.find_first_not_of('-'), flag.size());
    const std::string_view nearest = nearest_word(std::string_view(flag).substr(dashes), option_names(command));
    return "there is no option " + flag + (nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest));
  }
  const std::vector<std::string> names = subcommand_names(command);
  return names.empty() ? "'" + word + "' is one word too many"
                       : fmt::format("there is no command {}; there are {}{}", word, fmt::join(names, ", "),
                                     did_you_mean(word, names));
}

/// The error for an option that was repeated or has no value, with the correction.
std::string wrong_count(const CLI::App& command, const std::string& text) {
  for (const CLI::Option* option : command.get_options())
    if (option->get_items_expected_max() == 1 && option->results().size() > 1)
      return fmt::format("{} is given {} times ({}); give it once", option->get_name(), option->results().size(),
                         fmt::join(option->results(), ", "));
  constexpr std::string_view kFlagWithValue = " was given a disallowed flag override";
  if (text.ends_with(kFlagWithValue)) {
    const std::string flag = "--" + text.substr(0, text.size() - kFlagWithValue.size());
    return fmt::format("{} takes no value; write {} or leave it out", flag, flag);
  }
  const std::string name = text.substr(0, text.find(':'));
  const CLI::Option* option = command.get_option_no_throw(name);
  if (!option || !option->results().empty()) return text;
  return fmt::format("{} has no value; write {} {}", name, name, option->get_type_name());
}

/// The error for an option or argument that is absent. CLI11 says "NAME is required".
std::string missing_word(const CLI::App& command, const std::string& text) {
  const CLI::Option* option = command.get_option_no_throw(text.substr(0, text.find(' ')));
  if (!option) return fmt::format("a subcommand is required; there are {}", fmt::join(subcommand_names(command), ", "));
  if (option->get_positional()) return fmt::format("{}: {}", text, option->get_description());
  return fmt::format("{}; give {} {}", text, option->get_name(), option->get_type_name());
}

/// The error for a value that a check has refused. CLI11 says "NAME: COMPLAINT", and our checks begin the complaint
/// with the value.
std::string bad_value(const CLI::App& command, const std::string& text) {
  const size_t colon = text.find(": ");
  const CLI::Option* option = colon == std::string::npos ? nullptr : command.get_option_no_throw(text.substr(0, colon));
  if (!option) return text;
  const std::string complaint = text.substr(colon + 2);
  constexpr std::string_view kRange = " not in range ", kSet = " not in {";
  for (const std::string& value : option->results()) {
    const std::string begin = fmt::format("{} {}: ", option->get_name(), value);
    if (complaint.starts_with("Value " + value + std::string(kRange)))
      return begin + "a number from " + complaint.substr(complaint.find(kRange) + kRange.size()) + " is wanted";
    if (complaint.starts_with(value + std::string(kSet)) && complaint.ends_with('}')) {
      const size_t at = value.size() + kSet.size();
      const std::string set = complaint.substr(at, complaint.size() - at - 1);
      return fmt::format("{}not one of {}{}", begin, set, did_you_mean(value, words_of(set)));
    }
    if (!value.empty() && complaint.starts_with(value + ": ")) return begin + complaint.substr(value.size() + 2);
  }
  return text;
}

/// The error for a value of another type. CLI11 says "Could not convert: NAME = VALUE".
std::string no_number(const std::string& text) {
  const size_t begin = text.find(": "), end = text.find(" = ");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return text;
  return fmt::format("{} {}: not a number, or one that is too large", text.substr(begin + 2, end - begin - 2),
                     text.substr(end + 3));
}

/// The error for a word that no command takes. CLI11 says "The following argument was not expected: WORD".
std::string unexpected_word(const std::string& text) {
  const std::string word = text.substr(std::min(text.find(": "), text.size() - 2) + 2);
  if (word == "--json") return "--json: write it behind the command";
  return fmt::format("'{}' is one word too many", word);
}

template <class Kind>
bool is_a(const CLI::ParseError& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

/// The problem in our words, with the next step.
std::string problem_of(const CLI::App& command, const CLI::ParseError& error) {
  const std::string text = error.what();
  if (is_a<CLI::ArgumentMismatch>(error)) return wrong_count(command, text);
  if (is_a<CLI::RequiredError>(error)) return missing_word(command, text);
  if (is_a<CLI::ValidationError>(error)) return bad_value(command, text);
  if (is_a<CLI::ConversionError>(error)) return no_number(text);
  if (is_a<CLI::ExcludesError>(error)) return text + "; leave one of them out";
  if (is_a<CLI::RequiresError>(error)) return text + "; give both";
  if (is_a<CLI::ExtrasError>(error)) return unexpected_word(text);
  return text;
}

std::string usage_problem(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string chosen;
  for (; !command->get_subcommands().empty(); chosen += command->get_name() + " ")
    command = command->get_subcommands().front();
  std::string problem = problem_of(*command, error);
  // A mistyped name can also leave a required option missing; the mistyped name is then the reason.
  const std::vector<std::string> unknown = command->remaining();
  const bool is_missing = is_a<CLI::RequiredError>(error);
  const auto option = std::find_if(unknown.begin(), unknown.end(), [](const auto& word) { return word[0] == '-'; });
  const bool lacks_command = command->get_require_subcommand_min() > 0;
  if (lacks_command && !unknown.empty()) problem = unknown_word(*command, unknown.front());
  else if (option != unknown.end()) problem = unknown_word(*command, *option);
  else if (!unknown.empty() && !is_missing) problem = unknown_word(*command, unknown.front());
  return fmt::format("{}; see `seqtile {}--help`", problem, chosen);
}

int run(int argc, char** argv, const autotune::Registry& registry) {
  Session session{registry, argv[0]};
  CLI::App app{"Tile kernels, compiled by LLVM, tuned once per bucket of sequence lengths", "seqtile"};
  app.set_version_flag("--version", std::string(toolchain_version()));
  app.require_subcommand(1);
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  add_commands(app, session);
  add_help_commands(app, session);
  make_strict(app);
  try {
    app.parse(argc, argv);
    return session.exit_code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    // A command line that is refused while it is parsed has not set session.json yet.
    session.json |= std::any_of(argv, argv + argc, [](std::string_view word) { return word == "--json"; });
    report(session, ErrorCode::invalid_argument, usage_problem(app, error));
    return kBadInput;
  } catch (const Error& error) {
    report(session, error.code(), error.what());
    return exit_code_of(error.code());
  } catch (const std::bad_alloc&) {
    report(session, ErrorCode::out_of_resources, "out of memory; use shorter lengths or fewer threads");
    return kMachine;
  } catch (const std::system_error& error) {
    report(session, ErrorCode::io, error.what());
    return kMachine;
  } catch (const std::exception& error) {
    report(session, ErrorCode::internal, fmt::format("unexpected: {}", error.what()));
    return kBug;
  }
}

}  // namespace
}  // namespace seqtile::cli

int main(int argc, char** argv) {
  const seqtile::autotune::Registry registry = seqtile::kernels::make_registry();
  int exit_code = 0;
  std::signal(SIGXFSZ, SIG_IGN);  // writing beyond the file size limit then fails with an error
  if (seqtile::autotune::run_worker(argc, argv, registry, exit_code)) return exit_code;
  seqtile::cli::end_at_interrupt();
  seqtile::log_enabled(seqtile::LogLevel::warning);  // warns of a SEQTILE_LOG that is no level
  exit_code = seqtile::cli::run(argc, argv, registry);
  if (!seqtile::cli::flush_output()) {
    seqtile::cli::warn("standard output could not be written whole; check the free space where it goes");
    if (exit_code == seqtile::cli::kDone || exit_code == seqtile::cli::kNo) exit_code = seqtile::cli::kMachine;
  }
  return exit_code;
}

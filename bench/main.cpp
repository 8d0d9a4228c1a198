// bench/main.cpp -- the command line of the benchmarks (`seqtile bench` runs this program).
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>

#include "autotune/text/seconds.h"
#include "bench/machine.h"
#include "bench/report.h"
#include "bench/suites.h"
#include "jit/base/nearest_word.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "seqtile/tuner.h"

namespace seqtile::bench {
namespace {

struct Suite {
  const char* name;
  void (*add_cases)(std::vector<Case>& cases, Environment& environment);
};

constexpr Suite kSuites[] = {{"linear", add_linear_cases},
                             {"grouped", add_grouped_cases},
                             {"attention", add_attention_cases},
                             {"rows", add_row_cases},
                             {"host", add_host_cases},
                             {"simulate", add_simulate_cases},
                             {"seqpar", add_seqpar_cases},
                             {"seqpar_backward", add_seqpar_backward_cases},
                             {"collectives", add_collective_cases},
                             {"fabric", add_fabric_cases},
                             {"plan", add_plan_cases},
                             {"regret", add_regret_cases}};

struct Arguments {
  std::string suite, filter = ".";
  int threads = 0;
  bool json = false;
  std::string output, budget;
  RunOptions run;
  Options options;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  seqtile bench --list\n"
    "  seqtile bench --filter 'linear/f32/m(16|64)_n4096_k4096' --threads 2\n"
    "  seqtile bench seqpar --threads 1 --torch ~/venv/bin/python\n"
    "  seqtile bench --filter attention --torch ~/venv/bin/python -o attention.json";

std::string refuse_time(const std::string& text) {
  const auto seconds = autotune::parse_seconds(text);
  if (seconds && *seconds <= autotune::kMaxSeconds) return {};
  return fmt::format("{}: not a time above 0 and at most {:.0f} s: {}", text, autotune::kMaxSeconds,
                     autotune::kSecondsForm);
}

std::string refuse_count(const std::string& text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool is_count = error == std::errc() && end == text.data() + text.size() && count > 0;
  return is_count ? "" : fmt::format("{}: not a whole number from 1 to {}", text, std::numeric_limits<int>::max());
}

std::vector<std::string_view> suite_names() {
  std::vector<std::string_view> names;
  for (const Suite& suite : kSuites) names.emplace_back(suite.name);
  return names;
}

std::string refuse_suite(const std::string& text) {
  const std::vector<std::string_view> names = suite_names();
  if (std::ranges::find(names, text) != names.end()) return {};
  return fmt::format("{}: there is no such suite; there are {}{}", text, fmt::join(names, ", "),
                     did_you_mean(text, names));
}

std::string unknown_option(const CLI::App& app, const std::string& word) {
  const std::string flag = word.substr(0, word.find('='));
  std::vector<std::string_view> known;
  for (const CLI::Option* option : app.get_options())
    known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
  const size_t dashes = std::min(flag.find_first_not_of('-'), flag.size());
  const std::string_view nearest = nearest_word(std::string_view(flag).substr(dashes), known);
  return fmt::format("there is no option {}{}", flag,
                     nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest));
}

/// What is wrong with the command line, in our words: CLI11 begins with an option's name, or ends with a word.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> words = app.remaining();
  // The value of a mistyped option would be taken for a suite.
  for (const std::string& word : words)
    if (word.starts_with('-')) return unknown_option(app, word);
  if (!words.empty()) return fmt::format("'{}' is one word too many; give one suite, or a --filter", words.front());
  const std::string text = error.what(), name = text.substr(0, text.find(':'));
  const CLI::Option* option = app.get_option_no_throw(name);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && option && option->results().empty())
    return fmt::format("{} has no value; write {} VALUE", name, name);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && option)
    return fmt::format("{} is given {} times; give it once", name, option->results().size());
  if (dynamic_cast<const CLI::ValidationError*>(&error) && option)
    return fmt::format("{} {}", name, text.substr(std::min(name.size() + 2, text.size())));
  return text;
}

void declare(CLI::App& app, Arguments& arguments) {
  app.footer(kFooter);
  app.add_option("suite", arguments.suite, fmt::format("Only this suite: {}", fmt::join(suite_names(), ", ")))
      ->check(CLI::Validator([](std::string& text) { return refuse_suite(text); }, ""));
  app.add_option("--filter", arguments.filter, "Regular expression on <op>/<dtype>/<shape>/<impl>/t<threads>");
  const CLI::Validator count([](std::string& text) { return refuse_count(text); }, "");
  app.add_option("--threads", arguments.threads, "Only this thread count (default: 1 and 2)")->check(count);
  app.add_flag("--list", arguments.options.is_listed, "Print the names and measure nothing");
  app.add_flag("--json", arguments.json, "One JSON object on the last line of standard output");
  app.add_option("-o,--output", arguments.output, "File for the results in Google Benchmark's JSON format");
  app.add_option("--rounds", arguments.run.rounds, "Interleaved rounds (default 15)")->check(count);
  app.add_option("--cache", arguments.options.cache,
                 "Tuning records of the benchmarks (default: bench.db in the user's cache)");
  app.add_option("--budget", arguments.budget,
                 "Time to tune a bucket that has no record yet, as 500ms or 2m (default 10s)")
      ->check(CLI::Validator([](std::string& text) { return refuse_time(text); }, ""));
  app.add_option("--model", arguments.options.model, "A model's config.json: adds the regret cases of its operations");
  app.add_option("--mkl", arguments.options.mkl, "Race MKL: the path of libmkl_rt.so.N (PyPI package mkl)");
  app.add_option("--torch", arguments.options.torch, "Race PyTorch: a Python that imports torch");
}

/// The implementations of `item` whose names match the filter.
std::vector<std::string> selected(const Case& item, const std::regex& filter) {
  std::vector<std::string> names;
  for (const auto& implementation : item.implementations) {
    if (std::regex_search(item.name(implementation), filter)) names.push_back(implementation);
  }
  return names;
}

void print_facts() {
  for (const auto& [name, value] : machine_facts()) fmt::print("{}: {}\n", name, value);
  fmt::print("\n");
}

std::vector<Case> cases_of(const std::string& suite, Environment& environment) {
  std::vector<Case> cases;
  for (const Suite& known : kSuites)
    if (suite.empty() || suite == known.name) known.add_cases(cases, environment);
  return cases;
}

int list(const std::vector<Case>& cases, const std::regex& filter, bool as_json) {
  nlohmann::json names = nlohmann::json::array();
  for (const Case& item : cases) {
    for (const auto& implementation : selected(item, filter)) names.push_back(item.name(implementation));
  }
  if (as_json) {
    fmt::print("{}\n", nlohmann::json{{"names", names}}.dump());
    return 0;
  }
  for (const auto& name : names) fmt::print("{}\n", name.get<std::string>());
  return 0;
}

int run(const Arguments& arguments) {
  const std::regex filter(arguments.filter);
  Environment environment(arguments.options);
  const std::vector<Case> cases = cases_of(arguments.suite, environment);
  if (arguments.options.is_listed) return list(cases, filter, arguments.json);
  print_facts();
  std::vector<CaseResults> done;
  bool all_right = true;
  for (const Case& item : cases) {
    const auto names = selected(item, filter);
    if (names.empty()) continue;
    done.push_back({item, item.run(item, names, arguments.run)});
    for (const auto& result : done.back().results) all_right = all_right && result.failure.empty();
    print_case(done.back());
    // The file is written after every case, so that a stopped run keeps its measurements.
    if (!arguments.output.empty()) write_json(arguments.output, done, environment.peer_versions());
  }
  if (done.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "bench: no case matches --filter " + arguments.filter + "; --list prints all names");
  }
  print_summary(done);
  for (const auto& [name, version] : environment.peer_versions()) fmt::print("{}: {}\n", name, version);
  if (arguments.json) fmt::print("{}\n", json_line(done));
  return all_right ? 0 : 1;
}

}  // namespace
}  // namespace seqtile::bench

int main(int argc, char** argv) {
  using namespace seqtile;
  int exit_code = 0;
  if (autotune::run_worker(argc, argv, kernels::make_registry(), exit_code)) return exit_code;
  CLI::App app("Measures seqtile, its peers and the machine's limits", "seqtile bench");
  bench::Arguments arguments;
  bench::declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "seqtile bench: {}; see `seqtile bench -- --help`\n", bench::usage_problem(app, error));
    return 2;
  }
  if (!arguments.budget.empty()) arguments.options.budget_s = *autotune::parse_seconds(arguments.budget);
  arguments.options.threads = arguments.threads > 0 ? std::vector{arguments.threads} : std::vector{1, 2};
  try {
    return bench::run(arguments);
  } catch (const std::regex_error& error) {
    fmt::print(stderr, "seqtile bench: --filter {}: {}; give an ECMAScript regular expression\n", arguments.filter,
               error.what());
    return 2;
  } catch (const Error& error) {
    fmt::print(stderr, "seqtile bench: {}\n", error.what());
    const bool is_bug = error.code() == ErrorCode::internal || error.code() == ErrorCode::wrong_result;
    const bool is_input = error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::no_record;
    return is_input ? 2 : is_bug ? 70 : 3;
  } catch (const std::exception& error) {
    fmt::print(stderr, "seqtile bench: unexpected: {}\n", error.what());
    return 70;
  }
}

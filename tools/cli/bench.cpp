// tools/cli/bench.cpp -- `seqtile bench`: hands over to the program seqtile_bench in the same folder.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tools/cli/command.h"
#include "tools/cli/errors.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

struct BenchOptions : Options {
  std::string suite, filter, output;
  bool list = false;
  std::vector<std::string> others;
};

int run(const Session&, const BenchOptions& options) {
  if (is_standard_output(options.output))
    bad_input("--output -: tables go to standard output; name a file, or give --json");
  if (!options.output.empty()) check_can_write("--output", options.output);
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string bench = self.parent_path() / "seqtile_bench";
  std::vector<std::string> words{bench};
  const auto pass = [&](const char* flag, const std::string& value) {
    if (value.empty()) return;
    words.push_back(flag);
    words.push_back(value);
  };
  pass("--filter", options.filter);
  if (!options.threads.empty()) pass("--threads", std::to_string(one_thread_count(options)));
  pass("--output", options.output);
  if (options.list) words.push_back("--list");
  if (options.json) words.push_back("--json");
  if (!options.suite.empty()) words.push_back(options.suite);  // `suite` may also hold the first flag behind --
  for (const std::string& other : options.others) words.push_back(other);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(bench.c_str(), arguments.data());
  throw Error(ErrorCode::io, fmt::format("{}: {}; the benchmark program is built by `cmake --build --preset release`",
                                         bench, std::strerror(errno)));
}

}  // namespace

void add_bench(CLI::App& app, Session& session) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App& command = add_command(app, session, "bench",
                                  "Measure kernels beside their peers and the roofline; verifies before it times",
                                  "  seqtile bench --list\n"
                                  "  seqtile bench seqpar -- --torch ~/venv/bin/python\n"
                                  "  seqtile bench --filter 'linear/f32/m(7|512)_n4096_k4096' --threads 2\n"
                                  "  seqtile bench --filter attention -o attention.json",
                                  options, run);
  command.add_option("--filter", options->filter, "Regular expression over benchmark names")->type_name("REGEX");
  command.add_option("--threads", options->threads, "Only benchmarks with this many threads")->type_name("N");
  command.add_option("-o,--output", options->output, "Write Google Benchmark JSON to a file")->type_name("FILE");
  command.add_flag("--list", options->list, "Print the names only");
  command.add_option("suite", options->suite, "Only one suite: seqpar, linear, ...");
  command.add_option("args", options->others, "After --: flags for the benchmark program itself");
}

}  // namespace seqtile::cli

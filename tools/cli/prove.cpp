// tools/cli/prove.cpp -- `seqtile prove`: every length of every declared operation has a record and a loadable binary.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/cli/command.h"
#include "tools/cli/coverage.h"
#include "tools/cli/model_requests.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// "7 cubin, 1 ptx".
std::string list_stages(const std::map<std::string, int64_t>& stages) {
  std::string text;
  for (const auto& [stage, count] : stages)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", format_count(count), stage);
  return text;
}

int run(const Session& session, const Options& options) {
  const std::vector<autotune::TuneRequest> requests = model_requests(session.registry, options);
  const auto store = open_store_of(options, StoreUse::read_existing);
  const auto artifacts = open_artifacts_of(options);
  const bool is_cpu = options.device == "cpu";
  Table table({"operation", "lengths", "covered", is_cpu ? "threads" : "device", "binaries"});
  std::map<std::string, int64_t> stages;
  Json missing = Json::array();
  int64_t pairs = 0, covered = 0;
  for (const autotune::TuneRequest& request : requests) {
    const auto device = open_device_of(options, request.workload.threads);
    const Coverage coverage = coverage_of(session.registry, request, options, *device, *store, *artifacts);
    table.add({request.label, format_count(coverage.lengths), format_count(coverage.covered),
               is_cpu ? std::to_string(request.workload.threads) : options.device, list_stages(coverage.stages)});
    for (const auto& [stage, count] : coverage.stages) stages[stage] += count;
    for (const Gap& gap : coverage.gaps)
      missing.push_back({{"operation", gap.operation}, {"lo", gap.lo}, {"hi", gap.hi}, {"reason", gap.reason}});
    pairs += coverage.lengths;
    covered += coverage.covered;
  }
  table.print();
  for (const Json& gap : missing)
    print_line(fmt::format("missing: {} {}: {}", gap["operation"].get<std::string>(),
                           format_bucket(gap["lo"], gap["hi"]), gap["reason"].get<std::string>()));
  print_line(fmt::format("{} of {} (operation, length) pairs have a record and a loadable binary",
                         format_count(covered), format_count(pairs)));
  if (!stages.empty()) print_line("binaries: " + list_stages(stages));
  const LengthRange asked = parse_lengths("--lengths", options.lengths);
  if (options.json)
    print_json({{"lengths", asked.hi - asked.lo + 1},
                {"operations", requests.size()},
                {"pairs", pairs},
                {"covered", covered},
                {"binaries", stages},
                {"missing", std::move(missing)}});
  return covered == pairs ? kDone : kNo;
}

}  // namespace

void add_prove(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app, session, "prove", "Show that every length of every operation has a record and a loadable binary",
                  "  seqtile prove --model config.json --lengths 1..4096 --cache tuning.db\n"
                  "  seqtile prove --model config.json --lengths 1..4096 --cache tuning.db --json | tail -n 1",
                  options, run);
  add_model(command, *options);
  add_lengths(command, *options);
  command.get_option("--lengths")->required();
  add_key(command, *options);
  add_stores(command, *options);
}

}  // namespace seqtile::cli

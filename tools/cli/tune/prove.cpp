// tools/cli/tune/prove.cpp -- `seqtile prove`: checks that all lengths of a model's operations, or of one operation,
// have a record and a loadable binary.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/cli/command.h"
#include "tools/cli/errors.h"
#include "tools/cli/model_requests.h"
#include "tools/cli/model_text.h"
#include "tools/cli/output.h"
#include "tools/cli/ranks/ranks.h"
#include "tools/cli/tune/coverage.h"

namespace seqtile::cli {
namespace {

/// The stages as text: "7 cubin, 1 ptx".
std::string list_stages(const std::map<std::string, int64_t>& stages) {
  std::string text;
  for (const auto& [stage, count] : stages)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", format_count(count), stage);
  return text;
}

constexpr int64_t kRandomLengths = 10000;

/// Rehearses a server of ranks and prints a line. Returns true if no record or binary was missing.
bool prove_ranks(const Session& session, const Options& options, const World& world, Json& json) {
  RankProof sum;
  for (const int threads : thread_counts(options)) {
    const RankProof proof = rehearse("prove", session, options, world, threads, kRandomLengths);
    sum.lookups += proof.lookups, sum.misses += proof.misses;
    sum.counters.tunings += proof.counters.tunings;
    sum.counters.compiles += proof.counters.compiles + proof.counters.compiles_at_load;
  }
  print_line(fmt::format("{} on {}: {} at both ends of each bucket and {} random lengths, {}, {}, {}",
                         format_counted(world.size, "rank"), world.fabric, format_counted(sum.lookups, "lookup"),
                         format_count(kRandomLengths), format_counted(sum.misses, "miss"),
                         format_counted(sum.counters.tunings, "tuning"),
                         format_counted(sum.counters.compiles, "compile")));
  json["ranks"] = {{"world_size", world.size}, {"fabric", world.fabric},          {"lookups", sum.lookups},
                   {"misses", sum.misses},     {"tunings", sum.counters.tunings}, {"compiles", sum.counters.compiles}};
  return sum.misses + sum.counters.tunings + sum.counters.compiles == 0;
}

struct ProveOptions : Options {
  std::string grade = "built";
};

/// Errors: io where no binary of a file that is there can be read; a binary that the file lacks is a gap.
void check_can_be_read(const Options& options, cache::ArtifactDb& artifacts) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(artifacts_path(options), error);
  if (artifacts.status().empty() || error || bytes == 0) return;
  const cache::ArtifactCheck found = artifacts.check();
  const bool is_whole = found.is_usable && found.is_sound;
  if (!is_whole && !found.is_locked && found.good.empty()) throw Error(ErrorCode::io, artifacts.status());
}

/// The operations of the model, or the one that the command names.
std::vector<autotune::TuneRequest> requests_of(const Session& session, const ProveOptions& options) {
  if (!options.model.empty()) return model_requests(session.registry, options);
  const LengthRange asked = parse_lengths("--lengths", options.lengths);
  std::vector<autotune::TuneRequest> requests;
  for (const int threads : thread_counts(options))
    requests.push_back({options.operation, workload_of(session.registry, options, threads), asked.lo, asked.hi});
  return requests;
}

int prove(const Session& session, const ProveOptions& options) {
  const autotune::Grade wanted = autotune::parse_grade(options.grade).value();
  std::vector<std::string> warnings;
  if (!options.model.empty()) warnings = read_model_file(options).notes.warnings;
  const std::vector<autotune::TuneRequest> requests = requests_of(session, options);
  const auto store = open_store_of(options, StoreUse::read_existing);
  const auto artifacts = open_existing_artifacts_of(options);
  check_can_be_read(options, *artifacts);
  const bool is_cpu = options.device == "cpu";
  Table table({"operation", "lengths", "built", "measured", "searched", is_cpu ? "threads" : "device", "binaries"});
  std::map<std::string, int64_t> stages;
  Json missing = Json::array();
  Coverage all;
  for (const autotune::TuneRequest& request : requests) {
    const auto device = open_device_of(options, request.workload.threads);
    const Coverage coverage = coverage_of(session.registry, request, wanted, options, *device, *store, *artifacts);
    table.add({request.label, format_count(coverage.lengths), format_count(coverage.built),
               format_count(coverage.measured), format_count(coverage.searched),
               is_cpu ? std::to_string(request.workload.threads) : options.device, list_stages(coverage.stages)});
    for (const auto& [stage, count] : coverage.stages) stages[stage] += count;
    for (const Gap& gap : coverage.gaps)
      missing.push_back({{"operation", gap.operation}, {"lo", gap.lo}, {"hi", gap.hi}, {"reason", gap.reason}});
    all.lengths += coverage.lengths, all.covered += coverage.covered;
    all.built += coverage.built, all.measured += coverage.measured, all.searched += coverage.searched;
  }
  check_was_read(*store);
  table.print();
  for (const Json& gap : missing)
    print_line(fmt::format("missing: {} {}: {}", gap["operation"].get<std::string>(),
                           format_bucket(gap["lo"], gap["hi"]), gap["reason"].get<std::string>()));
  print_line(fmt::format("{} of {} (operation, length) pairs have a {}record and a loadable binary",
                         format_count(all.covered), format_count(all.lengths),
                         wanted == autotune::Grade::built ? "" : options.grade + " "));
  if (!stages.empty()) print_line("binaries: " + list_stages(stages));
  const LengthRange asked = parse_lengths("--lengths", options.lengths);
  Json json = {{"lengths", asked.hi - asked.lo + 1},
               {"operations", requests.size()},
               {"pairs", all.lengths},
               {"covered", all.covered},
               {"grade", options.grade},
               {"grades", {{"built", all.built}, {"measured", all.measured}, {"searched", all.searched}}},
               {"binaries", stages},
               {"missing", std::move(missing)},
               {"warnings", warnings}};
  bool is_whole = all.covered == all.lengths;
  if (const auto world = world_of(options); world && is_whole) is_whole = prove_ranks(session, options, *world, json);
  if (options.json) print_json(json);
  return is_whole ? kDone : kNo;
}

int run(const Session& session, const ProveOptions& given) {
  ProveOptions options = given;
  if (options.operation.empty() && options.model.empty())
    bad_input("prove: give --model FILE, or an operation and its fields");
  if (!options.operation.empty()) {
    if (options.fabric == "mpi")
      bad_input(
          "--fabric mpi: one operation is proved without the ranks of mpirun; give --model, or --fabric processes");
    set_rank_fields(session, options);
    return prove(session, options);
  }
  enter_processes(options);
  return run_on_processes(options, [&] {
    apply_ranks(options);
    return prove(session, options);
  });
}

}  // namespace

void add_prove(CLI::App& app, Session& session) {
  auto options = std::make_shared<ProveOptions>();
  CLI::App& command =
      add_command(app, session, "prove", "Show that every length of every operation has a record and a loadable binary",
                  "  seqtile prove --model config.json --lengths 1..4096 --cache tuning.db\n"
                  "  seqtile prove --model config.json --lengths 1..4096 --cache tuning.db --json | tail -n 1\n"
                  "  seqtile prove --model config.json --lengths 1..4096 --cache tuning.db --grade searched\n"
                  "  seqtile prove --model config.json --lengths 1..4096 --cache tuning.db --ranks 2 --fabric threads\n"
                  "  seqtile prove rms_norm --set n=576 --lengths 1..4096 --cache tuning.db",
                  options, run);
  add_operation(command, *options);
  CLI::Option* operation = command.get_option("operation")->required(false);
  add_model(command, *options);
  command.get_option("--model")->required(false)->excludes(operation)->excludes(command.get_option("--set"));
  command.get_option("--kv-lengths")->excludes(operation);
  command.get_option("--strict-model")->excludes(operation);
  add_lengths(command, *options);
  command.get_option("--lengths")->required();
  command.add_option("--grade", options->grade, "Grade that a record must have")
      ->check(CLI::IsMember({"built", "measured", "searched"}))
      ->capture_default_str();
  add_key(command, *options);
  add_ranks(command, *options);
  add_stores(command, *options);
}

}  // namespace seqtile::cli

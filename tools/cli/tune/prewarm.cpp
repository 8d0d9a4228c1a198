// tools/cli/tune/prewarm.cpp -- `seqtile prewarm`: tunes all operations of a model over all lengths, or what an engine
// has missed.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_requests.h"
#include "tools/cli/model_text.h"
#include "tools/cli/output.h"
#include "tools/cli/ranks/ranks.h"
#include "tools/cli/tune/miss_requests.h"
#include "tools/cli/tune/tune_run.h"

namespace seqtile::cli {
namespace {

struct PrewarmOptions : TuneRunOptions {
  std::string misses;
};

/// Stores the binaries that ranks need beside rank 0's. A rank uses rank 0's configuration if it shows on the wire;
/// with other shares of the weights the configuration needs another binary.
void store_binaries_of_ranks(const Session& session, const Options& options, const World& world) {
  int64_t compiles = 0;
  for (const int threads : thread_counts(options))
    compiles += rehearse("prewarm", session, options, world, threads, 0).counters.compiles_at_load;
  if (compiles > 0) print_line(format_counted(compiles, "more binary") + " for ranks that take over rank 0's choices");
}

int run_misses(const Session& session, const PrewarmOptions& given) {
  const MissRequests missed = read_miss_requests(session.registry, given.misses);
  TuneRunOptions options = given;
  if (options.device.empty()) options.device = missed.device;
  if (options.device != missed.device)
    bad_input(fmt::format("--device {}: {} has misses of an engine on {}; leave --device out", options.device,
                          given.misses, missed.device));
  print_line(fmt::format("{}: {} missed", given.misses, format_counted(missed.calls, "call")));
  if (!missed.requests.empty()) return tune_run(session, options, "prewarm", missed.requests);
  if (options.json) print_json({{"operations", 0}, {"buckets", 0}, {"covered", true}, {"complete", true}});
  return kDone;
}

int run(const Session& session, const PrewarmOptions& given) {
  if (!given.misses.empty()) return run_misses(session, given);
  if (given.model.empty() || given.lengths.empty())
    bad_input("prewarm: give --model FILE and --lengths A..B, or --misses FILE");
  TuneRunOptions options = given;
  if (options.device.empty()) options.device = "cpu";
  options.warnings = read_model_file(options).notes.warnings;
  apply_ranks(options);
  const auto world = world_of(options);
  if (!world) return tune_run(session, options, "prewarm", model_requests(session.registry, options));
  const auto finish = [&] { store_binaries_of_ranks(session, options, *world); };
  return tune_run(session, options, "prewarm", model_requests(session.registry, options), finish);
}

}  // namespace

void add_prewarm(CLI::App& app, Session& session) {
  auto options = std::make_shared<PrewarmOptions>();
  options->device.clear();
  CLI::App& command =
      add_command(app, session, "prewarm", "Tune every operation of a model for every length and store the winners",
                  "  seqtile prewarm --model config.json --lengths 1..4096 --cache tuning.db --budget 120s\n"
                  "  seqtile prewarm --model config.json --lengths 1..4096 --dry-run\n"
                  "  seqtile prewarm --model config.json --lengths 1..4096 --threads 1,2\n"
                  "  seqtile prewarm --model config.json --lengths 1..4096 --ranks 2 --fabric threads\n"
                  "  seqtile prewarm --misses misses.json --cache tuning.db --budget 120s",
                  options, run);
  add_model(command, *options);
  add_lengths(command, *options);
  add_key(command, *options);
  add_ranks(command, *options);
  add_stores(command, *options);
  add_tune_run(command, *options);
  command.get_option("--model")->required(false);
  command.get_option("--device")->default_str("cpu, or that of the misses");
  CLI::Option* misses = command.add_option("--misses", options->misses,
                                           "What an engine has missed, as its write_misses() wrote it, instead of a "
                                           "model; threads, dtypes and device are the engine's");
  misses->type_name("FILE");
  for (const char* other :
       {"--model", "--lengths", "--kv-lengths", "--strict-model", "--dtype", "--threads", "--ranks", "--fabric"})
    misses->excludes(command.get_option(other));
}

}  // namespace seqtile::cli

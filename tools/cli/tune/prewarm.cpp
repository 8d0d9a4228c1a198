// tools/cli/tune/prewarm.cpp -- `seqtile prewarm`: tunes all operations of a model over all lengths.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_requests.h"
#include "tools/cli/model_text.h"
#include "tools/cli/output.h"
#include "tools/cli/ranks/ranks.h"
#include "tools/cli/tune/tune_run.h"

namespace seqtile::cli {
namespace {

/// Stores the binaries that ranks need beside rank 0's. A rank uses rank 0's configuration if it shows on the wire;
/// with other shares of the weights the configuration needs another binary.
void store_binaries_of_ranks(const Session& session, const Options& options, const World& world) {
  int64_t compiles = 0;
  for (const int threads : thread_counts(options))
    compiles += rehearse("prewarm", session, options, world, threads, 0).counters.compiles_at_load;
  if (compiles > 0) print_line(format_counted(compiles, "more binary") + " for ranks that take over rank 0's choices");
}

int run(const Session& session, const TuneRunOptions& given) {
  TuneRunOptions options = given;
  options.warnings = read_model_file(options).notes.warnings;
  apply_ranks(options);
  const auto world = world_of(options);
  if (!world) return tune_run(session, options, "prewarm", model_requests(session.registry, options));
  const auto finish = [&] { store_binaries_of_ranks(session, options, *world); };
  return tune_run(session, options, "prewarm", model_requests(session.registry, options), finish);
}

}  // namespace

void add_prewarm(CLI::App& app, Session& session) {
  auto options = std::make_shared<TuneRunOptions>();
  CLI::App& command =
      add_command(app, session, "prewarm", "Tune every operation of a model for every length and store the winners",
                  "  seqtile prewarm --model config.json --lengths 1..4096 --cache tuning.db --budget 120s\n"
                  "  seqtile prewarm --model config.json --lengths 1..4096 --dry-run\n"
                  "  seqtile prewarm --model config.json --lengths 1..4096 --threads 1,2\n"
                  "  seqtile prewarm --model config.json --lengths 1..4096 --ranks 2 --fabric threads",
                  options, run);
  add_model(command, *options);
  add_lengths(command, *options);
  command.get_option("--lengths")->required();
  add_key(command, *options);
  add_ranks(command, *options);
  add_stores(command, *options);
  add_tune_run(command, *options);
}

}  // namespace seqtile::cli

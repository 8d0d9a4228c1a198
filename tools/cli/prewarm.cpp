// tools/cli/prewarm.cpp -- `seqtile prewarm`: all operations of a model over all lengths, off line.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_requests.h"
#include "tools/cli/tune_run.h"

namespace seqtile::cli {
namespace {

int run(const Session& session, const TuneRunOptions& options) {
  return tune_run(session, options, "prewarm", model_requests(session.registry, options));
}

}  // namespace

void add_prewarm(CLI::App& app, Session& session) {
  auto options = std::make_shared<TuneRunOptions>();
  CLI::App& command =
      add_command(app, session, "prewarm", "Tune every operation of a model for every length and store the winners",
                  "  seqtile prewarm --model config.json --lengths 1..4096 --cache tuning.db --budget 120s\n"
                  "  seqtile prewarm --model config.json --lengths 1..4096 --dry-run\n"
                  "  seqtile prewarm --model config.json --lengths 1..4096 --threads 1,2",
                  options, run);
  add_model(command, *options);
  add_lengths(command, *options);
  command.get_option("--lengths")->required();
  add_key(command, *options);
  add_stores(command, *options);
  add_tune_run(command, *options);
}

}  // namespace seqtile::cli

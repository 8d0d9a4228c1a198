// tools/cli/tune/tune_run.h -- what `prewarm` and `tune` share: flags, the run with its progress, the report.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>

#include "autotune/tuner.h"
#include "tools/cli/command.h"

namespace seqtile::cli {

struct TuneRunOptions : Options {
  std::string budget, strategy = "topk";
  bool dry_run = false;
  std::vector<std::string> warnings;  ///< of the model's file and the lengths, for JSON
};

void add_tune_run(CLI::App& app, TuneRunOptions& options);  ///< --budget --strategy --dry-run

/// Tunes (or, with --dry-run, lists what would be tuned), prints the report and returns the exit code. `finish` runs
/// between the two where every bucket has a record.
int tune_run(const Session& session, const TuneRunOptions& options, const char* title,
             const std::vector<autotune::TuneRequest>& requests, const std::function<void()>& finish = {});

}  // namespace seqtile::cli

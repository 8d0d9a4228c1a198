// tools/cli/tune/tune_run.h -- shared parts of `prewarm` and `tune`: flags, the run with its progress, the report.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>

#include "seqtile/tuner.h"
#include "tools/cli/command.h"

namespace seqtile::cli {

struct TuneRunOptions : Options {
  std::string budget, strategy = "topk";
  bool dry_run = false;
  std::vector<std::string> warnings;  ///< warnings of the model's file and the lengths, for JSON
};

void add_tune_run(CLI::App& app, TuneRunOptions& options);  ///< adds --budget --strategy --dry-run

/// Tunes, or with --dry-run prints the plan of the run. Prints the report and returns the exit code. `finish` runs
/// before the report if all buckets have a record.
int tune_run(const Session& session, const TuneRunOptions& options, const char* title,
             const std::vector<autotune::TuneRequest>& requests, const std::function<void()>& finish = {});

}  // namespace seqtile::cli

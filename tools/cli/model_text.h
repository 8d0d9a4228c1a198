// tools/cli/model_text.h -- a model file of the command line: read with its warnings, and shown.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "models/file/model_file.h"
#include "tools/cli/options.h"
#include "tools/cli/output.h"

namespace seqtile::cli {

/// `path`, or config.json of a folder. Warnings go to standard error; with `is_strict` the first one is an error.
/// Errors: bad input for a file that is not there or not a model.
models::ModelFile read_model_file(const std::string& path, bool is_strict);
/// The same of --model; lengths that are asked for beyond the model's positions are among its warnings.
models::ModelFile read_model_file(const Options& options);
/// Warns of `lengths`, as `flag` has them, beyond the model's positions; empty: none are given.
void warn_of_lengths(models::ModelFile& file, const std::string& flag, const std::string& lengths);

/// What was understood of it, as lines on standard output.
void print_model(const models::ModelFile& file);
Json model_json(const models::ModelFile& file);

}  // namespace seqtile::cli

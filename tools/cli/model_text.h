// tools/cli/model_text.h -- reads the model file of a command line, with its warnings, and shows it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "models/file/model_file.h"
#include "tools/cli/options.h"
#include "tools/cli/output.h"

namespace seqtile::cli {

/// Reads `path`, or config.json in the folder `path`. Warnings go to standard error; with `is_strict` the first warning
/// is an error. Errors: bad input if the file is absent or is no model.
models::ModelFile read_model_file(const std::string& path, bool is_strict);
/// Reads the file of --model. Warns also of requested lengths beyond the model's positions.
models::ModelFile read_model_file(const Options& options);
/// Warns if `lengths`, the value of `flag`, exceed the model's positions. Empty `lengths` give no warning.
void warn_of_lengths(models::ModelFile& file, const std::string& flag, const std::string& lengths);

/// Prints the understood facts of the model on standard output.
void print_model(const models::ModelFile& file);
Json model_json(const models::ModelFile& file);

}  // namespace seqtile::cli

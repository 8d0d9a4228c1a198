// tools/cli/key_text.h -- keys as text for people, and commands for people to paste.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "tools/cli/options.h"

namespace seqtile::cli {

/// The fields of a key's workload. Without threads if the device is no CPU, because a launch then takes none of the
/// host.
autotune::Fields workload_fields(const cache::TuningKey& key);

/// A command to paste, with the flags of `options` and `strategy`, where one is given: "`seqtile tune linear --set
/// n=128
/// --length 40 --device a100`".
std::string next_step(const std::string& command, const Options& options, const std::string& strategy = "");
/// The command `cache build` to paste; it takes the stores and the device only.
std::string next_build(const Options& options);
/// The next step for binaries that `artifacts` lacks: "run `seqtile cache build ...`", into a new file if this one
/// cannot be written. Adds the number of binaries that the file has under other keys.
std::string build_step(const Options& options, cache::ArtifactDb& artifacts);
/// The part of build_step() about a file that cannot be written; empty if it can be.
std::string new_file_step(const Options& options, cache::ArtifactDb& artifacts);

}  // namespace seqtile::cli

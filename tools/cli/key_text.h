// tools/cli/key_text.h -- keys as people read them, and the command that fills them as people paste it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "tools/cli/options.h"

namespace seqtile::cli {

/// The fields of a key's workload; without threads where those of the host have no part in a launch.
autotune::Fields workload_fields(const cache::TuningKey& key);

/// "`seqtile tune linear --set n=128 --length 40 --device a100`": `command` for what `options` name.
std::string next_step(const std::string& command, const Options& options);
/// The same of `cache build`, which takes the stores and the device only.
std::string next_build(const Options& options);
/// How binaries that `artifacts` lacks come to be: "run `seqtile cache build ...`", into a new file where this one
/// cannot be written. Says how many stand there under other keys.
std::string build_step(const Options& options, cache::ArtifactDb& artifacts);

}  // namespace seqtile::cli

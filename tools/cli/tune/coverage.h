// tools/cli/tune/coverage.h -- which lengths of an operation have a record and a loadable binary.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <string>
#include <vector>

#include "autotune/grade.h"
#include "autotune/tuner.h"
#include "cache/artifact_db.h"
#include "cache/tuning_store.h"
#include "jit/device/device.h"
#include "tools/cli/options.h"

namespace seqtile::cli {

struct Gap {
  std::string operation;  ///< the label of the request
  int64_t lo, hi;
  std::string reason;
};

struct Coverage {
  int64_t lengths = 0;
  int64_t covered = 0;                            ///< of the grade that was asked for, or a better one
  int64_t built = 0, measured = 0, searched = 0;  ///< of this grade or a better one
  std::map<std::string, int64_t> stages;          ///< distinct binaries by what they are: blob, ptx, cubin
  std::vector<Gap> gaps;                          ///< neighbours with one reason are one gap
};

/// Looks at every bucket of the request; what is less than `wanted` is a gap. Reads, never measures or compiles.
/// `options` are those of the model's command.
Coverage coverage_of(const autotune::Registry& registry, const autotune::TuneRequest& request, autotune::Grade wanted,
                     const Options& options, Device& device, cache::TuningStore& store, cache::ArtifactDb& artifacts);

}  // namespace seqtile::cli

// tools/cli/tune/coverage.h -- the lengths of an operation that have a record and a loadable binary.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <string>
#include <vector>

#include "autotune/grade.h"
#include "seqtile/device.h"
#include "seqtile/stores.h"
#include "seqtile/tuner.h"
#include "tools/cli/options.h"

namespace seqtile::cli {

struct Gap {
  std::string operation;  ///< the label of the request
  int64_t lo, hi;
  std::string reason;
};

struct Coverage {
  int64_t lengths = 0;
  int64_t covered = 0;                            ///< lengths of the wanted grade or a better one
  int64_t built = 0, measured = 0, searched = 0;  ///< lengths of this grade or a better one
  std::map<std::string, int64_t> stages;          ///< number of distinct binaries by stage: blob, ptx, cubin
  std::vector<Gap> gaps;                          ///< neighbours with the same reason are one gap
};

/// Looks at all buckets of the request; a bucket below the grade `wanted` is a gap. Reads only: nothing is measured or
/// compiled. `options` are those of the command, which names a model or an operation.
Coverage coverage_of(const autotune::Registry& registry, const autotune::TuneRequest& request, autotune::Grade wanted,
                     const Options& options, Device& device, cache::TuningStore& store, cache::ArtifactDb& artifacts);

}  // namespace seqtile::cli

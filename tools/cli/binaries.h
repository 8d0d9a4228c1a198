// tools/cli/binaries.h -- makes the binaries that the decisions in a tuning.db name, without measuring.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <set>
#include <string>

#include "autotune/op_def.h"
#include "cache/tuning_store.h"
#include "jit/artifact_store.h"
#include "jit/device.h"

namespace seqtile::cli {

struct BuildReport {
  int64_t records = 0;        ///< of this device and toolchain
  int64_t other_records = 0;  ///< of others: left alone
  int64_t binaries = 0;       ///< distinct ones that the records name
  int64_t there = 0, compiled = 0, failed = 0;
  double seconds = 0;
  bool interrupted = false;

  int64_t remaining() const { return binaries - there - compiled - failed; }
};

/// Compiles what `artifacts` lacks, and what it has as PTX where there is an assembler now. A record that does not
/// compile is a warning and counted.
BuildReport build_binaries(const autotune::Registry& registry, cache::TuningStore& store, ArtifactStore& artifacts,
                           Device& device);

/// Looks only: `there` are those of which `good` has the key's hash.
BuildReport find_binaries(const autotune::Registry& registry, cache::TuningStore& store,
                          const std::set<std::string>& good, Device& device);

/// Distinct binaries that decisions for this device name and `artifacts` lacks.
int64_t count_missing_binaries(const autotune::Registry& registry, cache::TuningStore& store, ArtifactStore& artifacts,
                               Device& device);

}  // namespace seqtile::cli

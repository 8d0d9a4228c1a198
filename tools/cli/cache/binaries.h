// tools/cli/cache/binaries.h -- compiles the binaries named by the decisions in a tuning.db, without measuring.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/op.h"
#include "seqtile/stores.h"

namespace seqtile::cli {

/// A record of this device that may not serve.
struct RefusedRecord {
  std::string operation;
  int64_t lo = 0, hi = 0;
  std::string reason;
};

struct BuildReport {
  int64_t records = 0;        ///< records of this device and toolchain
  int64_t other_records = 0;  ///< records of other devices and toolchains, left alone
  int64_t binaries = 0;       ///< distinct binaries named by records that may serve
  int64_t there = 0, compiled = 0, failed = 0;
  std::vector<RefusedRecord> refused;
  double seconds = 0;
  bool interrupted = false;

  int64_t remaining() const { return binaries - there - compiled - failed; }
};

/// Returns the operation and workload to which the key belongs on the device, or nullopt for a key of another device,
/// toolchain or version. A key with texts that no engine of this release would write also gives nullopt.
std::optional<std::pair<const autotune::OpDef*, autotune::Workload>> owner_of(const autotune::Registry& registry,
                                                                              const cache::TuningKey& key,
                                                                              const DeviceInfo& device);

/// Compiles the binaries that `artifacts` lacks or has in a kind that does not serve, and replaces PTX if there is an
/// assembler now. A record that does not compile is counted and gives a warning.
BuildReport build_binaries(const autotune::Registry& registry, cache::TuningStore& store, ArtifactStore& artifacts,
                           Device& device);

/// Counts without compiling: `there` is the number of binaries that serve. Without `artifacts` only the records are
/// read.
BuildReport find_binaries(const autotune::Registry& registry, cache::TuningStore& store, ArtifactStore* artifacts,
                          Device& device);

}  // namespace seqtile::cli

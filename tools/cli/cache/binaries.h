// tools/cli/cache/binaries.h -- makes the binaries that the decisions in a tuning.db name, without measuring.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autotune/op_def.h"
#include "cache/tuning_store.h"
#include "jit/device/artifact_store.h"
#include "jit/device/device.h"

namespace seqtile::cli {

/// A record of this device that may not serve.
struct RefusedRecord {
  std::string operation;
  int64_t lo = 0, hi = 0;
  std::string reason;
};

struct BuildReport {
  int64_t records = 0;        ///< of this device and toolchain
  int64_t other_records = 0;  ///< of others: left alone
  int64_t binaries = 0;       ///< distinct ones that records name which may serve
  int64_t there = 0, compiled = 0, failed = 0;
  std::vector<RefusedRecord> refused;
  double seconds = 0;
  bool interrupted = false;

  int64_t remaining() const { return binaries - there - compiled - failed; }
};

/// The operation and workload whose key this is on the device; nothing of another device, toolchain or version.
/// What no engine would ask for, as texts that are not as they are written here, is another's too.
std::optional<std::pair<const autotune::OpDef*, autotune::Workload>> owner_of(const autotune::Registry& registry,
                                                                              const cache::TuningKey& key,
                                                                              const DeviceInfo& device);

/// Compiles what `artifacts` lacks or has of a kind that does not serve, and what it has as PTX where there is an
/// assembler now. A record that does not compile is a warning and counted.
BuildReport build_binaries(const autotune::Registry& registry, cache::TuningStore& store, ArtifactStore& artifacts,
                           Device& device);

/// Looks only: `there` are those that serve. Without `artifacts` at the records alone.
BuildReport find_binaries(const autotune::Registry& registry, cache::TuningStore& store, ArtifactStore* artifacts,
                          Device& device);

}  // namespace seqtile::cli

// jit/device/artifact_store.h -- where compiled binaries are kept: the interface that the cache implements.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "jit/device/kernel.h"

namespace seqtile {

/// The key of a stored binary: everything that its bytes depend on.
struct ArtifactKey {
  std::string hash;      ///< hex SHA-256 of `manifest`
  std::string manifest;  ///< readable: operation, source hash, static fields, configuration, target, toolchain
};

/// Thread-safe. Neither call throws for a damaged, foreign, locked or unwritable store: a load is then a miss, a store
/// a no-op with one log line and a counter.
class ArtifactStore {
 public:
  virtual ~ArtifactStore() = default;
  virtual std::optional<KernelBinary> load(const ArtifactKey& key) = 0;
  /// True when it is stored.
  virtual bool store(const ArtifactKey& key, const KernelBinary& binary) = 0;
  /// All of `keys` in one read transaction; absent ones are empty.
  virtual std::vector<std::optional<KernelBinary>> load_all(const std::vector<ArtifactKey>& keys) = 0;
};

}  // namespace seqtile

// autotune/engine/kernel_loader.h -- binaries from the artifact store, or from the compiler where the store has none.
// SPDX-License-Identifier: Apache-2.0
//
// An artifact is loaded once for all handles that use it. Missing binaries are compiled in parallel and stored.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "autotune/engine/usable.h"
#include "seqtile/device.h"
#include "seqtile/op.h"

namespace seqtile::autotune {

/// As compile() of the built kernel. Ranks that are threads have an engine each and want the same binary at once: the
/// first compiles it, the others wait for it. Errors: as compile() and the operation's build function, to all of them.
/// Thread-safe.
KernelBinary compile_shared(const OpDef& op, const Workload& workload, const Config& config, const Target& target);

class KernelLoader {
 public:
  using Compile = std::function<KernelBinary(const OpDef&, const Workload&, const Config&, const Target&)>;
  struct Result {
    std::shared_ptr<const LoadedKernel> kernel;  ///< null: `error` says why
    std::string error;
  };

  KernelLoader(Device& device, ArtifactStore& artifacts, Compile compile)
      : device_(device), artifacts_(artifacts), compile_(std::move(compile)) {}

  /// Returns one result a configuration, in order. `usable` belongs to this workload; a stored binary that
  /// usable.misfit() refuses, or that the device does not load, is compiled anew. Adds the number of compilations to
  /// `compiles`. Thread-safe.
  std::vector<Result> load(const OpDef& op, const Workload& workload, std::span<const Config> configs,
                           Usability& usable, int64_t& compiles);

 private:
  Result map(KernelBinary binary);
  Result compile_one(const OpDef& op, const Workload& workload, const Config& config, const ArtifactKey& key);

  Device& device_;
  ArtifactStore& artifacts_;
  Compile compile_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const LoadedKernel>> kernels_;  ///< by artifact hash
};

}  // namespace seqtile::autotune

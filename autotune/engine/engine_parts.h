// autotune/engine/engine_parts.h -- what an engine stands on; tests put fakes in.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autotune/engine.h"
#include "autotune/engine/kernel_loader.h"
#include "autotune/tuner.h"

namespace seqtile::autotune {

struct EngineParts {
  std::shared_ptr<Device> device;  ///< a fabric's is not owned
  int threads = 1;                 ///< that work on one launch
  KernelLoader::Compile compile;
  std::function<TuneReport(const Registry&, const std::vector<TuneRequest>&, const std::string& device,
                           cache::TuningStore&, ArtifactStore&, const TuneOptions&)>
      tune;
};

/// The device that the options name, the compiler and the tuner. Errors: unsupported, invalid_argument.
EngineParts make_engine_parts(const EngineOptions& options);
EngineParts make_engine_parts(const EngineOptions& options, Fabric& fabric);

/// Engine::open with given parts.
std::unique_ptr<Engine> open_engine(const EngineOptions& options, std::shared_ptr<const Registry> registry,
                                    EngineParts parts);
/// The same with a registry that outlives the engine.
std::unique_ptr<Engine> open_engine(const EngineOptions& options, const Registry& registry, EngineParts parts);

}  // namespace seqtile::autotune

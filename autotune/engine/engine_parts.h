// autotune/engine/engine_parts.h -- the device, compiler and tuner of an engine, which tests replace by fakes.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autotune/engine/kernel_loader.h"
#include "seqtile/engine.h"
#include "seqtile/tuner.h"

namespace seqtile::autotune {

struct EngineParts {
  std::shared_ptr<Device> device;  ///< without ownership if it belongs to a fabric
  int threads = 1;                 ///< of one launch; 1 for a GPU
  KernelLoader::Compile compile;
  std::function<TuneReport(const Registry&, const std::vector<TuneRequest>&, const std::string& device,
                           cache::TuningStore&, ArtifactStore&, const TuneOptions&)>
      tune;
};

/// The device that the options name, the compiler and the tuner. Errors: unsupported, invalid_argument.
EngineParts make_engine_parts(const EngineOptions& options);
/// The device of `fabric`'s rank, the compiler and the tuner.
EngineParts make_engine_parts(const EngineOptions& options, Fabric& fabric);

/// Engine::open with given parts.
std::unique_ptr<Engine> open_engine(const EngineOptions& options, std::shared_ptr<const Registry> registry,
                                    EngineParts parts);
/// Engine::open with given parts. Requires: `registry` outlives the engine and its handles.
std::unique_ptr<Engine> open_engine(const EngineOptions& options, const Registry& registry, EngineParts parts);

}  // namespace seqtile::autotune

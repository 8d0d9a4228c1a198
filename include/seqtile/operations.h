// include/seqtile/operations.h -- all operations of the library, and an engine that has them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "seqtile/engine.h"
#include "seqtile/ops/attention.h"
#include "seqtile/ops/collectives.h"
#include "seqtile/ops/linear.h"
#include "seqtile/ops/ranks.h"
#include "seqtile/ops/rows.h"

namespace seqtile::kernels {

/// All operations of the library; a program adds its own to it.
autotune::Registry make_registry();

}  // namespace seqtile::kernels

namespace seqtile {

/// An engine that knows the operations of the library. Errors: those of Engine::open.
std::unique_ptr<Engine> open_engine(const EngineOptions& options = {});
/// The same on the device of a rank; the fabric outlives the engine.
std::unique_ptr<Engine> open_engine(const EngineOptions& options, Fabric& fabric);

}  // namespace seqtile

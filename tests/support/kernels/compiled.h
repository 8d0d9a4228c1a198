// tests/support/kernels/compiled.h -- a compile() whose results all test programs of a build share.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "seqtile/device.h"
#include "seqtile/ir.h"
#include "seqtile/target.h"

namespace seqtile::testing {

/// As compile(function, target). A binary that any test program has compiled with this library is read from the build
/// folder instead. Tests of the compiler itself call compile(). Errors: as compile().
KernelBinary compiled(const ir::Function& function, const Target& target);

/// The value of EngineOptions::artifacts for tests that count no compilations. Sets SEQTILE_CONFIG_DIR, the folder of
/// the store's key, to the same folder.
std::string shared_artifacts();

}  // namespace seqtile::testing

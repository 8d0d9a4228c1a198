// tests/support/kernels/compiled.h -- compile() whose results all test programs of a build share.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "jit/device/kernel.h"
#include "jit/device/target.h"
#include "jit/ir/function.h"

namespace seqtile::testing {

/// compile(function, target). A binary that any test program has compiled with this very library is read from the build
/// folder instead. Tests of the compiler itself call compile().
/// Errors: as compile().
KernelBinary compiled(const ir::Function& function, const Target& target);

/// The same for engines: EngineOptions::artifacts of a test that counts no compilations. SEQTILE_CONFIG_DIR, where the
/// store's key lies, is set to the same folder.
std::string shared_artifacts();

}  // namespace seqtile::testing

// tests/support/compare_compiled.h -- a compiled kernel against the interpreter, on guarded memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "tests/support/operands.h"

namespace seqtile::testing {

/// Runs `function` interpreted and compiled for every CPU target that this machine executes, each once as if no output
/// fitted the caches; all memory must agree within `tolerance`. Behind each tensor's memory is a page that must not be
/// touched.
void compare_compiled(const ir::Function& function, Grid grid, const std::vector<Param>& params,
                      const std::vector<int64_t>& scalars = {}, double tolerance = 2e-5,
                      const std::vector<int>& alias = {});

}  // namespace seqtile::testing

// autotune/worker/count.h -- what a program of a small call does, counted by the PTX machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"

namespace seqtile::autotune {

/// Compiles `config` to PTX and runs the representative call of `length` in host memory.
/// Errors: those of compiling; whatever the machine does not know or finds wrong.
ProgramCounts count_program(const OpDef& op, const Workload& workload, const Config& config, int64_t length,
                            const Target& target);

}  // namespace seqtile::autotune

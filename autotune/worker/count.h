// autotune/worker/count.h -- the work of one program of a small call, counted by the PTX machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/gpu_model.h"
#include "seqtile/op.h"

namespace seqtile::autotune {

/// Compiles `config` to PTX, executes the representative call at `length` in host memory, and returns the mean counts
/// of its programs.
/// Errors: those of compiling; those of the PTX machine, for instructions it does not know and faults it finds.
ProgramCounts count_program(const OpDef& op, const Workload& workload, const Config& config, int64_t length,
                            const Target& target);

}  // namespace seqtile::autotune

// autotune/op_def.h -- what tuner and engine ask of an OpDef and its configurations.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>

#include "seqtile/op.h"

namespace seqtile::autotune {

/// Predicted microseconds by the operation's model for the target; only the order matters.
double predicted_us(const OpDef& op, const Workload& workload, const Config& config, int64_t length,
                    const Target& target);

/// The form of a configuration: the values of its text parameters, one a line, in the order of the parameters' names.
std::string form_of(const Config& config);

}  // namespace seqtile::autotune

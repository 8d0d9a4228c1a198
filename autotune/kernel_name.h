// autotune/kernel_name.h -- the name of a configuration's kernel, which is also the symbol of its binary.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "seqtile/op.h"

namespace seqtile::autotune {

/// "linear_f32_16_384_dot_576_4_6_avx512bf16": operation, dtype, the configuration's values in the order of their
/// names, target. Letters, digits and underscores only: '-' becomes 'm', '.' becomes 'p', other characters are dropped.
std::string kernel_name(const OpDef& op, const Workload& workload, const Config& config, const Target& target);

}  // namespace seqtile::autotune

// kernels/norm/rms_norm_grid.h -- how rms_norm_backward is cut into programs: configurations, workspaces, predictions.
// SPDX-License-Identifier: Apache-2.0
//
// rows: those of one tile; programs: those of the launch, whatever the length. Few programs leave threads idle, many
// leave many parts of the weight's gradient to add up.
#pragma once
#include "seqtile/ops/rows.h"

namespace seqtile::kernels::rms_norm_grid {

/// Programs whose parts one of them adds up, and how many such groups there are.
int64_t members(const autotune::Config& config);
int64_t num_groups(const autotune::Config& config);
std::vector<autotune::Workspace> workspaces(int64_t n, const autotune::Config& config);

autotune::ConfigSpace config_space(const RmsNormBackward& op, int threads, int64_t length, const Target& target);
autotune::Config default_config(const RmsNormBackward& op, int threads, int64_t length, const Target& target);
/// Microseconds, for ranking; of a GPU by gpu_work().
double predict_us(const RmsNormBackward& op, const autotune::Config& config, int threads, int64_t length,
                  const Target& target);
autotune::GpuWork gpu_work(const RmsNormBackward& op, const autotune::Config& config, int64_t length);

}  // namespace seqtile::kernels::rms_norm_grid

// bench/config_contestant.h -- one configuration of an operation, compiled and launched without records or engine.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <vector>

#include "bench/harness.h"
#include "seqtile/device.h"
#include "seqtile/op.h"

namespace seqtile::bench {

/// Compiles `config` as the tuner compiles a winner and launches it on `copies`, each a list of tensors in schema
/// order.
/// Errors: compile_failed.
std::unique_ptr<Contestant> make_config_contestant(const autotune::OpDef& op, const autotune::Workload& workload,
                                                   const autotune::Config& config, int64_t length,
                                                   std::vector<std::vector<Tensor>> copies,
                                                   std::shared_ptr<Device> device);

}  // namespace seqtile::bench

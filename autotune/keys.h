// autotune/keys.h -- the keys of tuning records and of binaries.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "seqtile/device.h"
#include "seqtile/op.h"
#include "seqtile/stores.h"

namespace seqtile::autotune {

/// The fields of an environment that describe the device: its kind and facts.
Fields machine_of(const DeviceInfo& device);
/// The key of tuning records. Environment: device, toolchain, measurement policy. On GPUs the workload has one thread.
cache::TuningKey make_key(const OpDef& op, const Workload& workload, const DeviceInfo& device,
                          const std::string& policy);
/// The key of a binary: operation, workload, configuration, target and toolchain.
ArtifactKey make_artifact_key(const OpDef& op, const Workload& workload, const Config& config, const Target& target);

}  // namespace seqtile::autotune

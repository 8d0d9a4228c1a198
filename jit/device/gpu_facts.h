// jit/device/gpu_facts.h -- peak rates, key and code target of a GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "seqtile/target.h"

namespace seqtile {

/// Fills in peak rates that are 0 from multiprocessors, clock and compute capability: drivers do not report them.
void estimate_peaks(GpuFacts& facts);

/// The part of a device's identity that decides about speed, sorted by name: clock class (100 MHz), memory class (8
/// GiB, rounded up: drivers keep some for themselves), MIG profile, multiprocessors, compute capability, code target.
/// Names and exact sizes are left out: they differ between drivers for one and the same GPU.
std::vector<std::pair<std::string, std::string>> key_facts(const GpuFacts& facts);

/// The code that a GPU runs: "sm_90a" at compute capability 9.0, else "sm_80", which later GPUs take as PTX.
/// Errors: unsupported below 8.0.
std::string gpu_target_name(const GpuFacts& facts);

}  // namespace seqtile

// jit/runtime/cuda/gpu_condition.h -- how a GPU runs at this moment, for the record of what is measured on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace seqtile::cuda {

inline constexpr const char* kManagementLibrary = "libnvidia-ml.so.1";

/// "1755 of 1980 MHz, memory 2619 MHz, 41 C, 312 W, slowed by sw_power_cap" of the GPU at a PCI bus
/// ("0000:3b:00.0"), as NVML tells it; values that NVML does not have are left out. Empty where NVML does not know the
/// GPU, or the machine has no NVML.
std::string gpu_condition(const std::string& pci_bus, const char* library = kManagementLibrary);

}  // namespace seqtile::cuda

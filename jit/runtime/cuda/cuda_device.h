// jit/runtime/cuda/cuda_device.h -- NVIDIA GPUs by the interface of every device.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "jit/runtime/cuda/cuda_driver.h"
#include "seqtile/device.h"
#include "seqtile/target.h"

namespace seqtile::cuda {

/// Number of GPUs that the process may use.
int num_gpus(const Driver& driver);

/// The driver's facts about a GPU. Errors: driver, also where there is no such GPU.
GpuFacts describe_gpu(const Driver& driver, int ordinal);

/// The identity of a GPU with these facts, with its code target. Errors: unsupported for GPUs before Ampere.
DeviceInfo info_of(const GpuFacts& facts);
/// The identity for lists of devices: with the CUDA version of the driver, which is no part of it otherwise.
DeviceInfo listed_info(const Driver& driver, int ordinal);
/// The architecture that ptxas is asked for: "sm_89" for the portable form on such a GPU, "sm_90a" on Hopper.
std::string cubin_arch_of(const GpuFacts& facts);

/// The device "cuda:<ordinal>", whose kernels are compiled for `target`.
/// Errors: driver when the context cannot be made.
std::unique_ptr<Device> make_cuda_device(std::shared_ptr<const Driver> driver, int ordinal, GpuFacts facts,
                                         Target target);

}  // namespace seqtile::cuda

// jit/fabric/transport/cuda_memory_link.h -- ranks on GPUs of their own, by the driver that is given; see
// seqtile/fabric.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "jit/runtime/cuda/cuda_driver.h"
#include "seqtile/fabric.h"

namespace seqtile::fabric {

std::unique_ptr<Fabric> make_cuda_fabric(std::shared_ptr<const cuda::Driver> driver,
                                         std::unique_ptr<Fabric> host_fabric, int gpu);

}  // namespace seqtile::fabric

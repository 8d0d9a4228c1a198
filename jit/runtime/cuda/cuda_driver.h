// jit/runtime/cuda/cuda_driver.h -- the NVIDIA driver of this machine, reached at run time only.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace seqtile::cuda {

/// True when libcuda.so.1 can be opened.
bool is_driver_present();

}  // namespace seqtile::cuda

// jit/runtime/cuda/cuda_driver.cpp -- see cuda_driver.h; the only place with dlopen.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/cuda_driver.h"

#include <dlfcn.h>

namespace seqtile::cuda {

bool is_driver_present() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return false;
  dlclose(library);
  return true;
}

}  // namespace seqtile::cuda

// jit/runtime/cuda/cuda_driver.h -- the NVIDIA driver of this machine, reached at run time only.
// SPDX-License-Identifier: Apache-2.0
//
// libcuda.so.1 is opened when the first GPU is asked for and stays open. Nothing is linked, so the same library and
// program run where there is no driver.
#pragma once
#include <memory>
#include <string>

#include "jit/runtime/cuda/cuda_types.h"

namespace seqtile::cuda {

inline constexpr const char* kDriverLibrary = "libcuda.so.1";
inline constexpr int kOldestDriver = 12000;  ///< 1000 * major + 10 * minor of the CUDA version that it supports

/// The driver's functions by name: `driver.cuInit(0)`.
struct Driver {
#define SEQTILE_CUDA_FUNCTION(name, symbol, parameters) CUresult(*name) parameters = nullptr;
#include "jit/runtime/cuda/cuda_driver.def"
#undef SEQTILE_CUDA_FUNCTION
  int version = 0;

  /// Opens and initialises the driver. Null where the machine has none.
  /// Errors: driver, when it is older than kOldestDriver, does not start, or finds no GPU; the message says what to do.
  static std::shared_ptr<const Driver> open(const char* library = kDriverLibrary);

  /// "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)".
  std::string describe(CUresult result) const;
};

/// "12.4" of 12040.
std::string version_text(int version);

}  // namespace seqtile::cuda

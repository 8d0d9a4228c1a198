// jit/runtime/cuda/cuda_driver.cpp -- see cuda_driver.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/cuda_driver.h"

#include <dlfcn.h>

#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile::cuda {
namespace {

template <class Function>
void resolve(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (!function)
    throw Error(ErrorCode::driver,
                fmt::format("the NVIDIA driver has no {}; it needs CUDA {} or newer (driver 525): update the driver",
                            symbol, version_text(kOldestDriver)));
}

void start(const Driver& driver) {
  const CUresult result = driver.cuInit(0);
  if (result == CUDA_SUCCESS) return;
  const char* advice = result == CUDA_ERROR_NO_DEVICE ? "look at CUDA_VISIBLE_DEVICES and the devices of the container"
                                                      : "see whether nvidia-smi works";
  throw Error(ErrorCode::driver, fmt::format("the NVIDIA driver (CUDA {}) does not start: {}; {}",
                                             version_text(driver.version), driver.describe(result), advice));
}

}  // namespace

std::shared_ptr<const Driver> Driver::open(const char* library) {
  // Never closed: the driver keeps threads of its own.
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return nullptr;
  auto driver = std::make_shared<Driver>();
  resolve(handle, "cuDriverGetVersion", driver->cuDriverGetVersion);
  if (driver->cuDriverGetVersion(&driver->version) != CUDA_SUCCESS || driver->version < kOldestDriver)
    throw Error(ErrorCode::driver,
                fmt::format("the NVIDIA driver supports CUDA {}, at least {} is needed (driver 525); update the driver",
                            version_text(driver->version), version_text(kOldestDriver)));
#define SEQTILE_CUDA_FUNCTION(name, symbol, parameters) resolve(handle, symbol, driver->name);
#include "jit/runtime/cuda/cuda_driver.def"
#undef SEQTILE_CUDA_FUNCTION
  start(*driver);
  return driver;
}

std::string Driver::describe(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) return fmt::format("CUDA error {}", result);
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) return name;
  return fmt::format("{} ({})", name, text);
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace seqtile::cuda

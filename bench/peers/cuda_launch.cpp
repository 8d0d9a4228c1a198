// bench/peers/cuda_launch.cpp -- see cuda_launch.h; our own declarations of the functions.
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/cuda_launch.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile::bench {
namespace {

struct Functions {
  int (*init)(unsigned) = nullptr;
  int (*get_device)(int*, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*release)(int) = nullptr;
  int (*push)(void*) = nullptr;
  int (*pop)(void**) = nullptr;
  int (*load)(void**, const void*, unsigned, int*, void**) = nullptr;
  int (*unload)(void*) = nullptr;
  int (*get_function)(void**, void*, const char*) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**) = nullptr;

  bool open() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    const auto find = [&](const char* symbol, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      return function != nullptr;
    };
    return find("cuInit", init) && find("cuDeviceGet", get_device) && find("cuDevicePrimaryCtxRetain", retain) &&
           find("cuDevicePrimaryCtxRelease_v2", release) && find("cuCtxPushCurrent_v2", push) &&
           find("cuCtxPopCurrent_v2", pop) && find("cuModuleLoadDataEx", load) && find("cuModuleUnload", unload) &&
           find("cuModuleGetFunction", get_function) && find("cuLaunchKernel", launch);
  }
};

void check(int status, const char* what) {
  if (status != 0) throw Error(ErrorCode::driver, fmt::format("{}: CUDA error {}; see nvidia-smi", what, status));
}

class LoadedLaunch final : public CudaLaunch {
 public:
  LoadedLaunch(const Functions& functions, const KernelBinary& kernel, int ordinal)
      : call_(functions), launch_(kernel.gpu) {
    check(call_.init(0), "cuInit");
    check(call_.get_device(&device_, ordinal), "cuDeviceGet");
    check(call_.retain(&context_, device_), "cuDevicePrimaryCtxRetain");
    check(call_.push(context_), "cuCtxPushCurrent");
    const std::string image(reinterpret_cast<const char*>(kernel.code.data()), kernel.code.size());
    check(call_.load(&module_, image.c_str(), 0, nullptr, nullptr), "cuModuleLoadDataEx");
    check(call_.get_function(&function_, module_, kernel.symbol.c_str()), "cuModuleGetFunction");
  }
  ~LoadedLaunch() override {
    call_.unload(module_);
    call_.pop(&context_);
    call_.release(device_);
  }

  void operator()(const Grid& grid, std::span<const uint64_t> slots, Stream stream) override {
    void *const buffer = reinterpret_cast<void*>(1), *const size = reinterpret_cast<void*>(2), *const end = nullptr;
    size_t bytes = slots.size_bytes();
    void* extra[] = {buffer, const_cast<uint64_t*>(slots.data()), size, &bytes, end};
    check(call_.launch(function_, static_cast<unsigned>(grid[0]), static_cast<unsigned>(grid[1]),
                       static_cast<unsigned>(grid[2]), launch_.threads, 1, 1, launch_.shared_bytes, stream.handle,
                       nullptr, extra),
          "cuLaunchKernel");
  }

 private:
  Functions call_;
  GpuLaunch launch_;
  int device_ = 0;
  void *context_ = nullptr, *module_ = nullptr, *function_ = nullptr;
};

}  // namespace

std::unique_ptr<CudaLaunch> open_cuda_launch(const KernelBinary& kernel, int ordinal) {
  if (kernel.gpu.is_persistent || !kernel.gpu.tensor_maps.empty() || kernel.gpu.is_cooperative)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("kernel {}: its launch is more than slots and a grid; take a row kernel", kernel.symbol));
  Functions functions;
  return functions.open() ? std::make_unique<LoadedLaunch>(functions, kernel, ordinal) : nullptr;
}

}  // namespace seqtile::bench

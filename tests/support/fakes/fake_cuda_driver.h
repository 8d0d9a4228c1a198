// tests/support/fakes/fake_cuda_driver.h -- controls the shared library in the role of libcuda.so.1.
// SPDX-License-Identifier: Apache-2.0
//
// The library keeps memory on the host, does copies and fills at once, and notes launches. The environment variable
// FAKE_CUDA describes the machine: "sm=89 gpus=2 version=11040 pools=0 name=NVIDIA_H200_MIG_1g.18gb island=1" (no other
// GPU reaches GPU 1). It also names the calls that fail: "cuInit=100" (every call), "cuLaunchKernelEx@2=700" (the
// second call since reset()). After an error that ends a context, every call except queries of errors returns that
// error again, as on a GPU.
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace seqtile::test {

struct FakeLaunch {
  unsigned grid[3], threads, shared_bytes;
  void* stream;
  std::vector<unsigned char> parameters;
  std::vector<int> attributes;  ///< numbers of the attributes
  unsigned cluster;
};

/// State that the library writes and tests read.
struct FakeCudaState {
  std::vector<FakeLaunch> launches;
  int live_contexts = 0, live_pools = 0, live_blocks = 0, live_streams = 0, live_events = 0, live_graphs = 0,
      live_executables = 0, live_modules = 0, live_opened = 0, pushed_contexts = 0;
  int dynamic_shared_limit = 0;  ///< last value set for a function
  std::string image;             ///< image of the last module
};

/// The library, reset, with FAKE_CUDA set to `what` during the life of the object.
class FakeCuda {
 public:
  explicit FakeCuda(const std::string& what = "") {
    setenv("FAKE_CUDA", what.c_str(), 1);
    library_ = dlopen(FAKE_CUDA_DRIVER, RTLD_NOW | RTLD_LOCAL);
    reinterpret_cast<void (*)()>(dlsym(library_, "fake_cuda_reset"))();
  }
  ~FakeCuda() {
    unsetenv("FAKE_CUDA");
    dlclose(library_);
  }
  void now(const std::string& what) { setenv("FAKE_CUDA", what.c_str(), 1); }
  FakeCudaState& state() { return *reinterpret_cast<FakeCudaState* (*)()>(dlsym(library_, "fake_cuda_state"))(); }
  int calls(const char* name) {
    return reinterpret_cast<int (*)(const char*)>(dlsym(library_, "fake_cuda_calls"))(name);
  }
  static constexpr const char* kPath = FAKE_CUDA_DRIVER;

 private:
  void* library_ = nullptr;
};

}  // namespace seqtile::test

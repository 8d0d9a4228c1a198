// bench/peers/cublas.cpp -- see cublas.h; our own declarations of the five functions.
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/cublas.h"

#include <dlfcn.h>

#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile::bench {
namespace {

using Handle = void*;
constexpr int kNo = 0, kTransposed = 1;          // cublasOperation_t
constexpr int kF16 = 2, kBf16 = 14;              // cudaDataType_t
constexpr int kSumsInF32 = 68, kAnyMethod = -1;  // cublasComputeType_t, cublasGemmAlgo_t

struct Functions {
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*set_stream)(Handle, void*) = nullptr;
  int (*get_version)(Handle, int*) = nullptr;
  int (*gemm)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
              void*, int, int, int, int) = nullptr;

  bool load() {
    void* library = nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"})
      if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    const auto find = [&](const char* symbol, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      return function != nullptr;
    };
    return find("cublasCreate_v2", create) && find("cublasDestroy_v2", destroy) &&
           find("cublasSetStream_v2", set_stream) && find("cublasGetVersion_v2", get_version) &&
           find("cublasGemmEx", gemm);
  }
};

class LoadedCublas final : public Cublas {
 public:
  LoadedCublas(const Functions& functions, Handle handle) : call_(functions), handle_(handle) {}
  ~LoadedCublas() override { call_.destroy(handle_); }

  std::string version() const override {
    int number = 0;
    call_.get_version(handle_, &number);
    return fmt::format("cuBLAS {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  }

  void linear(const Tensor& x, const Tensor& w, const Tensor& y, Stream stream) override {
    const float one = 1, zero = 0;
    const int type = x.dtype == DType::bf16 ? kBf16 : kF16;
    const auto m = static_cast<int>(x.sizes[0]), n = static_cast<int>(w.sizes[0]), k = static_cast<int>(w.sizes[1]);
    // cuBLAS has column-major matrices, so it computes y transposed = w times x transposed.
    int status = call_.set_stream(handle_, stream.handle);
    if (status == 0)
      status = call_.gemm(handle_, kTransposed, kNo, n, m, k, &one, w.data, type, k, x.data, type, k, &zero, y.data,
                          type, n, kSumsInF32, kAnyMethod);
    if (status != 0) throw Error(ErrorCode::driver, fmt::format("cublasGemmEx: status {}", status));
  }

 private:
  Functions call_;
  Handle handle_;
};

}  // namespace

std::unique_ptr<Cublas> open_cublas() {
  Functions functions;
  Handle handle = nullptr;
  if (!functions.load() || functions.create(&handle) != 0) return nullptr;
  return std::make_unique<LoadedCublas>(functions, handle);
}

}  // namespace seqtile::bench

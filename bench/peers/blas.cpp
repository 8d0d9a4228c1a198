// bench/peers/blas.cpp -- opens OpenBLAS and MKL with dlopen and declares the entry points that are used.
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/blas.h"

#include <dlfcn.h>

#include <cstdlib>

#include "seqtile/error.h"

namespace seqtile::bench {
namespace {

constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
constexpr int kMklThreadingGnu = 3;  // GNU OpenMP, which oneDNN uses too: two runtimes would compete for the cores

using Gemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
using Gemv = void (*)(int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
using GemmBf16 = void (*)(int, int, int, int, int, int, float, const void*, int, const void*, int, float, float*, int);

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

class OpenedBlas : public Blas {
 public:
  OpenedBlas(void* library, std::string version, const char* thread_setter, bool has_slow_row)
      : version_(std::move(version)),
        gemm_(symbol<Gemm>(library, "cblas_sgemm")),
        gemv_(has_slow_row ? symbol<Gemv>(library, "cblas_sgemv") : nullptr),
        gemm_bf16_(symbol<GemmBf16>(library, "cblas_gemm_bf16bf16f32")),
        set_threads_(symbol<void (*)(int)>(library, thread_setter)) {
    if (!gemm_ || !set_threads_) throw Error(ErrorCode::unsupported, "bench: " + version_ + " lacks cblas_sgemm");
  }

  std::string version() const override { return version_; }
  void set_threads(int threads) override { set_threads_(threads); }

  void linear_f32(const Tensor& x, const Tensor& w, const Tensor& y) override {
    const int m = static_cast<int>(x.sizes[0]), k = static_cast<int>(x.sizes[1]), n = static_cast<int>(w.sizes[0]);
    const auto* a = static_cast<const float*>(x.data);
    const auto* b = static_cast<const float*>(w.data);
    auto* c = static_cast<float*>(y.data);
    if (m == 1 && gemv_) return gemv_(kRowMajor, kNoTrans, n, k, 1.0f, b, k, a, 1, 0.0f, c, 1);
    gemm_(kRowMajor, kNoTrans, kTrans, m, n, k, 1.0f, a, k, b, k, 0.0f, c, n);
  }

  bool linear_bf16(const Tensor& x, const Tensor& w, const Tensor& y) override {
    if (!gemm_bf16_) return false;
    const int m = static_cast<int>(x.sizes[0]), k = static_cast<int>(x.sizes[1]), n = static_cast<int>(w.sizes[0]);
    gemm_bf16_(kRowMajor, kNoTrans, kTrans, m, n, k, 1.0f, x.data, k, w.data, k, 0.0f, static_cast<float*>(y.data), n);
    return true;
  }

 private:
  std::string version_;
  Gemm gemm_;
  Gemv gemv_;
  GemmBf16 gemm_bf16_;
  void (*set_threads_)(int);
};

bool has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

}  // namespace

std::unique_ptr<Blas> open_openblas() {
  // Old releases treat an unknown CPU as a Haswell. The 0 keeps a choice of the user.
  if (has_avx512()) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
  setenv("OPENBLAS_THREAD_TIMEOUT", "22", 0);  // idle workers spin for 2^22 cycles, not 2^26, before they sleep
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) return nullptr;
  std::string version = "OpenBLAS";
  if (const auto config = symbol<const char* (*)()>(library, "openblas_get_config")) version = config();
  return std::make_unique<OpenedBlas>(library, version, "openblas_set_num_threads", true);
}

std::unique_ptr<Blas> open_mkl(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    throw Error(ErrorCode::io,
                "bench: --mkl " + path + ": " + dlerror() + "; give the path of the wheel's libmkl_rt.so.N");
  }
  if (const auto layer = symbol<int (*)(int)>(library, "MKL_Set_Threading_Layer")) layer(kMklThreadingGnu);
  char text[200] = "MKL";
  if (const auto describe = symbol<void (*)(char*, int)>(library, "MKL_Get_Version_String")) {
    describe(text, sizeof text - 1);
  }
  std::string version(text);
  while (!version.empty() && version.back() == ' ') version.pop_back();
  return std::make_unique<OpenedBlas>(library, version, "MKL_Set_Num_Threads", false);
}

}  // namespace seqtile::bench

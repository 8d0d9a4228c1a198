// bench/peers/blas.h -- OpenBLAS and MKL as peers, opened at run time.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>

#include "seqtile/tensor.h"

namespace seqtile::bench {

/// A BLAS with the C interface. Not thread-safe: the number of threads is global state of the library.
class Blas {
 public:
  virtual ~Blas() = default;
  virtual std::string version() const = 0;
  virtual void set_threads(int threads) = 0;
  /// y = x w^T in f32. Shapes: x [m, k], w [n, k], y [m, n], dense.
  virtual void linear_f32(const Tensor& x, const Tensor& w, const Tensor& y) = 0;
  /// As linear_f32(), with bf16 x and w and f32 y. Returns false if the library has no such product.
  virtual bool linear_bf16(const Tensor& x, const Tensor& w, const Tensor& y) = 0;
};

/// The distribution's OpenBLAS, or null. On any CPU with AVX-512 it uses its SkylakeX kernels, unless the user chose
/// others.
std::unique_ptr<Blas> open_openblas();
/// MKL's single dynamic library (libmkl_rt.so.N) at `path`. Errors: io when it cannot be opened.
std::unique_ptr<Blas> open_mkl(const std::string& path);

}  // namespace seqtile::bench

// bench/peers/cublas.h -- NVIDIA's matrix products as a peer, if the machine has the library.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>

#include "seqtile/device.h"
#include "seqtile/tensor.h"

namespace seqtile::bench {

/// libcublas.so.13, .12 or .11, opened at run time. Uses the current GPU: cuda:0.
class Cublas {
 public:
  virtual ~Cublas() = default;
  virtual std::string version() const = 0;
  /// y = x w^T, accumulated in f32. Shapes: x [m, k], w [n, k], y [m, n], dense, bf16 or f16. Errors: driver.
  virtual void linear(const Tensor& x, const Tensor& w, const Tensor& y, Stream stream) = 0;
};

/// Null if the library is missing or does not start.
std::unique_ptr<Cublas> open_cublas();

}  // namespace seqtile::bench

// bench/peers/cublas.h -- NVIDIA's matrix products as a peer, where the machine has the library.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>

#include "jit/device/device.h"
#include "jit/device/tensor.h"

namespace seqtile::bench {

/// libcublas.so.13, .12 or .11, opened when it is asked for. Works on the GPU that is current: cuda:0.
class Cublas {
 public:
  virtual ~Cublas() = default;
  virtual std::string version() const = 0;
  /// y[m, n] = x[m, k] x w[n, k] transposed, dense tensors of bf16 or f16, accumulated in f32. Errors: driver.
  virtual void linear(const Tensor& x, const Tensor& w, const Tensor& y, Stream stream) = 0;
};

/// Null where there is no such library or it does not start.
std::unique_ptr<Cublas> open_cublas();

}  // namespace seqtile::bench

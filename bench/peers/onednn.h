// bench/peers/onednn.h -- oneDNN as a peer, linked where the build finds it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>

#include "jit/device/tensor.h"

namespace seqtile::bench {

/// y = x w^T with x [m, k], w [n, k], y [m, n] of one dtype. Created for one shape and thread count.
class OnednnLinear {
 public:
  virtual ~OnednnLinear() = default;
  /// With the weight as given.
  virtual void run(const Tensor& x, const Tensor& w, const Tensor& y) = 0;
  /// Stores `w` in the library's own layout under the number `copy`; run_packed() uses it.
  virtual void pack(int copy, const Tensor& w) = 0;
  virtual void run_packed(int copy, const Tensor& x, const Tensor& y) = 0;
};

/// Empty when this build has no oneDNN.
std::string onednn_version();
/// Chooses the faster of the library's two forms (matmul, inner product) by a trial on the given operands.
/// Errors: unsupported when this build has no oneDNN.
std::unique_ptr<OnednnLinear> make_onednn_linear(const Tensor& x, const Tensor& w, const Tensor& y, int threads,
                                                 bool packed);

}  // namespace seqtile::bench

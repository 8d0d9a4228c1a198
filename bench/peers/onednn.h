// bench/peers/onednn.h -- oneDNN as a peer, linked if the build finds it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>

#include "seqtile/tensor.h"

namespace seqtile::bench {

/// y = x w^T of one dtype. Shapes: x [m, k], w [n, k], y [m, n]. Made for one shape and thread count.
class OnednnLinear {
 public:
  virtual ~OnednnLinear() = default;
  /// Uses the weight in the given layout.
  virtual void run(const Tensor& x, const Tensor& w, const Tensor& y) = 0;
  /// Stores `w` in the library's own layout as weight number `copy`, for run_packed().
  virtual void pack(int copy, const Tensor& w) = 0;
  virtual void run_packed(int copy, const Tensor& x, const Tensor& y) = 0;
};

/// Empty if this build has no oneDNN.
std::string onednn_version();
/// Tries the library's two forms, matmul and inner product, on the given operands and takes the faster one.
/// Errors: unsupported if this build has no oneDNN.
std::unique_ptr<OnednnLinear> make_onednn_linear(const Tensor& x, const Tensor& w, const Tensor& y, int threads,
                                                 bool packed);

}  // namespace seqtile::bench

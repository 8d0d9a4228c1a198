// kernels/linear/linear.h -- y = scale * activation(x w^T + bias) + residual, for one to three weights or a gated pair.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>

#include "autotune/op_def.h"
#include "kernels/act/activation.h"
#include "kernels/op/call.h"

namespace seqtile::kernels {

/// Several weights share the reading of x in one launch (query, key and value projections); a gated pair makes one
/// output: activation(x w^T + bias) * (x w2^T + bias2). Accumulated in f32, rounded to the storage format once.
struct Linear {
  int64_t n = 0, n2 = 0, n3 = 0;  ///< outputs; n2, n3: 0 where there is no such weight
  int64_t k = 0;
  bool bias = false;
  Activation activation = Activation::none;
  bool gated = false;     ///< w and w2 are both [n, k]; n2 and n3 stay 0
  bool residual = false;  ///< added at last; one output only
  bool packed = false;    ///< weights come from pack_linear_weight()
  int64_t panel = 0;      ///< columns of a packed panel; 0: default_panel() of this machine
  DType dtype = DType::f32;
  int threads = 1;
  bool tf32 = false;    ///< f32 on GPUs: operands rounded to tf32, a third of the work
  double scale = 1;     ///< of what activation and gate give
  double soft_cap = 0;  ///< what that gives becomes soft_cap * tanh(. / soft_cap), before the residual; 0: left alone

  /// Shapes: x [length, k]; w.. [n, k] as in nn.Linear, or [ceil(n / panel), k, panel] packed; bias.. [n]; residual and
  /// y [length, n], y2 [length, n2], y3 [length, n3]. The residual may be y itself.
  struct Args {
    Tensor x, w, w2, w3, bias, bias2, bias3, residual, y, y2, y3;
  };
  autotune::Workload workload() const;
  static Call pack(const Args& a, const autotune::Schema&) {
    return Call(a.x.sizes[0], {&a.x, &a.w, &a.w2, &a.w3, &a.bias, &a.bias2, &a.bias3, &a.residual, &a.y, &a.y2, &a.y3});
  }
};

/// Columns of a weight panel that suit `target`'s registers.
int64_t default_panel(const Target& target);
/// Elements of the packed form of a weight [n, k].
int64_t packed_linear_elements(int64_t n, int64_t k, int64_t panel);
/// Rearranges weight [n, k] into panels [ceil(n / panel), k, panel], the last one padded with zeros. `packed` is a
/// dense tensor of that shape and of the weight's dtype. Errors: invalid_argument on any other shape or dtype.
void pack_linear_weight(const Tensor& weight, const Tensor& packed);

autotune::OpDef linear();

}  // namespace seqtile::kernels

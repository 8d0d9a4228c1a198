// kernels/seqpar/fused_linear.h -- linear layers of a sequence-parallel model: one launch communicates and computes.
// SPDX-License-Identifier: Apache-2.0
//
// The sequence of s tokens is cut over P ranks: rank r owns rows [floor(r s / P), floor((r + 1) s / P)), perhaps none.
// A column-parallel layer gathers the rows and computes its own columns of all of them; a row-parallel layer computes
// partial sums of all rows and gives each rank the sums of its own. docs/sequence_parallel.md explains how.
#pragma once
#include "autotune/op_def.h"
#include "kernels/linear.h"
#include "kernels/seqpar/channel_args.h"

namespace seqtile::kernels::seqpar {

/// y = epilogue(gather(x) w^T), the epilogue of linear; one to three weights, or a gated pair. Sizes are this rank's.
struct FusedAllgatherAndLinear {
  int world_size = 1;
  int64_t n = 0, n2 = 0, n3 = 0;  ///< columns of this rank's weights
  int64_t k = 0;
  bool bias = false;
  Activation activation = Activation::none;
  bool gated = false;
  DType dtype = DType::f32;
  std::string fabric = "threads";  ///< Fabric::kind(): part of the key
  int threads = 1;

  /// Shapes: x [own rows, k]; w.. [n, k] as in nn.Linear; bias.. [n]; y [length, n], y2 [length, n2], y3 [length, n3].
  struct Args {
    Tensor x, w, w2, w3, bias, bias2, bias3, y, y2, y3;
  };
  autotune::Workload workload() const;
  static constexpr const char* kCutTensor = "x";
  static int64_t cut_rows(const Args& a) { return a.x.sizes[0]; }
  static Call pack(const Args& a, int64_t length) {
    return Call(length, {&a.x, &a.w, &a.w2, &a.w3, &a.bias, &a.bias2, &a.bias3, &a.y, &a.y2, &a.y3});
  }
};

/// Own rows of y = epilogue(sum over ranks of x w^T) + residual; k is this rank's share, bias and residual are added
/// once, by the owner of a row. Partial sums are rounded to `transport`, the owner's too, and added from rank 0 on: the
/// same bits for every schedule that takes k in the same slices.
struct FusedLinearAndReducescatter {
  int world_size = 1;
  int64_t n = 0, k = 0;
  bool bias = false;
  Activation activation = Activation::none;
  bool residual = false;
  DType transport = DType::f32;
  DType dtype = DType::f32;
  std::string fabric = "threads";
  int threads = 1;

  /// Shapes: x [length, k]; w [n, k]; bias [n]; residual and y [own rows, n].
  struct Args {
    Tensor x, w, bias, residual, y;
  };
  autotune::Workload workload() const;
  static constexpr const char* kCutTensor = "y";
  static int64_t cut_rows(const Args& a) { return a.y.sizes[0]; }
  static Call pack(const Args& a, int64_t length) { return Call(length, {&a.x, &a.w, &a.bias, &a.residual, &a.y}); }
};

/// The static arguments that all ranks must give alike, operation and dtype among them. A rank's share of the weights
/// may differ from those of its peers, and so may its threads.
autotune::Fields common_arguments(const autotune::Workload& workload);
/// Whether two configurations of an operation put the same on the wire, whatever else differs.
bool look_alike(const autotune::Config& a, const autotune::Config& b);

/// What a channel must have for calls of the operation with up to `capacity` rows of all ranks, whatever was tuned.
ChannelNeeds channel_needs(const autotune::Workload& workload, int64_t capacity);

autotune::OpDef fused_allgather_and_linear();
autotune::OpDef fused_linear_and_reducescatter();

}  // namespace seqtile::kernels::seqpar

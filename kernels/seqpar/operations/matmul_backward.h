// kernels/seqpar/operations/matmul_backward.h -- backward of the products that communicate: one launch of each rank,
// too.
// SPDX-License-Identifier: Apache-2.0
//
// A layer's backward pass is two products over the same rows: of the gradient with the weight, and with what the layer
// was given, summed over the rows. "Leading" is the column-parallel product at the start of a block, whose input is
// gathered; "trailing" the row-parallel one at its end. docs/seqpar/guide.md says what is sent and what hides it.
#pragma once
#include "kernels/seqpar/exchange/rank_tensors.h"

namespace seqtile::kernels::seqpar {

/// The backward pass of FusedLinearAndReducescatter: du = gather(dz) w and dw = gather(dz)^T u, by one gather. k is
/// this rank's share. Sums of dw are over the rows that there are, in f32: the own ones first, then those of rank + 1,
/// ...
struct SequenceParallelTrailingMatmulBackward {
  static constexpr std::string_view kName = "sequence_parallel_trailing_matmul_backward";
  static constexpr std::array<std::string_view, 1> kShares = {"k"};
  int64_t n = 0, k = 0;       ///< of the weight [n, k]
  bool accumulate = false;    ///< dw = before + the sums
  bool f32_gradient = false;  ///< dw is f32, whatever the operands are: main gradients
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: dz [own rows, n]; w, before and dw [n, k]; u and du [length, k]. `before` is there with `accumulate`, and
  /// may be dw itself, which an aborted call fills with NaN.
  template <class T>
  struct Tensors {
    T dz, w, u, before{}, du, dw;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("dz", t.dz, {kOwnRows, n});
    v.weight("w", t.w, {n, k});
    v.input("u", t.u, {kLength, k});
    if (accumulate) v.input("before", t.before, {n, k}, {.dtype = dw_dtype()});
    v.output("du", t.du, {kLength, k});
    v.output("dw", t.dw, {n, k}, {.dtype = dw_dtype(), .in_place = {"before"}});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  DType dw_dtype() const { return f32_gradient ? DType::f32 : dtype; }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

/// The backward pass of FusedAllgatherAndLinear: own rows of dx = sum over ranks and weights of dy_i w_i, and dw_i =
/// dy_i^T gather(x). The products of several weights are one sum, in f32; each rank's is rounded to `transport` and
/// added from rank 0 on.
struct SequenceParallelLeadingMatmulBackward {
  static constexpr std::string_view kName = "sequence_parallel_leading_matmul_backward";
  static constexpr std::array<std::string_view, 3> kShares = {"n", "n2", "n3"};
  int64_t n = 0, n2 = 0, n3 = 0;  ///< columns of this rank's outputs; n2, n3: 0 where there is none
  int64_t k = 0;
  bool accumulate = false;
  bool f32_gradient = false;
  DType transport = DType::f32;
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: dy.. [length, n]; w.., before.. and dw.. [n, k]; x and dx [own rows, k]. `before` as above.
  template <class T>
  struct Tensors {
    T dy, dy2{}, dy3{}, w, w2{}, w3{}, x, before{}, before2{}, before3{}, dx, dw, dw2{}, dw3{};
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("dy", t.dy, {kLength, n});
    if (n2) v.input("dy2", t.dy2, {kLength, n2});
    if (n3) v.input("dy3", t.dy3, {kLength, n3});
    v.weight("w", t.w, {n, k});
    if (n2) v.weight("w2", t.w2, {n2, k});
    if (n3) v.weight("w3", t.w3, {n3, k});
    v.input("x", t.x, {kOwnRows, k});
    if (accumulate) v.input("before", t.before, {n, k}, {.dtype = dw_dtype()});
    if (accumulate && n2) v.input("before2", t.before2, {n2, k}, {.dtype = dw_dtype()});
    if (accumulate && n3) v.input("before3", t.before3, {n3, k}, {.dtype = dw_dtype()});
    v.output("dx", t.dx, {kOwnRows, k});
    v.output("dw", t.dw, {n, k}, {.dtype = dw_dtype(), .in_place = {"before"}});
    if (n2) v.output("dw2", t.dw2, {n2, k}, {.dtype = dw_dtype(), .in_place = {"before2"}});
    if (n3) v.output("dw3", t.dw3, {n3, k}, {.dtype = dw_dtype(), .in_place = {"before3"}});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  DType dw_dtype() const { return f32_gradient ? DType::f32 : dtype; }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef sequence_parallel_trailing_matmul_backward();
autotune::OpDef sequence_parallel_leading_matmul_backward();

}  // namespace seqtile::kernels::seqpar

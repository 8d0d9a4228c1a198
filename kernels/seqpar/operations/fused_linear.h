// kernels/seqpar/operations/fused_linear.h -- linear layers of a sequence-parallel model: one launch communicates and
// computes.
// SPDX-License-Identifier: Apache-2.0
//
// The sequence of s tokens is cut over P ranks: rank r owns rows [floor(r s / P), floor((r + 1) s / P)), perhaps none.
// A column-parallel layer gathers the rows and computes its own columns of all of them; a row-parallel layer computes
// partial sums of all rows and gives each rank the sums of its own. docs/seqpar/guide.md explains how.
#pragma once
#include "kernels/linear/linear.h"
#include "kernels/seqpar/exchange/rank_tensors.h"

namespace seqtile::kernels::seqpar {

/// y = epilogue(gather(x) w^T); one to three weights, or a gated pair.
struct FusedAllgatherAndLinear {
  static constexpr std::string_view kName = "fused_allgather_and_linear";
  static constexpr std::array<std::string_view, 3> kShares = {"n", "n2", "n3"};
  Linear linear = {};  ///< n, n2, n3: columns of this rank's weights
  Ranks ranks = {};    ///< prepare() sets them

  /// Shapes: x [own rows, k]; the others as Linear has them.
  template <class T>
  using Tensors = Linear::Tensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    CutTensors cut(v, {{"x", kOwnRows}});
    linear.tensors(cut, t);
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }
  DType& storage() { return linear.dtype; }
  const DType& storage() const { return linear.dtype; }

  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

/// y = epilogue(sum over ranks of x w^T); one weight, or a gated pair. Bias and residual are added once. Partial sums
/// are rounded to `transport`, the owner's too, and added from rank 0 on: the same bits for every schedule that takes k
/// in the same slices. With `norm` a second output is rms_norm(y).
template <bool has_all_rows>
struct SummedLinear {
  static constexpr std::string_view kName = has_all_rows ? "linear_and_allreduce" : "fused_linear_and_reducescatter";
  static constexpr std::array<std::string_view, 1> kShares = {"k"};
  Linear linear = {};  ///< k: this rank's share
  DType transport = DType::f32;
  bool norm = false;
  double eps = 1e-5;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: x [length, k]; w.. [n, k]; bias.. and norm_weight [n]; residual, y and normed [own rows, n], or [length,
  /// n] where every rank has all rows. w3, bias3, y2 and y3 stay empty.
  template <class T>
  struct Tensors {
    T x, w, w2{}, w3{}, bias{}, bias2{}, bias3{}, residual{}, y, y2{}, y3{}, norm_weight{}, normed{};
    Linear::Tensors<T> of_linear() const { return {x, w, w2, w3, bias, bias2, bias3, residual, y, y2, y3}; }
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    const Extent rows = has_all_rows ? kLength : kOwnRows;
    CutTensors cut(v, {{"residual", rows}, {"y", rows}});
    linear.tensors(cut, t);
    if (norm) v.weight("norm_weight", t.norm_weight, {linear.n});
    if (norm) v.output("normed", t.normed, {rows, linear.n});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }
  DType& storage() { return linear.dtype; }
  const DType& storage() const { return linear.dtype; }

  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

/// Own rows of the sum.
using FusedLinearAndReducescatter = SummedLinear<false>;
/// All rows on every rank, the same bits, and the residual the same on every rank: in one shot for few rows, else in
/// two.
using LinearAndAllreduce = SummedLinear<true>;

autotune::OpDef fused_allgather_and_linear();
autotune::OpDef fused_linear_and_reducescatter();
autotune::OpDef linear_and_allreduce();

}  // namespace seqtile::kernels::seqpar

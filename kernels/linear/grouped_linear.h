// kernels/linear/grouped_linear.h -- each row of x times the weight of its expert, for rows that are sorted by expert.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <vector>

#include "kernels/linear/linear.h"

namespace seqtile::kernels {

/// The linear layer of a mixture of experts, of all experts in one launch: y = activation(x w^T) or, gated,
/// activation(x w^T) * (x w2^T). Sums are those of Linear.
/// Expert e has the rows offsets[e] to offsets[e + 1] - 1, any number of them. Rows before offsets[0] and from
/// offsets[experts] on belong to no expert; y is left alone there.
struct GroupedLinear {
  static constexpr std::string_view kName = "grouped_linear";
  int64_t experts = 0;
  int64_t n = 0, k = 0;  ///< of each weight [n, k]
  Activation activation = Activation::none;
  bool gated = false;
  DType dtype = DType::f32;

  /// Shapes: x [length, k], the rows of all experts; offsets i32 [experts + 1], ascending, within 0 to the length; w
  /// and w2 [experts, n, k]; y [length, n]. w2 is there where it is gated.
  template <class T>
  struct Tensors {
    T x, offsets, w, w2{}, y;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, k});
    v.input("offsets", t.offsets, {experts + 1}, {.dtype = DType::i32, .borders = RowLists{.limit = kLength}});
    v.weight("w", t.w, {experts, n, k}, {.mean = 0, .deviation = deviation()});
    if (gated) v.weight("w2", t.w2, {experts, n, k}, {.mean = 0, .deviation = deviation()});
    v.output("y", t.y, {kLength, n});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  /// The layer of one expert.
  Linear layer() const;
  /// Rows of each expert in a call that the tuner makes. Routers are not even: expert e has a share of about
  /// 1 / sqrt(1 + e'), e' counting the experts in a mixed order. Of 64 experts the first has 4.3 times the mean.
  std::vector<int64_t> typical_rows(int64_t length) const;

  std::vector<linear_op::Tile> tiles(int threads, int64_t length, const Target& target) const;
  [[noreturn]] void refuse(const Target& target) const;  ///< no tile fits
  double predict_us(const linear_op::Tile& tile, int threads, int64_t length, const Target& target) const;
  autotune::GpuWork gpu_work(const linear_op::Tile& tile, int64_t length, const Target& target) const;
  std::vector<autotune::GpuSample> gpu_samples(const linear_op::Tile& tile, int64_t length) const;
  autotune::Cost cost(int64_t length) const;
  std::array<autotune::SizeExpr, 3> grid(const linear_op::Tile& tile) const;
  void build(KernelBuilder& b, const Tensors<Var>& v, const linear_op::Tile& tile, const Target& target) const;
  bool fill(std::string_view arg, const Tensors<Tensor>& t) const;
  void reference(const Tensors<Tensor>& t, std::span<const int64_t> rows, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance() const;

 private:
  double deviation() const;
};

autotune::OpDef grouped_linear();

}  // namespace seqtile::kernels

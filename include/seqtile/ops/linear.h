// include/seqtile/ops/linear.h -- products with weights: linear, its weight gradient, grouped linear.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "seqtile/operation.h"
#include "seqtile/ops/rows.h"

namespace seqtile::kernels {

namespace linear_op {
struct Tile;
}

/// [n, k] as in nn.Linear; panels of pack_linear_weight(), for CPUs; [k, n], as gradients of inputs need them.
enum class WeightLayout { plain, packed, transposed };

/// y = scale * activation(x w^T + bias) + residual. One to three weights share the reading of x in one launch (query,
/// key and value projections). A gated pair makes one output: activation(x w^T + bias) * (x w2^T + bias2). Sums are
/// accumulated in f32 and rounded to the storage format once.
struct Linear {
  static constexpr std::string_view kName = "linear";
  int64_t n = 0, n2 = 0, n3 = 0;  ///< outputs; n2, n3: 0 where there is no such weight
  int64_t k = 0;
  bool bias = false;
  Activation activation = Activation::none;
  bool gated = false;     ///< w and w2 are both [n, k]; n2 and n3 stay 0
  bool residual = false;  ///< added at last; one output only
  WeightLayout weight_layout = WeightLayout::plain;
  int64_t panel = 0;  ///< columns of a packed panel; 0: default_panel() of this machine
  DType dtype = DType::f32;
  bool tf32 = false;    ///< f32 on GPUs: operands rounded to tf32, a third of the work
  double scale = 1;     ///< of what activation and gate give
  double soft_cap = 0;  ///< what that gives becomes soft_cap * tanh(. / soft_cap), before the residual; 0: left alone

  /// Shapes: x [length, k]; w.. [n, k], [ceil(n / panel), k, panel] packed or [k, n] transposed; bias.. [n]; residual
  /// and y [length, n], y2 [length, n2], y3 [length, n3]. The residual may be y itself.
  template <class T>
  struct Tensors {
    T x, w, w2{}, w3{}, bias{}, bias2{}, bias3{}, residual{}, y, y2{}, y3{};
    std::array<T, 3> weights() const { return {w, w2, w3}; }
    std::array<T, 3> biases() const { return {bias, bias2, bias3}; }
    std::array<T, 3> outputs() const { return {y, y2, y3}; }
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, k});
    weight(v, "w", t.w, n);
    if (num_weights() > 1) weight(v, "w2", t.w2, weight_columns(1));
    if (num_weights() > 2) weight(v, "w3", t.w3, n3);
    if (bias) v.weight("bias", t.bias, {n});
    if (bias && num_weights() > 1) v.weight("bias2", t.bias2, {weight_columns(1)});
    if (bias && num_weights() > 2) v.weight("bias3", t.bias3, {n3});
    if (residual) v.input("residual", t.residual, {kLength, n});
    v.output("y", t.y, {kLength, n}, {.in_place = {"residual"}});
    if (n2) v.output("y2", t.y2, {kLength, n2});
    if (n3) v.output("y3", t.y3, {kLength, n3});
  }
  autotune::Workload workload() const;

  bool is_packed() const { return weight_layout == WeightLayout::packed; }
  bool is_transposed() const { return weight_layout == WeightLayout::transposed; }
  std::vector<int64_t> columns() const;  ///< of each output
  int num_outputs() const { return n3 ? 3 : n2 ? 2 : 1; }
  int num_weights() const { return gated ? 2 : num_outputs(); }
  int64_t weight_columns(int i) const { return gated || i == 0 ? n : i == 1 ? n2 : n3; }
  int weights_per_loop() const { return gated ? 2 : 1; }

  /// The members of a tile_kernel(). `result`: the dtype of y, where it is not that of x.
  using Tile = linear_op::Tile;
  std::vector<Tile> tiles(const Setting& s, std::optional<DType> result = {}) const;
  [[noreturn]] void refuse(const Target& target) const;
  double predict_us(const Tile& tile, const Setting& s) const;  ///< of a GPU by gpu_work()
  autotune::GpuWork gpu_work(const Tile& tile, const Setting& s) const;
  std::vector<autotune::GpuSample> gpu_samples(const Tile& tile, int64_t length) const;
  double flops(int64_t length) const;
  std::array<autotune::SizeExpr, 3> grid(const Tile& tile) const;
  void build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const;
  void reference(const Tensors<Tensor>& t, std::span<const int64_t> rows, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance() const;

 private:
  void weight(auto& v, std::string_view name, auto& slot, int64_t columns) const {
    const int64_t panels =
        panel ? (columns + panel - 1) / panel : 0;  // unknown where a struct leaves it to the machine
    if (is_packed()) v.weight(name, slot, {panels, k, panel}, {.mean = 0, .deviation = deviation(), .dense = true});
    else if (is_transposed()) v.weight(name, slot, {k, columns});
    else v.weight(name, slot, {columns, k});
  }
  double deviation() const;  ///< of generated weights, where packing hides k behind another dimension
};

/// Columns of a weight panel that suit `target`'s registers.
int64_t default_panel(const Target& target);
/// Elements of the packed form of a weight [n, k].
int64_t packed_linear_elements(int64_t n, int64_t k, int64_t panel);
/// Rearranges weight [n, k] into panels [ceil(n / panel), k, panel], the last one padded with zeros. `packed` is a
/// dense tensor of that shape and of the weight's dtype. Errors: invalid_argument on any other shape or dtype.
void pack_linear_weight(const Tensor& weight, const Tensor& packed);

autotune::OpDef linear();

/// dw = dy^T x, summed over the rows: the other half of the backward pass of y = x w^T; the gradient of x is linear
/// with transposed weights. Sums run over the rows that there are, in f32 and in one order that only the configuration
/// decides.
struct LinearWgrad {
  static constexpr std::string_view kName = "linear_wgrad";
  int64_t n = 0, k = 0;       ///< of the weight [n, k]
  bool accumulate = false;    ///< dw = before + the sums
  bool f32_gradient = false;  ///< dw is f32, whatever x and dy are: main gradients
  DType dtype = DType::f32;

  /// Shapes: dy [length, n], x [length, k]; before and dw [n, k]. `before` is there with `accumulate`, and may be dw
  /// itself.
  template <class T>
  struct Tensors {
    T dy, x, before{}, dw;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("dy", t.dy, {kLength, n});
    v.input("x", t.x, {kLength, k});
    if (accumulate) v.input("before", t.before, {n, k}, {.dtype = dw_dtype()});
    v.output("dw", t.dw, {n, k}, {.dtype = dw_dtype(), .in_place = {"before"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  DType dw_dtype() const { return f32_gradient ? DType::f32 : dtype; }
  /// The linear layer whose product this is: n rows, k columns and a depth of the length. Configurations and
  /// predictions are that layer's, but for form "matrix".
  Linear product(int64_t length) const;

  using Tile = linear_op::Tile;
  std::vector<Tile> tiles(const Setting& s) const;
  [[noreturn]] void refuse(const Target& target) const;
  double predict_us(const Tile& tile, const Setting& s) const;
  autotune::GpuWork gpu_work(const Tile& tile, const Setting& s) const;
  std::vector<autotune::GpuSample> gpu_samples(const Tile& tile, int64_t length) const;
  double flops(int64_t length) const;
  std::array<autotune::SizeExpr, 3> grid(const Tile& tile) const;
  void build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const;
  void reference(const Tensors<Tensor>& t, std::span<const int64_t> rows, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance(int64_t length) const;
};

autotune::OpDef linear_wgrad();

/// Each row of x times the weight of its expert, for rows that are sorted by expert: the linear layer of a mixture of
/// experts, of all experts in one launch: y = activation(x w^T) or, gated,
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

  using Tile = linear_op::Tile;
  std::vector<Tile> tiles(const Setting& s) const;
  [[noreturn]] void refuse(const Target& target) const;
  double predict_us(const Tile& tile, const Setting& s) const;
  autotune::GpuWork gpu_work(const Tile& tile, const Setting& s) const;
  std::vector<autotune::GpuSample> gpu_samples(const Tile& tile, int64_t length) const;
  autotune::Cost cost(int64_t length) const;
  std::array<autotune::SizeExpr, 3> grid(const Tile& tile) const;
  void build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const;
  bool fill(std::string_view arg, const Tensors<Tensor>& t) const;
  void reference(const Tensors<Tensor>& t, std::span<const int64_t> rows, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance() const;

 private:
  double deviation() const;
};

autotune::OpDef grouped_linear();

}  // namespace seqtile::kernels

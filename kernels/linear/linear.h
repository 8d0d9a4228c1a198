// kernels/linear/linear.h -- y = scale * activation(x w^T + bias) + residual, for one to three weights or a gated pair.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "kernels/act/activation.h"
#include "kernels/op/op_fields.h"
#include "kernels/op/op_tensors.h"

namespace seqtile::kernels {

namespace linear_op {
struct Tile;
}

/// [n, k] as in nn.Linear; panels of pack_linear_weight(), for CPUs; [k, n], as gradients of inputs need them.
enum class WeightLayout { plain, packed, transposed };

/// Several weights share the reading of x in one launch (query, key and value projections); a gated pair makes one
/// output: activation(x w^T + bias) * (x w2^T + bias2). Accumulated in f32, rounded to the storage format once.
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

  /// Every tile worth measuring for lengths near `length`. `result`: the dtype of y, where it is not that of x.
  std::vector<linear_op::Tile> tiles(int threads, int64_t length, const Target& target,
                                     std::optional<DType> result = {}) const;
  [[noreturn]] void refuse(const Target& target) const;  ///< no tile fits
  /// Microseconds, for ranking; of a GPU by gpu_work().
  double predict_us(const linear_op::Tile& tile, int threads, int64_t length, const Target& target) const;
  /// GPUs: what one program does, and small calls that show it.
  autotune::GpuWork gpu_work(const linear_op::Tile& tile, int64_t length, const Target& target) const;
  std::vector<autotune::GpuSample> gpu_samples(const linear_op::Tile& tile, int64_t length) const;
  double flops(int64_t length) const;
  std::array<autotune::SizeExpr, 3> grid(const linear_op::Tile& tile) const;
  void build(KernelBuilder& b, const Tensors<Var>& v, const linear_op::Tile& tile, const Target& target) const;
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

}  // namespace seqtile::kernels

// include/seqtile/ops/rows.h -- operations that work row by row: norms, activations, rope, embedding, softmax.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "seqtile/operation.h"

namespace seqtile::kernels {

struct Setting;

/// The activations that fuse into other kernels.
enum class Activation { none, silu, gelu, gelu_tanh, relu_squared };
inline constexpr std::array<std::string_view, 5> kActivationNames = {"none", "silu", "gelu", "gelu_tanh",
                                                                     "relu_squared"};

/// y = activation(left half of x) * right half of x, for each row: the gate of a gated MLP (SwiGLU: silu, GeGLU: gelu)
/// for models that keep gate and up projection in one tensor.
struct ActAndMul {
  static constexpr std::string_view kName = "act_and_mul";
  int64_t n = 0;  ///< columns of y
  DType dtype = DType::f32;
  Activation activation = Activation::silu;

  /// Shapes: x [length, 2 n], y [length, n].
  template <class T>
  struct Tensors {
    T x, y;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, 2 * n});
    v.output("y", t.y, {kLength, n});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  int64_t tile_columns() const { return n; }
  double flops_a_row() const { return 12 * static_cast<double>(n); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
};

autotune::OpDef act_and_mul();

/// dgate = dy up activation'(gate), dup = dy activation(gate); laid out as gate and up are in x.
struct ActAndMulBackward {
  static constexpr std::string_view kName = "act_and_mul_backward";
  int64_t n = 0;  ///< columns of dy
  DType dtype = DType::f32;
  Activation activation = Activation::silu;

  /// Shapes: dy [length, n]; x, dx [length, 2 n]. dx may be x.
  template <class T>
  struct Tensors {
    T dy, x, dx;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("dy", t.dy, {kLength, n});
    v.input("x", t.x, {kLength, 2 * n});
    v.output("dx", t.dx, {kLength, 2 * n}, {.in_place = {"x"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  /// Columns of a program. Rows of wide models are cut into equal parts, so that a GPU's threads hold in registers the
  /// six values that they compute with for each column. Where that is not possible parts are smaller, as threads then
  /// test and address each element for itself, and the last one is shorter.
  int64_t block_columns() const;
  int64_t tile_columns() const { return 3 * block_columns(); }
  double flops_a_row() const { return 18 * static_cast<double>(n); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
};

autotune::OpDef act_and_mul_backward();

/// y = (x - mean) / sqrt(variance + eps) * weight + bias for each row, computed in f32; the variance is taken about the
/// mean, in a second pass over the row.
struct LayerNorm {
  static constexpr std::string_view kName = "layer_norm";
  int64_t n = 0;
  double eps = 1e-5;
  bool bias = true;
  bool residual = false;  ///< sum = x + residual is written out, and normalised in place of x
  DType dtype = DType::f32;

  /// Shapes: x, residual, y, sum [length, n]; weight, bias [n]. bias only with `bias`, residual and sum with
  /// `residual`. y and sum may be x or residual.
  template <class T>
  struct Tensors {
    T x, residual{}, weight, bias{}, y, sum{};
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, n});
    if (residual) v.input("residual", t.residual, {kLength, n});
    v.weight("weight", t.weight, {n}, {.mean = 1});
    if (bias) v.weight("bias", t.bias, {n}, {.mean = 0});
    v.output("y", t.y, {kLength, n}, {.in_place = {"x", "residual"}});
    if (residual) v.output("sum", t.sum, {kLength, n}, {.in_place = {"x", "residual"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  int64_t tile_columns() const { return 2 * n; }
  double flops_a_row() const { return 7 * static_cast<double>(n); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance() const;
};

autotune::OpDef layer_norm();

/// y = x / sqrt(mean(x^2) + eps) * (weight_offset + weight) for each row (Zhang and Sennrich, NeurIPS 2019), computed
/// in f32, also of and before a sum.
struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm";
  /// With `residual`: sum = x + residual, y = norm(sum); sum = norm(x) + residual, without y; sum = norm(x) + residual,
  /// y = norm(sum).
  enum class Normed { sum, x, both };
  int64_t n = 0;
  double eps = 1e-5;
  bool residual = false;  ///< the sum is written out
  Normed normed = Normed::sum;
  double weight_offset = 0;  ///< 1 for Gemma, whose weights are stored as the difference from 1
  DType dtype = DType::f32;

  /// Shapes: x, residual, y, sum [length, n]; weight, x_weight [n]. residual and sum only with `residual`; x_weight,
  /// the weight of norm(x), only where that is taken; weight and y not where it alone is. y and sum may be x or
  /// residual.
  template <class T>
  struct Tensors {
    T x, residual{}, x_weight{}, weight{}, y{}, sum{};
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, n});
    if (residual) v.input("residual", t.residual, {kLength, n});
    if (norms_x()) v.weight("x_weight", t.x_weight, {n}, {.mean = 1 - weight_offset});
    if (has_result()) v.weight("weight", t.weight, {n}, {.mean = 1 - weight_offset});
    if (has_result()) v.output("y", t.y, {kLength, n}, {.in_place = {"x", "residual"}});
    if (residual) v.output("sum", t.sum, {kLength, n}, {.in_place = {"x", "residual"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }
  bool norms_x() const { return residual && normed != Normed::sum; }
  bool has_result() const { return !residual || normed != Normed::x; }

  int64_t tile_columns() const { return 2 * n; }
  double flops_a_row() const { return 4 * static_cast<double>(n) * (norms_x() + has_result()); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance() const;
};

autotune::OpDef rms_norm();

/// The gradients of y = x r (weight_offset + weight) with r = 1 / sqrt(mean(x^2) + eps), which is computed again: with
/// g = dy (weight_offset + weight), dx = r (g - x r^2 mean(g x)) and dweight = the sum over the rows of dy x r.
struct RmsNormBackward {
  static constexpr std::string_view kName = "rms_norm_backward";
  int64_t n = 0;
  double eps = 1e-5;
  bool residual = false;  ///< adds the gradient that reaches x beside the norm
  double weight_offset = 0;
  DType dtype = DType::f32;

  /// Shapes: dy, x, residual, dx [length, n]; weight [n]; dweight [1, n] f32. x is what the norm saw: of a norm with
  /// residual, its `sum`. dx may be dy, x or residual.
  template <class T>
  struct Tensors {
    T dy, x, residual{}, weight, dx, dweight;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("dy", t.dy, {kLength, n});
    v.input("x", t.x, {kLength, n});
    if (residual) v.input("residual", t.residual, {kLength, n});
    v.weight("weight", t.weight, {n}, {.mean = 1 - weight_offset});
    v.output("dx", t.dx, {kLength, n}, {.in_place = {"dy", "x", "residual"}});
    v.output("dweight", t.dweight, {1, n}, {.dtype = DType::f32});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  /// `rows` are those of one tile, `programs` those of the launch, whatever the length is. Few programs leave threads
  /// idle, many leave many parts of dweight to add up.
  struct Tile {
    int64_t rows = 0, programs = 0;
    std::optional<int64_t> num_warps = {};
    /// Programs whose parts one of them adds up, and how many such groups there are.
    int64_t members() const;
    int64_t num_groups() const;
  };
  void parameters(auto& v, auto& tile) const {
    v("rows", tile.rows);
    v("programs", tile.programs);
    v("num_warps", tile.num_warps);
  }
  std::vector<Tile> tiles(const Setting& s) const;
  [[noreturn]] void refuse(const Target& target) const;
  double predict_us(const Tile& tile, const Setting& s) const;  ///< of a GPU by gpu_work()
  autotune::GpuWork gpu_work(const Tile& tile, const Setting& s) const;
  std::array<autotune::SizeExpr, 3> grid(const Tile& tile) const { return {autotune::SizeExpr{tile.programs}}; }
  std::vector<autotune::Workspace> workspaces(const Tile& tile) const;
  double flops(int64_t length) const { return 12 * static_cast<double>(length * n); }
  void build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const;
  void reference(const Tensors<Tensor>& t, std::span<const int64_t> rows, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance(int64_t length) const;
};

autotune::OpDef rms_norm_backward();

// Rope: the frequencies are an input, not a part of the operation: one kernel serves every way to scale them, and a
// server changes the table when a sequence grows. Angles are fractions of a full circle in 32-bit fixed point, whose
// product with a position wraps around as angles do: position 2^24 is as right as position 1.

/// Row 0: 2^32 times the turns per position, the fraction. Rows 1 and 2 hold bits of f32: radians per position that
/// row 0 leaves out, and the factor of sine and cosine.
constexpr int64_t kRopeTableRows = 3;

/// Rotary position embedding of query and key heads, with a norm of each head before it: rotates pairs of each head's
/// first `rotary_dim` elements by position * turns of the pair, multiplies them by the table's factor and copies the
/// rest. Source: Su et al., RoFormer (2021).
struct Rope {
  static constexpr std::string_view kName = "rope";
  enum class Style { half, interleaved };
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t rotary_dim = 0;     ///< 0: head_dim
  Style style = Style::half;  ///< pair i is (i, i + rotary_dim / 2), or interleaved: (2 i, 2 i + 1)
  bool inverse = false;       ///< by the opposite angles: the gradient of the input from that of the output
  bool norm = false;          ///< first the root-mean-square norm of each head, as of rms_norm; not with inverse
  double eps = 1e-6, weight_offset = 0;  ///< of the norm
  DType dtype = DType::f32;

  /// Shapes: q, q_out [length, heads, head_dim]; k, k_out [length, kv_heads, head_dim]; positions [length] i32, any;
  /// table [kRopeTableRows, rotary_dim / 2] i32, of fill_rope_table(); q_norm, k_norm [head_dim], only with `norm`.
  /// In place (q_out over q, k_out over k) is allowed.
  template <class T>
  struct Tensors {
    T q, k, positions, table, q_norm{}, k_norm{}, q_out, k_out;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("q", t.q, {kLength, heads, head_dim});
    v.input("k", t.k, {kLength, kv_heads, head_dim});
    v.input("positions", t.positions, {kLength}, {.dtype = DType::i32});
    v.input("table", t.table, {kRopeTableRows, pairs()}, {.dtype = DType::i32});
    if (norm) v.weight("q_norm", t.q_norm, {head_dim}, {.mean = 1 - weight_offset});
    if (norm) v.weight("k_norm", t.k_norm, {head_dim}, {.mean = 1 - weight_offset});
    v.output("q_out", t.q_out, {kLength, heads, head_dim}, {.in_place = {"q"}});
    v.output("k_out", t.k_out, {kLength, kv_heads, head_dim}, {.in_place = {"k"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }
  int64_t pairs() const { return (rotary_dim ? rotary_dim : head_dim) / 2; }

  int64_t tile_columns() const { return 4 * pairs() + (heads + kv_heads) * head_dim; }
  double flops_a_row() const { return static_cast<double>((norm ? 7 : 3) * (heads + kv_heads) * head_dim); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance() const;
};

/// theta^(-2 i / rotary_dim) / (2 pi): turns per position of each pair, without scaling.
std::vector<double> rope_turns(int64_t rotary_dim, double theta);
/// Writes `table`; `factor` multiplies what is rotated (the attention factor of YaRN and LongRoPE).
/// Errors: invalid_argument where the table is not [kRopeTableRows, number of turns] of i32.
void fill_rope_table(std::span<const double> turns, double factor, const Tensor& table);

autotune::OpDef rope();

/// y[t] = scale * table[ids[t]]. An id outside of the table is refused on CPUs, and gives zeros on GPUs.
struct Embedding {
  static constexpr std::string_view kName = "embedding";
  int64_t vocab = 0, n = 0;
  double scale = 1;  ///< sqrt(n) for Gemma
  DType dtype = DType::f32;

  /// Shapes: ids [length] i32, table [vocab, n], y [length, n].
  template <class T>
  struct Tensors {
    T ids, table, y;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("ids", t.ids, {kLength}, {.dtype = DType::i32, .rows_of = vocab});
    v.weight("table", t.table, {vocab, n});
    v.output("y", t.y, {kLength, n});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  int64_t tile_columns() const { return n; }
  double flops_a_row() const { return static_cast<double>(n); }
  int64_t gathered_bytes_a_row() const { return n * dtype_bytes(dtype); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
};

autotune::OpDef embedding();

/// y = exp(x - max x) / sum exp(x - max x) for each row, computed in f32.
struct Softmax {
  static constexpr std::string_view kName = "softmax";
  int64_t n = 0;
  DType dtype = DType::f32;

  /// Shapes: x, y [length, n]. y may be x.
  template <class T>
  struct Tensors {
    T x, y;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, n});
    v.output("y", t.y, {kLength, n}, {.in_place = {"x"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  int64_t tile_columns() const { return 2 * n; }
  double flops_a_row() const { return 12 * static_cast<double>(n); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance() const;
};

autotune::OpDef softmax();

}  // namespace seqtile::kernels

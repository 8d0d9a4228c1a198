// kernels/rows/rope.h -- rotary position embedding of query and key heads, with a norm of each head before it.
// SPDX-License-Identifier: Apache-2.0
//
// The frequencies are an input, not a part of the operation: one kernel serves every way to scale them, and a server
// changes the table when a sequence grows. Angles are fractions of a full circle in 32-bit fixed point, whose product
// with a position wraps around as angles do: position 2^24 is as right as position 1.
#pragma once
#include <span>
#include <vector>

#include "kernels/op/op_fields.h"
#include "kernels/op/op_tensors.h"

namespace seqtile::kernels {

/// Row 0: 2^32 times the turns per position, the fraction. Rows 1 and 2 hold bits of f32: radians per position that
/// row 0 leaves out, and the factor of sine and cosine.
constexpr int64_t kRopeTableRows = 3;

/// Rotates pairs of each head's first `rotary_dim` elements by position * turns of the pair, multiplies them by the
/// table's factor and copies the rest. Source: Su et al., RoFormer (2021).
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

}  // namespace seqtile::kernels

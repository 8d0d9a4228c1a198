// kernels/rope.h -- rotary position embedding of query and key heads, with a norm of each head before it.
// SPDX-License-Identifier: Apache-2.0
//
// The frequencies are an input, not a part of the operation: one kernel serves every way to scale them, and a server
// changes the table when a sequence grows. Angles are fractions of a full circle in 32-bit fixed point, whose product
// with a position wraps around as angles do: position 2^24 is as right as position 1.
#pragma once
#include <span>
#include <vector>

#include "autotune/op_def.h"
#include "kernels/call.h"

namespace seqtile::kernels {

/// Rotates pairs of each head's first `rotary_dim` elements by position * turns of the pair, multiplies them by the
/// table's factor and copies the rest. Source: Su et al., RoFormer (2021).
struct Rope {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t rotary_dim = 0;      ///< 0: head_dim
  std::string style = "half";  ///< pair i is (i, i + rotary_dim / 2): "half"; (2 i, 2 i + 1): "interleaved"
  bool inverse = false;        ///< by the opposite angles: the gradient of the input from that of the output
  bool norm = false;           ///< first the root-mean-square norm of each head, as of rms_norm; not with inverse
  double eps = 1e-6, weight_offset = 0;  ///< of the norm
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: q, q_out [length, heads, head_dim]; k, k_out [length, kv_heads, head_dim]; positions [length] i32, any;
  /// table [kRopeTableRows, rotary_dim / 2] i32, of fill_rope_table(); q_norm, k_norm [head_dim], only with `norm`.
  /// In place (q_out over q, k_out over k) is allowed.
  struct Args {
    Tensor q, k, positions, table, q_norm{}, k_norm{}, q_out, k_out;
  };
  autotune::Workload workload() const;
  static Call pack(const Args& a, const autotune::Schema&) {
    return Call(a.q.sizes[0], {&a.q, &a.k, &a.positions, &a.table, &a.q_norm, &a.k_norm, &a.q_out, &a.k_out});
  }
};

/// Row 0: 2^32 times the turns per position, the fraction. Rows 1 and 2 hold bits of f32: radians per position that
/// row 0 leaves out, and the factor of sine and cosine.
constexpr int64_t kRopeTableRows = 3;

/// theta^(-2 i / rotary_dim) / (2 pi): turns per position of each pair, without scaling.
std::vector<double> rope_turns(int64_t rotary_dim, double theta);
/// Writes `table`; `factor` multiplies what is rotated (the attention factor of YaRN and LongRoPE).
/// Errors: invalid_argument where the table is not [kRopeTableRows, number of turns] of i32.
void fill_rope_table(std::span<const double> turns, double factor, const Tensor& table);

autotune::OpDef rope();

}  // namespace seqtile::kernels

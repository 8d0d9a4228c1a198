// kernels/linear/linear_shape.h -- what the parts of linear share: static fields, configurations and their prediction.
// SPDX-License-Identifier: Apache-2.0
//
// A program computes block_m x block_n outputs in one of these forms. "outer": k is taken in slices of kc; the slices
// of x and w are packed into panels of mr rows and nr columns, and mr x nr accumulators, vectors along n, take outer
// products. "dot": nothing is packed; mr x nr accumulators are vectors along k, summed up at the end: each weight is
// streamed just once, which is all that matters for few rows. "transposed", of x and y, not of weights: y^T = w x^T;
// slices of x are packed into panels of mr rows, weights are broadcast from where they lie, nr columns at a time,
// accumulators are vectors along the rows. It is near the machine's peak from a few dozen rows, but takes weights only
// as they are: [n, k], not packed, not to be converted. "matrix": products of bf16 in the matrix registers of CPUs with
// AMX, 16 x 16 sums each, mr rows of x with nr columns; plain weights are read as in the transposed form, others are
// packed as in the outer one. A gated pair computes nr columns of both weights in one loop.
#pragma once
#include <vector>

#include "autotune/op_def.h"
#include "kernels/act/activation.h"

namespace seqtile::kernels {
class WorkloadReader;
}

namespace seqtile::kernels::linear_op {

/// The static fields of linear, which operations that multiply as it does have among theirs. Errors: those of the
/// reader, and fields that exclude each other.
void read_fields(WorkloadReader& reader);

struct Shape {
  explicit Shape(const autotune::Workload& w);
  /// y = x w + residual and nothing else, w as [k, n].
  static Shape transposed_product(DType dtype, int64_t n, int64_t k, bool residual = false);
  std::vector<int64_t> n;  ///< columns of each output
  int64_t k;
  bool bias, gated, residual, packed;
  bool transposed;  ///< weights are [k, n]
  int64_t panel;    ///< columns of a packed panel
  Activation activation;
  double scale, soft_cap;  ///< of linear alone
  bool tf32;               ///< of f32 products on GPUs: one of rounded operands, where f32 takes three
  DType dtype, result;     ///< of the operands and of y

  int num_weights() const { return gated ? 2 : static_cast<int>(n.size()); }
  int64_t weight_columns(int i) const { return gated ? n[0] : n[i]; }
  int weights_per_loop() const { return gated ? 2 : 1; }
};

struct Tile {
  std::string form;  ///< "dot" | "outer" | "transposed" | "matrix", "mma" on GPUs
  int64_t block_m, block_n, mr, nr, kc;
  int64_t num_warps = 0, num_stages = 0;  ///< GPUs
  int64_t cluster = 0;                    ///< Hopper: programs along the rows that share tiles of w

  static Tile from(const autotune::Config& config);
  autotune::Config config() const;
  bool is_of_gpu() const { return form == "mma"; }
  int64_t threads() const { return 32 * num_warps; }  ///< of a GPU's block
};

/// Of a block on a GPU. Products of one kernel that follow each other share both parts.
struct SharedBytes {
  SharedBytes(const Shape& shape, const Tile& tile);
  int64_t sum() const;
  int64_t operands;  ///< buffers of x and w of all stages
  int64_t results;   ///< room to give them another layout
};

/// Nothing when `tile` fits registers, caches and layout, else the reason.
std::optional<std::string> refusal(const Shape& shape, const Tile& tile, int threads, const Target& target);
/// GPUs: what the threads of a block hold in registers, the sums and the halves of an f32 product's operands that are
/// under way.
int64_t values_of_block(const Shape& shape, const Tile& tile);
/// Every tile worth measuring for lengths near `length`.
std::vector<Tile> candidates(const Shape& shape, int threads, int64_t length, const Target& target);
/// Microseconds, for ranking; of a GPU by gpu_work().
double predict_us(const Shape& shape, const Tile& tile, int threads, int64_t length, const Target& target);

/// GPUs: what one program does, and small calls that show it.
autotune::GpuWork gpu_work(const Shape& shape, const autotune::Config& config, int64_t length, const Target& target);
std::vector<autotune::GpuSample> gpu_samples(const autotune::Workload& w, const autotune::Config& config,
                                             int64_t length);

/// x w^T of each weight, [rows, columns], for these rows of x.
std::vector<std::vector<double>> reference_products(const Shape& shape, const autotune::Problem& p,
                                                    const std::vector<std::vector<double>>& x);
/// Bias, activation, gate, scale, cap, and the residual's rows `rows`.
void reference_epilogue(const Shape& shape, const autotune::Problem& p, std::span<const int64_t> rows,
                        std::vector<std::vector<double>> products, std::vector<std::vector<double>>& outputs);
void reference(const autotune::Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs);

}  // namespace seqtile::kernels::linear_op

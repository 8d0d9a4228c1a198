// kernels/linear/linear_config.h -- configurations of products: the tile that a program computes.
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
#include <compare>
#include <optional>
#include <string>

#include "seqtile/ops/linear.h"

namespace seqtile::kernels::linear_op {

struct Tile {
  std::string form;  ///< "dot" | "outer" | "transposed" | "matrix", "mma" on GPUs
  int64_t block_m, block_n, mr, nr, kc;
  int64_t num_warps = 0, num_stages = 0;  ///< GPUs
  int64_t cluster = 0;                    ///< Hopper: programs along the rows that share tiles of w; 0 elsewhere

  static Tile from(const autotune::Config& config);
  autotune::Config config() const;
  auto operator<=>(const Tile&) const = default;
  bool is_of_gpu() const { return form == "mma"; }
  int64_t threads() const { return 32 * num_warps; }  ///< of a GPU's block
};

/// The shared memory of a block on a GPU. Products of one kernel that follow each other share both parts. `result`: as
/// of Linear::tiles.
struct SharedBytes {
  SharedBytes(const Linear& op, const Tile& tile, std::optional<DType> result = {});
  int64_t sum() const;
  int64_t operands;  ///< buffers of x and w of all stages
  int64_t results;   ///< room to give them another layout
};

/// For kernels that read rows or weights which no tensor map covers, of an expert or of several ranks: Hopper takes the
/// portable loop.
Target portable(Target target);
/// Nothing when `tile` fits registers, caches and layout, else the reason.
std::optional<std::string> refusal(const Linear& op, const Tile& tile, int threads, const Target& target,
                                   std::optional<DType> result = {});
/// Work of the busiest thread in blocks of block_m rows: threads take the programs in turn, each column block's last
/// block of rows is a smaller one.
double busiest_thread(int64_t column_blocks, int64_t length, int64_t block_m, int threads);
/// GPUs: what the threads of a block hold in registers, the sums and the halves of an f32 product's operands that are
/// under way.
int64_t values_of_block(const Linear& op, const Tile& tile);

}  // namespace seqtile::kernels::linear_op

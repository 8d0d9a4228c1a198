// kernels/attention/attention_backward_config.cpp -- configurations of attention_backward and the models that rank
// them.
// SPDX-License-Identifier: Apache-2.0
//
// Programs of keys do four products for each query head of their group, programs of queries three.
#include <algorithm>
#include <bit>

#include "jit/base/cdiv.h"
#include "kernels/attention/attention_parts.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels {

using autotune::GpuWork;
namespace attention_backward_op {
namespace {

using Tile = AttentionBackward::Tile;

constexpr double kProducts = 7;

/// f32 values of a program of keys: two sums, keys and values, scores, weights, and four tiles of the other side.
int64_t tile_values(const AttentionBackward& s, int64_t block, int64_t block_n) {
  return 4 * block * s.head_dim + 3 * block * block_n + 4 * block_n * s.head_dim;
}

std::vector<Tile> cpu_tiles(const AttentionBackward& s, int64_t length, const Target& target) {
  const int64_t rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
  std::vector<Tile> tiles;
  for (const int64_t block : {16, 32, 64, 128, 256})
    for (const int64_t block_n : {16, 32, 64, 128, 256}) {
      if ((block > 16 && block > rows) || (block_n > 16 && block_n > rows)) continue;
      if (std::max(block, block_n) > 16 && 4 * tile_values(s, block, block_n) > target.l2_bytes) continue;
      tiles.push_back({.block = block, .block_n = block_n});
    }
  return tiles;
}

struct GpuNeed {
  int64_t values, shared_bytes;  ///< values in registers, of all threads
};

/// Registers of a GPU's threads hold the sums and the scores; of f32 operands two halves are under way as well.
GpuNeed gpu_need(const AttentionBackward& s, int64_t block, int64_t block_n, int64_t num_warps, int64_t num_stages) {
  constexpr int64_t kReserved = 2048;
  const int64_t sums = 2 * block * s.head_dim + 3 * block * block_n;
  const int64_t operands = s.dtype == DType::f32 ? block * s.head_dim : 0;
  // Warps that do not find 16 rows each share the columns of the scores, eight or more each: those of a tile's rows.
  const int64_t columns = 8 * num_warps / std::min(num_warps, block / 16), covered = cdiv(block_n, columns) * columns;
  const int64_t streams = 2 * num_stages * (block_n + covered) * s.head_dim;
  const int64_t shared = streams + 2 * block * (s.head_dim + std::max(covered, s.head_dim));
  return {sums + operands, shared * dtype_bytes(s.dtype) + kReserved};
}

int64_t most_values(const AttentionBackward& s, int64_t num_warps) {
  return (s.dtype == DType::f32 ? 96 : 128) * 32 * num_warps;
}

bool fits_gpu(const AttentionBackward& s, int64_t block, int64_t block_n, int64_t num_warps, int64_t num_stages,
              const Target& target) {
  const GpuNeed need = gpu_need(s, block, block_n, num_warps, num_stages);
  return need.values <= most_values(s, num_warps) && need.shared_bytes <= target.shared_bytes;
}

std::vector<Tile> gpu_tiles(const AttentionBackward& s, int64_t length, const Target& target) {
  std::vector<Tile> tiles;
  for (const int64_t block : {16, 32, 64, 128})
    for (const int64_t block_n : {16, 32, 64})
      for (const int64_t num_warps : {4, 8})
        for (const int64_t num_stages : {2, 3}) {  // fewer are no pipeline
          if ((block > 16 && block >= 2 * length) || (block_n > 16 && block_n >= 2 * length)) continue;
          if (block < 16 * num_warps / 4 || !fits_gpu(s, block, block_n, num_warps, num_stages, target)) continue;
          tiles.push_back({block, block_n, num_warps, num_stages});
        }
  return tiles;
}

/// Pairs of query and key of one head, in whole tiles.
double pairs(const AttentionBackward& s, int64_t block, int64_t block_n, int64_t length) {
  const double blocks = static_cast<double>(cdiv(length, block)),
               side = static_cast<double>(cdiv(length, block_n) * block_n);
  const double rows = blocks * static_cast<double>(block);
  return s.causal ? rows * (side + static_cast<double>(block + block_n)) / 2 : rows * side;
}

}  // namespace
}  // namespace attention_backward_op

std::vector<AttentionBackward::Tile> AttentionBackward::tiles(const Setting& s) const {
  using namespace attention_backward_op;
  return s.target.is_gpu() ? gpu_tiles(*this, s.length, s.target) : cpu_tiles(*this, s.length, s.target);
}

void AttentionBackward::refuse(const Target& target) const {
  using namespace attention_backward_op;
  const GpuNeed need = gpu_need(*this, 16, 16, 4, 2);
  attention::refuse_head_dim(kName, head_dim, dtype, target,
                             {16, 16, need.shared_bytes, need.values, most_values(*this, 4)});
}

double AttentionBackward::predict_us(const Tile& tile, const Setting& s) const {
  using namespace attention_backward_op;
  constexpr double kClockPerUs = 2.4e3, kProgramUs = 1;
  const int64_t block = tile.block, block_n = tile.block_n;
  // The other side's tiles are packed for `block` rows; what is done once a score, and sums that fade in and out.
  const double dim = static_cast<double>(head_dim);
  const double overhead = 1 + 12.0 / static_cast<double>(block) + 16.0 / dim + 6.0 / static_cast<double>(block_n);
  const double beyond_l2 = 4 * tile_values(*this, block, block_n) > s.target.l2_bytes / 2 ? 1.15 : 1.0;
  const double flops = pairs(*this, block, block_n, s.length) * 2 * dim * kProducts * static_cast<double>(heads);
  const double compute = flops * overhead * beyond_l2 / (s.target.lanes_f32() * 4.0 * kClockPerUs);
  const int64_t programs = cdiv(s.length, block) * (heads + kv_heads);
  const double idle = 1 + static_cast<double>(s.threads) / static_cast<double>(programs);
  return (compute * idle + kProgramUs * static_cast<double>(programs)) / s.threads;
}

GpuWork AttentionBackward::gpu_work(const Tile& tile, const Setting& s) const {
  using namespace attention_backward_op;
  constexpr double kOtherPerTurn = 150, kOpsPerScore = 20;
  const int64_t length = s.length, block = tile.block, block_n = tile.block_n, bytes = dtype_bytes(dtype);
  GpuWork work;
  work.programs = static_cast<double>(cdiv(length, block) * (heads + kv_heads));
  work.threads = 32 * tile.num_warps.value_or(4);
  work.stages = tile.num_stages.value_or(1);
  const double scores = static_cast<double>(block * block_n), dim = static_cast<double>(head_dim);
  // Both kinds of programs, averaged.
  work.turns = 2 * pairs(*this, block, block_n, length) * static_cast<double>(heads) / scores / work.programs;
  work.tensor_dtype = dtype;
  work.tensor_flops = kProducts * scores * dim * work.turns;  // half of the turns each, two flops a product
  const int64_t tiles = 4 * block_n * head_dim * bytes;
  work.shared_bytes = work.stages * tiles + 4 * block * std::max(head_dim, block_n) * bytes;
  work.registers = (2 * block * head_dim + 3 * block * block_n) / work.threads + 60;
  work.special_lane_ops = scores * work.turns;
  const double products = work.tensor_flops / (2 * 16 * 8 * (dtype == DType::f32 ? 8.0 / 3 : 16));
  work.warp_instructions =
      products + work.turns * (kOtherPerTurn * static_cast<double>(work.threads) / 32 + kOpsPerScore * scores / 32);
  work.shared_wavefronts =
      work.turns * 2.5 * (static_cast<double>(tiles + 4 * block * head_dim * bytes) + 2 * scores * 4) / 128;
  const double rows_bytes = static_cast<double>(block * head_dim * bytes);
  work.l2_bytes = work.turns * static_cast<double>(tiles) + 4 * rows_bytes;
  work.memory_bytes = static_cast<double>(length * head_dim * bytes * (4 * heads + 4 * kv_heads));
  return work;
}

}  // namespace seqtile::kernels

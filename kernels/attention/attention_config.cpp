// kernels/attention/attention_config.cpp -- configurations of attention_forward and the model that ranks them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "jit/base/cdiv.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels {
namespace attention {
namespace {

using Tile = AttentionForward::Tile;

constexpr int64_t kBlockM[] = {8, 16, 32, 64, 128, 256}, kBlockN[] = {32, 64, 128, 256, 512};
constexpr int64_t kSplits[] = {1, 2, 4, 8, 16, 32};

/// Bytes of a program's tiles: queries and accumulator, scores, keys and values of one block.
int64_t tile_bytes(const AttentionForward& s, int64_t rows, int64_t block_n) {
  return 4 * (rows * (2 * s.head_dim + block_n) + 2 * block_n * s.head_dim);
}

bool is_legal_block(const AttentionForward& s, int64_t block_m, int64_t block_n, int64_t length, const Target& target) {
  const int64_t rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
  return (block_m == kBlockM[0] || block_m <= rows) && (block_n == kBlockN[0] || block_n <= 4 * rows) &&
         (block_n == kBlockN[0] || tile_bytes(s, block_m, block_n) <= target.l2_bytes * 3 / 4);
}

/// A split must have a block of keys to work on, and more splits than threads only make partial results.
bool is_legal_split(int64_t threads, int64_t splits, int64_t block_n, int64_t length) {
  return (splits == 1 || (splits * block_n < length + block_n && splits <= 4 * threads)) &&
         (block_n == kBlockN[0] || block_n < 2 * length);
}

double flops_per_us(const Target& target) { return target.lanes_f32() * 4.0 * 2.4e3; }

double predict_block_us(const AttentionForward& s, int64_t block_m, int64_t block_n, const Setting& setting) {
  constexpr int64_t kMostSampled = 256;
  const int64_t length = setting.length;
  const int64_t blocks = cdiv(length, block_m), every = cdiv(blocks, kMostSampled);
  double pairs = 0;  // of query and key, whole blocks; of many blocks some stand for all
  for (int64_t block = every / 2; block < blocks; block += every) {
    const int64_t top = std::min(length, (block + 1) * block_m);
    const int64_t bottom = s.window ? std::max<int64_t>(0, block * block_m - s.window) : 0;
    const int64_t keys = s.causal ? top - bottom : length;
    const int64_t rows = std::min(block_m, cdiv(length, 4) * 4);
    pairs +=
        static_cast<double>(every) * static_cast<double>(rows) * static_cast<double>(cdiv(keys, block_n) * block_n);
  }
  const double packing = 1 + 8.0 / static_cast<double>(block_m);    // keys and values are packed for block_m rows
  const double softmax = 0.2 + 8.0 / static_cast<double>(block_n);  // the accumulator fades once a block
  const double beyond_l1 = tile_bytes(s, block_m, block_n) > 4 * setting.target.l1_bytes ? 1.15 : 1.0;
  const double work = pairs * 4 * static_cast<double>(s.head_dim) * (packing + softmax) * beyond_l1;
  const int64_t programs = blocks * s.heads;
  const double idle =
      static_cast<double>(cdiv(programs, setting.threads) * setting.threads) / static_cast<double>(programs);
  return static_cast<double>(s.heads) * work / (flops_per_us(setting.target) * setting.threads) * idle +
         0.3 * static_cast<double>(programs) / setting.threads;
}

double predict_decode_us(const AttentionForward& s, int64_t splits, int64_t block_n, const Setting& setting) {
  constexpr double kBytesPerUs = 9e3, kBlockUs = 0.05, kProgramUs = 0.3;
  const int64_t keys = s.window ? std::min(setting.length, s.window) : setting.length;
  const int64_t blocks = cdiv(cdiv(keys, splits), block_n);
  const double bytes = static_cast<double>(blocks * block_n * s.head_dim * 2 * dtype_bytes(s.dtype));
  const double program = bytes / kBytesPerUs + kBlockUs * static_cast<double>(blocks) + kProgramUs;
  const double merge = splits == 1 ? 0 : static_cast<double>(splits * s.group() * s.head_dim) * 1e-3 + 0.2;
  return static_cast<double>(cdiv(s.kv_heads * splits, setting.threads)) * program + merge;
}

/// Warps that compute a block of `rows` queries: two of Hopper's warp groups share the large ones.
int64_t gpu_warps(int64_t rows, const Target& target) { return target.has_wgmma && rows >= 128 ? 8 : 4; }

/// In registers: sums, scores, and weights of half their size.
int64_t held_values(const AttentionForward& s, int64_t block_m, int64_t block_n) {
  return block_m * (s.head_dim + block_n * 3 / 2);
}

/// Hopper's copies need no registers for addresses; f32 operands are held in two halves, and their sums twice.
int64_t values_a_warp(DType dtype, const Target& target) {
  return dtype == DType::f32 ? 2 * 1024 + 512 : target.has_wgmma ? 6 * 1024 : 4 * 1024 + 512;
}

/// Queries, keys and values of all stages, and room to exchange weights and results between threads.
int64_t shared_bytes(const AttentionForward& s, int64_t block_m, int64_t block_n, int64_t num_stages) {
  constexpr int64_t kPadding = 112, kBarriers = 1024;
  const int64_t rows = s.is_decode() ? 16 : block_m;
  const int64_t operands = (rows + 2 * num_stages * block_n) * s.head_dim,
                exchanged = rows * std::max(block_n, s.head_dim);
  return (operands + exchanged) * dtype_bytes(s.dtype) + rows * kPadding + kBarriers;
}

std::vector<Tile> cpu_tiles(const AttentionForward& s, const Setting& setting) {
  std::vector<Tile> tiles;
  for (const int64_t block_n : kBlockN) {
    if (s.is_decode()) {
      for (const int64_t splits : kSplits)
        if (is_legal_split(setting.threads, splits, block_n, setting.length))
          tiles.push_back({.splits = splits, .block_n = block_n});
    } else {
      for (const int64_t block_m : kBlockM)
        if (is_legal_block(s, block_m, block_n, setting.length, setting.target))
          tiles.push_back({.block_m = block_m, .block_n = block_n});
    }
  }
  return tiles;
}

/// Blocks of queries or splits of keys that fit the registers of a GPU's threads, without stages.
std::vector<Tile> gpu_blocks(const AttentionForward& s, int64_t length, const Target& target) {
  std::vector<Tile> tiles;
  for (const int64_t block_n : {32, 64, 128}) {
    if (block_n > 32 && block_n >= 2 * length) continue;
    if (s.is_decode()) {
      for (const int64_t splits : kSplits)
        if (splits == 1 || splits * block_n < length + block_n)
          tiles.push_back({.splits = splits, .block_n = block_n, .num_warps = gpu_warps(1, target)});
    } else {
      for (const int64_t block_m : {16, 32, 64, 128}) {
        const int64_t num_warps = gpu_warps(block_m, target);
        if ((block_m == 16 || block_m < 2 * length) &&
            held_values(s, block_m, block_n) <= values_a_warp(s.dtype, target) * num_warps)
          tiles.push_back({.block_m = block_m, .block_n = block_n, .num_warps = num_warps});
      }
    }
  }
  return tiles;
}

std::vector<Tile> gpu_tiles(const AttentionForward& s, const Setting& setting) {
  std::vector<Tile> tiles;
  for (Tile tile : gpu_blocks(s, setting.length, setting.target))
    for (const int64_t num_stages : {3, 2}) {
      tile.num_stages = num_stages;
      if (shared_bytes(s, tile.block_m, tile.block_n, num_stages) <= setting.target.shared_bytes) tiles.push_back(tile);
    }
  return tiles;
}

}  // namespace
}  // namespace attention

std::vector<AttentionForward::Tile> AttentionForward::tiles(const Setting& s) const {
  using namespace attention;
  return s.target.is_gpu() ? gpu_tiles(*this, s) : cpu_tiles(*this, s);
}

void AttentionForward::refuse(const Target& target) const {
  using namespace attention;
  constexpr int64_t kRows = 16, kBlockN = 32, kNumStages = 2;  // of the smallest tile
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: no tile of head_dim {} in {} fits the registers and the {} bytes of shared memory of a "
                          "block on {}: the smallest, of {} queries and {} keys, needs {} bytes and {} values in the "
                          "registers of 4 warps, which hold {}; take a 16-bit dtype or the CPU",
                          kName, head_dim, dtype_name(dtype), target.shared_bytes, target.name, kRows, kBlockN,
                          shared_bytes(*this, kRows, kBlockN, kNumStages), held_values(*this, kRows, kBlockN),
                          4 * values_a_warp(dtype, target)));
}

double AttentionForward::predict_us(const Tile& tile, const Setting& s) const {
  using namespace attention;
  return is_decode() ? predict_decode_us(*this, tile.splits, tile.block_n, s)
                     : predict_block_us(*this, tile.block_m, tile.block_n, s);
}

}  // namespace seqtile::kernels

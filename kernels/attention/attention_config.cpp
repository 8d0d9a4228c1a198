// kernels/attention/attention_config.cpp -- configurations of attention_forward and the models that rank them.
// SPDX-License-Identifier: Apache-2.0
//
// On a GPU a program turns over blocks of block_n keys. Programs of a causal operation see different numbers of keys;
// they are taken as the average one. Small calls for the PTX machine have one key head and two lengths, so that what a
// turn costs shows as the difference.
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "autotune/gpu_model.h"
#include "jit/base/cdiv.h"
#include "kernels/attention/attention_parts.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels {

using autotune::GpuSample;
using autotune::GpuWork;

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

/// Keys that are there for `length`: an extending call has three cached ones for each new one.
int64_t num_keys(const AttentionForward& s, int64_t length) {
  return s.phase == AttentionForward::Phase::extend ? 4 * length : length;
}

/// Blocks of keys that the average program sees.
double average_turns(const AttentionForward& s, const Tile& tile, int64_t length) {
  const int64_t keys = num_keys(s, length), block_n = tile.block_n;
  if (s.is_decode()) {
    const int64_t seen = s.window ? std::min(keys, s.window) : keys, splits = tile.splits;
    return static_cast<double>(cdiv(seen, block_n)) / static_cast<double>(splits);
  }
  constexpr int64_t kMostSampled = 256;
  const int64_t block_m = tile.block_m, blocks = cdiv(length, block_m), every = cdiv(blocks, kMostSampled);
  double sum = 0, count = 0;
  for (int64_t block = every / 2; block < blocks; block += every, ++count) {
    const int64_t end = s.causal ? std::min(keys, keys - length + (block + 1) * block_m) : keys;
    const int64_t first = s.window ? std::max<int64_t>(0, keys - length + block * block_m + 1 - s.window) : 0;
    sum += static_cast<double>(cdiv(end, block_n) - first / block_n);
  }
  return std::max(1.0, sum / count);
}

int64_t num_programs(const AttentionForward& s, const Tile& tile, int64_t length) {
  return s.is_decode() ? s.kv_heads * tile.splits : s.heads * cdiv(length, tile.block_m);
}

}  // namespace
}  // namespace attention

void attention::refuse_head_dim(std::string_view operation, int64_t head_dim, DType dtype, const Target& target,
                                const SmallestTile& tile) {
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: no tile of head_dim {} in {} fits the registers and the {} bytes of shared memory of a "
                          "block on {}: the smallest, of {} queries and {} keys, needs {} bytes and {} values in the "
                          "registers of 4 warps, which hold {}; take a 16-bit dtype or the CPU",
                          operation, head_dim, dtype_name(dtype), target.shared_bytes, target.name, tile.queries,
                          tile.keys, tile.shared_bytes, tile.values, tile.most_values));
}

std::vector<AttentionForward::Tile> AttentionForward::tiles(const Setting& s) const {
  using namespace attention;
  return s.target.is_gpu() ? gpu_tiles(*this, s) : cpu_tiles(*this, s);
}

void AttentionForward::refuse(const Target& target) const {
  using namespace attention;
  constexpr int64_t kRows = 16, kSmallBlockN = 32, kNumStages = 2;  // of the smallest tile
  refuse_head_dim(kName, head_dim, dtype, target,
                  {kRows, kSmallBlockN, shared_bytes(*this, kRows, kSmallBlockN, kNumStages),
                   held_values(*this, kRows, kSmallBlockN), 4 * values_a_warp(dtype, target)});
}

double AttentionForward::predict_us(const Tile& tile, const Setting& s) const {
  using namespace attention;
  return is_decode() ? predict_decode_us(*this, tile.splits, tile.block_n, s)
                     : predict_block_us(*this, tile.block_m, tile.block_n, s);
}

GpuWork AttentionForward::gpu_work(const Tile& tile, const Setting& s) const {
  using namespace attention;
  constexpr double kOtherPerTurn = 80, kOpsPerScore = 10;
  const Target& target = s.target;
  const int64_t length = s.length, block_n = tile.block_n, bytes = dtype_bytes(dtype), dim = head_dim;
  const int64_t rows = is_decode() ? cdiv(group(), 16) * 16 : tile.block_m, num_warps = tile.num_warps.value_or(4);
  GpuWork work;
  work.programs = static_cast<double>(num_programs(*this, tile, length));
  work.threads = 32 * num_warps;
  work.stages = tile.num_stages.value_or(1);
  work.turns = average_turns(*this, tile, length);
  work.uses_wgmma = autotune::may_use_wgmma(target, dtype, rows, num_warps) && dim % 16 == 0;
  work.tensor_dtype = dtype;
  const double scores = static_cast<double>(rows * block_n), depth = static_cast<double>(dim);
  work.tensor_flops = 4 * scores * depth * work.turns;
  const int64_t keys_bytes = block_n * dim * bytes, operands = (rows + block_n) * std::max(dim, block_n) * bytes;
  work.shared_bytes = std::max(operands, rows * dim * bytes + work.stages * 2 * keys_bytes);
  const auto threads = static_cast<double>(work.threads);
  work.registers = static_cast<int64_t>(
      (static_cast<double>(rows * (2 * dim + block_n)) + static_cast<double>(2 * keys_bytes) / 4) / threads + 40);
  work.special_lane_ops = scores * work.turns;
  const double products = work.tensor_flops / (2 * 16 * 8 * (dtype == DType::f32 ? 8.0 / 3 : 16));
  work.warp_instructions = products + work.turns * (kOtherPerTurn * threads / 32 + kOpsPerScore * scores / 32 +
                                                    static_cast<double>(rows * dim) / 32);
  const double staged = static_cast<double>(2 * keys_bytes + rows * (dim + block_n) * bytes);
  work.shared_wavefronts = work.turns * 2.5 * staged / 128;
  const double results = static_cast<double>(rows * dim * bytes);
  work.l2_bytes = work.turns * static_cast<double>(2 * keys_bytes) + 2 * results;
  const int64_t tokens = is_decode() ? 1 : length;
  const double kv_bytes = static_cast<double>(2 * num_keys(*this, length) * kv_heads * dim * bytes);
  // Keys and values come from memory once; those that the L2 does not hold, again for the programs of later waves.
  const bool stays = kv_bytes < 0.6 * static_cast<double>(target.gpu.l2_bytes);
  const double total = work.programs * work.turns * static_cast<double>(2 * keys_bytes);
  work.memory_bytes =
      (stays ? kv_bytes : std::max(kv_bytes, total / 8)) + static_cast<double>(2 * tokens * heads * dim * bytes);
  return work;
}

std::vector<GpuSample> AttentionForward::gpu_samples(const Tile& tile, int64_t length) const {
  using namespace attention;
  AttentionForward one = *this;
  one.kv_heads = 1;
  one.heads = is_decode() ? group() : 1;
  const autotune::Workload small = one.workload();
  const int64_t few = is_decode() ? tile.splits * tile.block_n : tile.block_m;
  const int64_t more = is_decode() ? 2 * few : few * (1 + cdiv(2 * tile.block_n, few));
  if (length <= more) return {{small, length, 1}};
  const double at_few = average_turns(*this, tile, few), at_more = average_turns(*this, tile, more);
  if (at_more <= at_few) return {{small, more, 1}};  // a window that is shorter than this
  const double share = (average_turns(*this, tile, length) - at_few) / (at_more - at_few);
  return {{small, few, 1 - share}, {small, more, share}};
}

}  // namespace seqtile::kernels

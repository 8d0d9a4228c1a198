// kernels/attention/attention_gpu.cpp -- what a program of attention_forward does on a GPU, for the model that ranks
// there.
// SPDX-License-Identifier: Apache-2.0
//
// A program turns over blocks of block_n keys. Programs of a causal operation see different numbers of keys; they are
// taken as the average one. Small calls for the PTX machine have one key head and two lengths, so that what a turn
// costs shows as the difference.
#include <algorithm>

#include "autotune/gpu_model.h"
#include "jit/base/cdiv.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels {

using autotune::GpuSample;
using autotune::GpuWork;
namespace attention {
namespace {

using Tile = AttentionForward::Tile;

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

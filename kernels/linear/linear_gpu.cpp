// kernels/linear/linear_gpu.cpp -- what a program of linear does on a GPU, for the model that ranks configurations
// there.
// SPDX-License-Identifier: Apache-2.0
//
// A program turns over k in steps of block_k: it reads block_m rows of x and block_n columns of the weights (twice as
// many of a gated pair), stages them in shared memory and multiplies.
#include <algorithm>

#include "autotune/gpu_model.h"
#include "jit/base/cdiv.h"
#include "kernels/linear/linear_tile.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

using autotune::GpuSample;
using autotune::GpuWork;
using linear_op::Tile;

namespace {

/// Parts into which warps cut a tile: square pieces read the fewest operands.
std::pair<int64_t, int64_t> warp_grid(int64_t block_m, int64_t block_n, int64_t num_warps) {
  int64_t rows = 1, columns = num_warps;
  while (columns > 1 && block_m / rows > block_n / columns && block_m / rows > 16) rows *= 2, columns /= 2;
  return {rows, columns};
}

}  // namespace

GpuWork Linear::gpu_work(const Tile& t, const Setting& s) const {
  constexpr double kInstructionsPerLoad = 4, kOtherPerTurn = 30, kFragments = 40;
  constexpr double kMeeting = 600;  // measured on an H200: the fences of a cluster's barriers
  const int64_t length = s.length;
  const Target& target = s.target;
  const int64_t block_m = t.block_m, block_n = t.block_n, block_k = t.kc, num_warps = t.num_warps;
  const int64_t weights = weights_per_loop(), bytes = dtype_bytes(dtype), cluster = std::max<int64_t>(t.cluster, 1);
  const int64_t columns = n + n2 + n3, column_blocks = linear_op::column_blocks(*this, block_n);
  const int64_t row_blocks = cdiv(length, block_m), rows = std::min(block_m, length);
  const double turns = static_cast<double>(cdiv(k, block_k)), warps = static_cast<double>(num_warps);

  GpuWork work;
  work.programs = static_cast<double>(row_blocks * column_blocks);
  work.threads = 32 * num_warps;
  work.stages = t.num_stages;
  work.turns = turns;
  work.meeting_cycles = cluster > 1 ? kMeeting : 0;
  work.uses_wgmma = autotune::may_use_wgmma(target, dtype, block_m, num_warps) && k % 16 == 0;
  work.tensor_dtype = dtype;
  work.tensor_flops = 2.0 * static_cast<double>(block_m * block_n * weights * block_k) * turns / (tf32 ? 3 : 1);
  const int64_t staged = (block_m + block_n * weights) * block_k * bytes;
  work.shared_bytes = work.stages * staged;
  const double sums = static_cast<double>(block_m * block_n * weights) / static_cast<double>(work.threads);
  const double in_flight = work.stages == 1 ? static_cast<double>(staged) / 4 / static_cast<double>(work.threads) : 0;
  work.registers = static_cast<int64_t>(sums + in_flight + kFragments);

  const auto [warps_m, warps_n] = warp_grid(block_m, block_n * weights, num_warps);
  const double fragment_bytes =
      static_cast<double>((block_m * warps_n + block_n * weights * warps_m) * block_k * bytes);
  work.shared_wavefronts = turns * (static_cast<double>(staged) + fragment_bytes) / 128;
  const double products = work.tensor_flops / (2 * 16 * 8 * (dtype == DType::f32 ? 8.0 / 3 : 16));
  work.warp_instructions = products + turns * warps * kOtherPerTurn +
                           turns * kInstructionsPerLoad * (static_cast<double>(staged) + fragment_bytes) / 512;

  const double row_bytes = static_cast<double>(k * bytes), results = static_cast<double>(rows * block_n * bytes);
  work.l2_bytes =
      row_bytes * (static_cast<double>(rows) + static_cast<double>(block_n * weights) / static_cast<double>(cluster)) +
      results * (residual ? 2 : 1);
  const double x_bytes = row_bytes * static_cast<double>(length);
  const double w_bytes = row_bytes * static_cast<double>(columns * weights);
  // What does not stay in the L2 from one block of columns to the next is read again.
  const double at_once =
      static_cast<double>(target.gpu.num_multiprocessors * autotune::resident_programs(work, target.gpu));
  const double passes = std::max(1.0, work.programs / std::max(1.0, at_once));
  const bool stays = x_bytes < 0.6 * static_cast<double>(target.gpu.l2_bytes);
  work.memory_bytes = w_bytes + x_bytes * (stays ? 1 : std::min(passes, static_cast<double>(column_blocks))) +
                      static_cast<double>(length * columns * bytes) * (residual ? 2 : 1);
  return work;
}

std::vector<GpuSample> Linear::gpu_samples(const Tile& t, int64_t length) const {
  const int64_t turns = cdiv(k, t.kc), few = t.num_stages + 1, more = few + 2;
  // A whole cluster, whose blocks share what they load.
  const int64_t rows = std::min(length, t.block_m * std::max<int64_t>(t.cluster, 1));
  Linear small = *this;
  small.n = std::min(n, t.block_n), small.n2 = small.n3 = 0;
  if (turns <= more) return {{small.workload(), rows, 1}};
  // The last turn is as full, and rows are aligned, as in the whole product.
  const auto with_turns = [&](int64_t count) {
    Linear sample = small;
    sample.k = k - (turns - count) * t.kc;
    return sample.workload();
  };
  const double share = static_cast<double>(turns - few) / static_cast<double>(more - few);
  return {{with_turns(few), rows, 1 - share}, {with_turns(more), rows, share}};
}

}  // namespace seqtile::kernels

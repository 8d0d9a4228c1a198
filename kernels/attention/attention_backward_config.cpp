// kernels/attention/attention_backward_config.cpp -- configurations of attention_backward and the models that rank
// them.
// SPDX-License-Identifier: Apache-2.0
//
// Programs of keys do four products for each query head of their group, programs of queries three.
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "jit/base/cdiv.h"
#include "jit/base/error.h"
#include "kernels/attention/attention_backward_shape.h"

namespace seqtile::kernels::attention_backward_op {

using autotune::Config;
using autotune::ConfigSpace;
using autotune::GpuWork;
using autotune::Workload;

namespace {

constexpr double kProducts = 7;

/// f32 values of a program of keys: two sums, keys and values, scores, weights, and four tiles of the other side.
int64_t tile_values(const Shape& s, int64_t block, int64_t block_n) {
  return 4 * block * s.head_dim + 3 * block * block_n + 4 * block_n * s.head_dim;
}

std::vector<Config> cpu_configs(const Shape& s, int64_t length, const Target& target) {
  const int64_t rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
  std::vector<Config> configs;
  for (const int64_t block : {16, 32, 64, 128, 256})
    for (const int64_t block_n : {16, 32, 64, 128, 256}) {
      if ((block > 16 && block > rows) || (block_n > 16 && block_n > rows)) continue;
      if (std::max(block, block_n) > 16 && 4 * tile_values(s, block, block_n) > target.l2_bytes) continue;
      configs.push_back({{"block", block}, {"block_n", block_n}});
    }
  return configs;
}

struct GpuNeed {
  int64_t values, shared_bytes;  ///< values in registers, of all threads
};

/// Registers of a GPU's threads hold the sums and the scores; of f32 operands two halves are under way as well.
GpuNeed gpu_need(const Workload& w, const Shape& s, int64_t block, int64_t block_n, int64_t num_warps,
                 int64_t num_stages) {
  constexpr int64_t kReserved = 2048;
  const int64_t sums = 2 * block * s.head_dim + 3 * block * block_n;
  const int64_t operands = w.dtype == DType::f32 ? block * s.head_dim : 0;
  // Warps that do not find 16 rows each share the columns of the scores, eight or more each: those of a tile's rows.
  const int64_t columns = 8 * num_warps / std::min(num_warps, block / 16), covered = cdiv(block_n, columns) * columns;
  const int64_t streams = 2 * num_stages * (block_n + covered) * s.head_dim;
  const int64_t shared = streams + 2 * block * (s.head_dim + std::max(covered, s.head_dim));
  return {sums + operands, shared * dtype_bytes(w.dtype) + kReserved};
}

int64_t most_values(const Workload& w, int64_t num_warps) {
  return (w.dtype == DType::f32 ? 96 : 128) * 32 * num_warps;
}

bool fits_gpu(const Workload& w, const Shape& s, int64_t block, int64_t block_n, int64_t num_warps, int64_t num_stages,
              const Target& target) {
  const GpuNeed need = gpu_need(w, s, block, block_n, num_warps, num_stages);
  return need.values <= most_values(w, num_warps) && need.shared_bytes <= target.shared_bytes;
}

std::vector<Config> gpu_configs(const Workload& w, const Shape& s, int64_t length, const Target& target) {
  std::vector<Config> configs;
  for (const int64_t block : {16, 32, 64, 128})
    for (const int64_t block_n : {16, 32, 64})
      for (const int64_t num_warps : {4, 8})
        for (const int64_t num_stages : {2, 3}) {  // fewer are no pipeline
          if ((block > 16 && block >= 2 * length) || (block_n > 16 && block_n >= 2 * length)) continue;
          if (block < 16 * num_warps / 4 || !fits_gpu(w, s, block, block_n, num_warps, num_stages, target)) continue;
          configs.push_back(
              {{"block", block}, {"block_n", block_n}, {"num_warps", num_warps}, {"num_stages", num_stages}});
        }
  return configs;
}

[[noreturn]] void refuse(const Workload& w, const Target& target) {
  const Shape s(w);
  const GpuNeed need = gpu_need(w, s, 16, 16, 4, 2);
  throw Error(ErrorCode::unsupported,
              fmt::format("attention_backward: no tile of head_dim {} in {} fits the registers and the {} bytes of "
                          "shared memory of a block on {}: the smallest, of 16 queries and 16 keys, needs {} bytes and "
                          "{} values in the registers of 4 warps, which hold {}; take a 16-bit dtype or the CPU",
                          s.head_dim, dtype_name(w.dtype), target.shared_bytes, target.name, need.shared_bytes,
                          need.values, most_values(w, 4)));
}

std::vector<Config> configs_of(const Workload& w, int64_t length, const Target& target) {
  const Shape s(w);
  return target.is_gpu() ? gpu_configs(w, s, length, target) : cpu_configs(s, length, target);
}

/// Pairs of query and key of one head, in whole tiles.
double pairs(const Shape& s, int64_t block, int64_t block_n, int64_t length) {
  const double blocks = static_cast<double>(cdiv(length, block)),
               side = static_cast<double>(cdiv(length, block_n) * block_n);
  const double rows = blocks * static_cast<double>(block);
  return s.causal ? rows * (side + static_cast<double>(block + block_n)) / 2 : rows * side;
}

}  // namespace

ConfigSpace config_space(const Workload& w, int64_t length, const Target& target) {
  ConfigSpace space;
  for (const Config& config : configs_of(w, length, target)) space.add(config);
  return space;
}

Config default_config(const Workload& w, int64_t length, const Target& target) {
  const std::vector<Config> configs = configs_of(w, length, target);
  if (configs.empty()) refuse(w, target);
  const auto us = [&](const Config& c) {
    return target.is_gpu() ? autotune::predict_us(gpu_work(w, c, length, target), target.gpu)
                           : predict_us(w, c, length, target);
  };
  return *std::ranges::min_element(configs, [&](const Config& a, const Config& b) { return us(a) < us(b); });
}

double predict_us(const Workload& w, const Config& config, int64_t length, const Target& target) {
  constexpr double kClockPerUs = 2.4e3, kProgramUs = 1;
  const Shape s(w);
  const int64_t block = config.get_int("block"), block_n = config.get_int("block_n");
  // The other side's tiles are packed for `block` rows; what is done once a score, and sums that fade in and out.
  const double dim = static_cast<double>(s.head_dim);
  const double overhead = 1 + 12.0 / static_cast<double>(block) + 16.0 / dim + 6.0 / static_cast<double>(block_n);
  const double beyond_l2 = 4 * tile_values(s, block, block_n) > target.l2_bytes / 2 ? 1.15 : 1.0;
  const double flops = pairs(s, block, block_n, length) * 2 * dim * kProducts * static_cast<double>(s.heads);
  const double compute = flops * overhead * beyond_l2 / (target.lanes_f32() * 4.0 * kClockPerUs);
  const int64_t programs = cdiv(length, block) * (s.heads + s.kv_heads);
  const double idle = 1 + static_cast<double>(w.threads) / static_cast<double>(programs);
  return (compute * idle + kProgramUs * static_cast<double>(programs)) / w.threads;
}

GpuWork gpu_work(const Workload& w, const Config& c, int64_t length, const Target&) {
  constexpr double kOtherPerTurn = 150, kOpsPerScore = 20;
  const Shape s(w);
  const int64_t block = c.get_int("block"), block_n = c.get_int("block_n"), bytes = dtype_bytes(w.dtype);
  GpuWork work;
  work.programs = static_cast<double>(cdiv(length, block) * (s.heads + s.kv_heads));
  work.threads = 32 * c.get_int("num_warps", 4);
  work.stages = c.get_int("num_stages", 1);
  const double scores = static_cast<double>(block * block_n), dim = static_cast<double>(s.head_dim);
  // Both kinds of programs, averaged.
  work.turns = 2 * pairs(s, block, block_n, length) * static_cast<double>(s.heads) / scores / work.programs;
  work.tensor_dtype = w.dtype;
  work.tensor_flops = kProducts * scores * dim * work.turns;  // half of the turns each, two flops a product
  const int64_t tiles = 4 * block_n * s.head_dim * bytes;
  work.shared_bytes = work.stages * tiles + 4 * block * std::max(s.head_dim, block_n) * bytes;
  work.registers = (2 * block * s.head_dim + 3 * block * block_n) / work.threads + 60;
  work.special_lane_ops = scores * work.turns;
  const double products = work.tensor_flops / (2 * 16 * 8 * (w.dtype == DType::f32 ? 8.0 / 3 : 16));
  work.warp_instructions =
      products + work.turns * (kOtherPerTurn * static_cast<double>(work.threads) / 32 + kOpsPerScore * scores / 32);
  work.shared_wavefronts =
      work.turns * 2.5 * (static_cast<double>(tiles + 4 * block * s.head_dim * bytes) + 2 * scores * 4) / 128;
  const double rows_bytes = static_cast<double>(block * s.head_dim * bytes);
  work.l2_bytes = work.turns * static_cast<double>(tiles) + 4 * rows_bytes;
  work.memory_bytes = static_cast<double>(length * s.head_dim * bytes * (4 * s.heads + 4 * s.kv_heads));
  return work;
}

}  // namespace seqtile::kernels::attention_backward_op

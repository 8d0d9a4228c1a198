// kernels/attention/attention_config.cpp -- configurations of attention_forward and the model that ranks them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "jit/base/cdiv.h"
#include "jit/base/error.h"
#include "kernels/attention/attention_shape.h"

namespace seqtile::kernels::attention {

using autotune::Config;
using autotune::ConfigSpace;
using autotune::Workload;

namespace {

constexpr int64_t kBlockM[] = {8, 16, 32, 64, 128, 256}, kBlockN[] = {32, 64, 128, 256, 512};
constexpr int64_t kSplits[] = {1, 2, 4, 8, 16, 32};

/// Bytes of a program's tiles: queries and accumulator, scores, keys and values of one block.
int64_t tile_bytes(const Shape& s, int64_t rows, int64_t block_n) {
  return 4 * (rows * (2 * s.head_dim + block_n) + 2 * block_n * s.head_dim);
}

bool is_legal_block(const Shape& s, int64_t block_m, int64_t block_n, int64_t length, const Target& target) {
  const int64_t rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
  return (block_m == kBlockM[0] || block_m <= rows) && (block_n == kBlockN[0] || block_n <= 4 * rows) &&
         (block_n == kBlockN[0] || tile_bytes(s, block_m, block_n) <= target.l2_bytes * 3 / 4);
}

/// A split must have a block of keys to work on, and more splits than threads only make partial results.
bool is_legal_split(const Workload& w, int64_t splits, int64_t block_n, int64_t length) {
  return (splits == 1 || (splits * block_n < length + block_n && splits <= 4 * w.threads)) &&
         (block_n == kBlockN[0] || block_n < 2 * length);
}

double flops_per_us(const Target& target) { return target.lanes_f32() * 4.0 * 2.4e3; }

double predict_block_us(const Workload& w, const Shape& s, int64_t block_m, int64_t block_n, int64_t length,
                        const Target& target) {
  constexpr int64_t kMostSampled = 256;
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
  const double beyond_l1 = tile_bytes(s, block_m, block_n) > 4 * target.l1_bytes ? 1.15 : 1.0;
  const double work = pairs * 4 * static_cast<double>(s.head_dim) * (packing + softmax) * beyond_l1;
  const int64_t programs = blocks * s.heads;
  const double idle = static_cast<double>(cdiv(programs, w.threads) * w.threads) / static_cast<double>(programs);
  return static_cast<double>(s.heads) * work / (flops_per_us(target) * w.threads) * idle +
         0.3 * static_cast<double>(programs) / w.threads;
}

double predict_decode_us(const Workload& w, const Shape& s, int64_t splits, int64_t block_n, int64_t length) {
  constexpr double kBytesPerUs = 9e3, kBlockUs = 0.05, kProgramUs = 0.3;
  const int64_t keys = s.window ? std::min(length, s.window) : length;
  const int64_t blocks = cdiv(cdiv(keys, splits), block_n);
  const double bytes = static_cast<double>(blocks * block_n * s.head_dim * 2 * dtype_bytes(w.dtype));
  const double program = bytes / kBytesPerUs + kBlockUs * static_cast<double>(blocks) + kProgramUs;
  const double merge = splits == 1 ? 0 : static_cast<double>(splits * s.group * s.head_dim) * 1e-3 + 0.2;
  return static_cast<double>(cdiv(s.kv_heads * splits, w.threads)) * program + merge;
}

/// Calls visit(first parameter, block_n) for every legal configuration, in a fixed order.
template <class Visit>
void for_each_config(const Workload& w, const Shape& s, int64_t length, const Target& target, const Visit& visit) {
  for (const int64_t block_n : kBlockN) {
    if (s.decode) {
      for (const int64_t splits : kSplits)
        if (is_legal_split(w, splits, block_n, length)) visit(splits, block_n);
    } else {
      for (const int64_t block_m : kBlockM)
        if (is_legal_block(s, block_m, block_n, length, target)) visit(block_m, block_n);
    }
  }
}

double predict(const Workload& w, const Shape& s, int64_t first, int64_t block_n, int64_t length,
               const Target& target) {
  return s.decode ? predict_decode_us(w, s, first, block_n, length)
                  : predict_block_us(w, s, first, block_n, length, target);
}

/// Warps that compute a block of `rows` queries: two of Hopper's warp groups share the large ones.
int64_t gpu_warps(int64_t rows, const Target& target) { return target.has_wgmma && rows >= 128 ? 8 : 4; }

/// In registers: sums, scores, and weights of half their size.
int64_t held_values(const Shape& s, int64_t block_m, int64_t block_n) {
  return block_m * (s.head_dim + block_n * 3 / 2);
}

/// Hopper's copies need no registers for addresses; f32 operands are held in two halves, and their sums twice.
int64_t values_a_warp(DType dtype, const Target& target) {
  return dtype == DType::f32 ? 2 * 1024 + 512 : target.has_wgmma ? 6 * 1024 : 4 * 1024 + 512;
}

/// Calls visit(first parameter, block_n, num_warps) for blocks of queries or splits of keys whose tiles fit the
/// registers of a GPU's threads.
template <class Visit>
void for_each_gpu_config(const Shape& s, DType dtype, int64_t length, const Target& target, const Visit& visit) {
  for (const int64_t block_n : {32, 64, 128}) {
    if (block_n > 32 && block_n >= 2 * length) continue;
    if (s.decode) {
      for (const int64_t splits : kSplits)
        if (splits == 1 || splits * block_n < length + block_n) visit(splits, block_n, gpu_warps(1, target));
    } else {
      for (const int64_t block_m : {16, 32, 64, 128}) {
        const int64_t num_warps = gpu_warps(block_m, target);
        if ((block_m == 16 || block_m < 2 * length) &&
            held_values(s, block_m, block_n) <= values_a_warp(dtype, target) * num_warps)
          visit(block_m, block_n, num_warps);
      }
    }
  }
}

/// Queries, keys and values of all stages, and room to exchange weights and results between threads.
int64_t shared_bytes(const Workload& w, const Shape& s, int64_t first, int64_t block_n, int64_t num_stages) {
  constexpr int64_t kPadding = 112, kBarriers = 1024;
  const int64_t rows = s.decode ? 16 : first;
  const int64_t operands = (rows + 2 * num_stages * block_n) * s.head_dim,
                exchanged = rows * std::max(block_n, s.head_dim);
  return (operands + exchanged) * dtype_bytes(w.dtype) + rows * kPadding + kBarriers;
}

[[noreturn]] void refuse(const Workload& w, const Shape& s, const Target& target) {
  constexpr int64_t kRows = 16, kBlockN = 32, kNumStages = 2;  // of the smallest tile
  throw Error(ErrorCode::unsupported,
              fmt::format("attention_forward: no tile of head_dim {} in {} fits the registers and the {} bytes of "
                          "shared memory of a block on {}: the smallest, of {} queries and {} keys, needs {} bytes and "
                          "{} values in the registers of 4 warps, which hold {}; take a 16-bit dtype or the CPU",
                          s.head_dim, dtype_name(w.dtype), target.shared_bytes, target.name, kRows, kBlockN,
                          shared_bytes(w, s, s.decode ? 1 : kRows, kBlockN, kNumStages), held_values(s, kRows, kBlockN),
                          4 * values_a_warp(w.dtype, target)));
}

Config make_config(const Shape& s, int64_t first, int64_t block_n) {
  return {{s.decode ? "splits" : "block_m", first}, {"block_n", block_n}};
}

}  // namespace

ConfigSpace config_space(const Workload& w, int64_t length, const Target& target) {
  const Shape s(w);
  ConfigSpace space;
  if (target.is_gpu()) {
    for_each_gpu_config(s, w.dtype, length, target, [&](int64_t first, int64_t block_n, int64_t num_warps) {
      Config config = make_config(s, first, block_n);
      config.set("num_warps", num_warps);
      for (const int64_t num_stages : {3, 2}) {  // the default is the last
        config.set("num_stages", num_stages);
        if (shared_bytes(w, s, first, block_n, num_stages) <= target.shared_bytes) space.add(config);
      }
    });
    return space;
  }
  for_each_config(w, s, length, target,
                  [&](int64_t first, int64_t block_n) { space.add(make_config(s, first, block_n)); });
  return space;
}

Config default_config(const Workload& w, int64_t length, const Target& target) {
  const Shape s(w);
  if (target.is_gpu()) {
    const std::vector<Config> configs = config_space(w, length, target).enumerate();
    if (configs.front().values().empty()) refuse(w, s, target);  // a space without a parameter
    const auto us = [&](const Config& c) { return autotune::predict_us(gpu_work(w, c, length, target), target.gpu); };
    return *std::min_element(configs.begin(), configs.end(),
                             [&](const Config& a, const Config& b) { return us(a) < us(b); });
  }
  int64_t best[2] = {0, 0};
  double best_us = 1e300;
  for_each_config(w, s, length, target, [&](int64_t first, int64_t block_n) {
    const double us = predict(w, s, first, block_n, length, target);
    if (us < best_us) best_us = us, best[0] = first, best[1] = block_n;
  });
  return make_config(s, best[0], best[1]);
}

double predict_us(const Workload& w, const Config& config, int64_t length, const Target& target) {
  const Shape s(w);
  return predict(w, s, config.get_int(s.decode ? "splits" : "block_m"), config.get_int("block_n"), length, target);
}

}  // namespace seqtile::kernels::attention

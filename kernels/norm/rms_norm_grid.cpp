// kernels/norm/rms_norm_grid.cpp -- see rms_norm_grid.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm/rms_norm_grid.h"

#include <fmt/format.h>

#include <algorithm>

#include "jit/base/cdiv.h"
#include "seqtile/error.h"

namespace seqtile::kernels::rms_norm_grid {

using autotune::Config;
using autotune::ConfigSpace;
using autotune::GpuWork;
using autotune::SizeExpr;

namespace {

constexpr int64_t kMembers = 16, kTiles = 4;  // f32 tiles of a row: dy, x, dx and the terms

/// Values of a program's tiles that each thread of a GPU holds.
int64_t values_a_thread(int64_t n, int64_t rows, int64_t num_warps) { return cdiv(rows * n * kTiles, 32 * num_warps); }

std::vector<Config> gpu_configs(int64_t n, int64_t length) {
  constexpr int64_t kRegisters = 64 << 10, kOthers = 64, kMostValues = 160, kMostWarps = 32;
  std::vector<Config> configs;
  for (const int64_t programs : {1, 16, 64, 128, 256})
    for (const int64_t rows : {1, 2, 4, 8})
      for (int64_t num_warps = 1; num_warps <= 16; num_warps *= 2) {
        if ((programs > 1 && programs * rows > length + rows) || (rows > 1 && rows >= 2 * length)) continue;
        if (values_a_thread(n, rows, num_warps) > std::min(kMostValues, kRegisters / (32 * num_warps) - kOthers))
          continue;
        configs.push_back({{"rows", rows}, {"programs", programs}, {"num_warps", num_warps}});
      }
  if (configs.empty() && values_a_thread(n, 1, kMostWarps) <= 2 * kMostValues)  // spills, but works
    for (const int64_t programs : {1, 64})
      configs.push_back({{"rows", int64_t{1}}, {"programs", programs}, {"num_warps", kMostWarps}});
  return configs;
}

std::vector<Config> cpu_configs(int64_t n, int threads, int64_t length, const Target& target) {
  std::vector<Config> configs;
  for (const int64_t programs : {1, 2, 4, 8, 16, 32, 64, 128})
    for (const int64_t rows : {1, 2, 4, 8, 16, 32}) {
      if (programs > 1 && (programs > 8 * threads || programs * rows > length + rows)) continue;
      if (rows > 1 && (rows >= 2 * length || rows * n * kTiles * 4 > target.l2_bytes)) continue;
      configs.push_back({{"rows", rows}, {"programs", programs}});
    }
  return configs;
}

std::vector<Config> configs_of(int64_t n, int threads, int64_t length, const Target& target) {
  return target.is_gpu() ? gpu_configs(n, length) : cpu_configs(n, threads, length, target);
}

}  // namespace

int64_t members(const Config& config) { return std::min(kMembers, config.get_int("programs")); }
int64_t num_groups(const Config& config) { return cdiv(config.get_int("programs"), kMembers); }

std::vector<autotune::Workspace> workspaces(int64_t n, const Config& config) {
  const int64_t groups = num_groups(config);
  std::vector<autotune::Workspace> result = {{"parts", DType::f32, SizeExpr{config.get_int("programs") * n}}};
  if (groups > 1) result.push_back({"group_sums", DType::f32, SizeExpr{groups * n}});
  result.push_back({"arrived", DType::i32, SizeExpr{groups + 1}});
  return result;
}

ConfigSpace config_space(const RmsNormBackward& op, int threads, int64_t length, const Target& target) {
  ConfigSpace space;
  for (const Config& config : configs_of(op.n, threads, length, target)) space.add(config);
  return space;
}

Config default_config(const RmsNormBackward& op, int threads, int64_t length, const Target& target) {
  const std::vector<Config> configs = configs_of(op.n, threads, length, target);
  if (configs.empty())
    throw Error(
        ErrorCode::unsupported,
        fmt::format("rms_norm_backward: a row of {} values does not fit the registers of 1024 threads; take the CPU",
                    op.n));
  const auto us = [&](const Config& c) { return predict_us(op, c, threads, length, target); };
  return *std::ranges::min_element(configs, [&](const Config& a, const Config& b) { return us(a) < us(b); });
}

double predict_us(const RmsNormBackward& op, const Config& config, int threads, int64_t length, const Target& target) {
  if (target.is_gpu()) return autotune::predict_us(gpu_work(op, config, length), target.gpu);
  constexpr double kProgramUs = 0.3, kTileUs = 0.05, kRowUs = 0.02, kNearBytesPerUs = 20e3, kFarBytesPerUs = 10e3;
  const int64_t rows = config.get_int("rows"), programs = config.get_int("programs");
  const double row_bytes = static_cast<double>(op.n * kTiles * 4);
  const int64_t share = cdiv(cdiv(length, programs), rows) * rows, busy = cdiv(length, share);
  const double rounds = static_cast<double>(cdiv(busy, threads));
  const double tile_bytes = static_cast<double>(rows) * row_bytes;
  const double rate = tile_bytes <= static_cast<double>(target.l1_bytes) ? kNearBytesPerUs : kFarBytesPerUs;
  const double tiles = static_cast<double>(cdiv(std::min(share, length), rows));
  const double part_us = row_bytes / 2 / kNearBytesPerUs;  // read and written for each tile, and once more at the end
  const double row_us = kRowUs + row_bytes / rate;
  return rounds * (kProgramUs + static_cast<double>(std::min(share, length)) * row_us + tiles * (kTileUs + part_us)) +
         static_cast<double>(programs) * part_us;
}

GpuWork gpu_work(const RmsNormBackward& op, const Config& config, int64_t length) {
  constexpr double kInstructionsPerValue = 6, kOtherInstructions = 200;
  const int64_t n = op.n, rows = config.get_int("rows"), num_warps = config.get_int("num_warps");
  const double programs = static_cast<double>(config.get_int("programs"));
  const double tensors = op.residual ? 4 : 3;
  const double bytes = tensors * static_cast<double>(n * length * dtype_bytes(op.dtype));
  const double tiles = static_cast<double>(cdiv(length, rows)) / programs;
  GpuWork work;
  work.programs = programs;
  work.threads = 32 * num_warps;
  work.registers = 32 + values_a_thread(n, rows, num_warps);
  work.memory_bytes = bytes + 8 * programs * static_cast<double>(n);
  // One program after the other adds up the parts of its group, then one the groups' sums.
  const double merged = 4 * static_cast<double>(n * (members(config) + num_groups(config)));
  work.l2_bytes = bytes / programs + merged;
  work.warp_instructions =
      static_cast<double>(num_warps) *
      (kOtherInstructions + tiles * kInstructionsPerValue * static_cast<double>(values_a_thread(n, rows, num_warps)));
  return work;
}

}  // namespace seqtile::kernels::rms_norm_grid

// kernels/row_kernel.cpp -- see row_kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "jit/error.h"

namespace seqtile::kernels {

using autotune::Config;
using autotune::ConfigSpace;
using autotune::Workload;

namespace {

constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 64, 128};

int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Rows of a program: no more than the bucket has, and no larger a tile than half of the second-level cache.
bool is_legal(int64_t rows, int64_t tile_columns, int64_t length, const Target& target) {
  if (rows == 1) return true;
  return rows <= static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length))) &&
         rows * tile_columns * 4 <= target.l2_bytes / 2;
}

double predict_rows_us(int64_t rows, int64_t tile_columns, int64_t length, int threads, const Target& target) {
  constexpr double kProgramUs = 0.05, kRowUs = 0.01, kFirstLevelBytesPerUs = 40e3, kBeyondBytesPerUs = 20e3;
  constexpr double kWakeUs = 1.5;  // until a second thread has begun
  const int64_t programs = cdiv(length, rows);
  const double busiest = static_cast<double>(cdiv(programs, threads));
  const double bytes = static_cast<double>(rows * tile_columns * 4);
  const double rate = bytes <= static_cast<double>(target.l1_bytes) / 2 ? kFirstLevelBytesPerUs : kBeyondBytesPerUs;
  const double wake_us = programs > 1 && threads > 1 ? kWakeUs : 0;
  return wake_us + busiest * (kProgramUs + static_cast<double>(rows) * kRowUs + bytes / rate);
}

/// On a GPU a program's rows stay in registers: what one thread holds of them.
int64_t values_a_thread(int64_t rows, int64_t tile_columns, int64_t num_warps) {
  return cdiv(rows * tile_columns, 32 * num_warps);
}

std::vector<Config> gpu_configs(int64_t tile_columns, int64_t length) {
  constexpr int64_t kMostValues = 128, kMostRows = 32;
  std::vector<Config> configs;
  for (int64_t num_warps = 1; num_warps <= 32; num_warps *= 2)
    for (int64_t rows = 1; rows <= kMostRows; rows *= 2)
      if ((rows == 1 || rows < 2 * length) && values_a_thread(rows, tile_columns, num_warps) <= kMostValues)
        configs.push_back({{"rows", rows}, {"num_warps", num_warps}});
  return configs;
}

/// A few vectors a thread, and enough blocks for every multiprocessor.
double predict_gpu_us(const Config& config, int64_t tile_columns, int64_t length) {
  constexpr double kLaunchUs = 2, kBlocksAtOnce = 256, kBytesPerUs = 3e6, kWaveUs = 1.5, kWantedValues = 16;
  const int64_t rows = config.get_int("rows"), num_warps = config.get_int("num_warps");
  const auto values = static_cast<double>(values_a_thread(rows, tile_columns, num_warps));
  const double waves = std::ceil(static_cast<double>(cdiv(length, rows) * num_warps) / (kBlocksAtOnce * 4));
  const double bytes = static_cast<double>(length * tile_columns * 4);
  return kLaunchUs + bytes / kBytesPerUs + waves * kWaveUs * (1 + std::abs(std::log2(values / kWantedValues)) / 4);
}

Config gpu_default(int64_t tile_columns, int64_t length) {
  const std::vector<Config> configs = gpu_configs(tile_columns, length);
  if (configs.empty())
    throw Error(ErrorCode::unsupported, "rows of " + std::to_string(tile_columns) +
                                            " elements do not fit the registers of 1024 threads; take the CPU");
  return *std::min_element(configs.begin(), configs.end(), [&](const Config& a, const Config& b) {
    return predict_gpu_us(a, tile_columns, length) < predict_gpu_us(b, tile_columns, length);
  });
}

ConfigSpace row_space(int64_t tile_columns, int64_t length, const Target& target) {
  if (target.is_gpu()) {
    ConfigSpace space;
    for (const Config& config : gpu_configs(tile_columns, length)) space.add(config);
    return space;
  }
  ConfigSpace space;
  space.parameter("rows", {std::begin(kRows), std::end(kRows)});
  space.constraint([=](const Config& config) -> std::optional<std::string> {
    const int64_t rows = config.get_int("rows");
    if (is_legal(rows, tile_columns, length, target)) return std::nullopt;
    return "rows = " + std::to_string(rows) + " is more than the bucket has, or its tile of " +
           std::to_string(rows * tile_columns * 4) + " B exceeds half of the " + std::to_string(target.l2_bytes) +
           " B second-level cache";
  });
  return space;
}

Config row_default(const Workload& workload, int64_t tile_columns, int64_t length, const Target& target) {
  if (target.is_gpu()) return gpu_default(tile_columns, length);
  int64_t best = 1;
  double best_us = 1e300;
  for (const int64_t rows : kRows) {
    if (!is_legal(rows, tile_columns, length, target)) continue;
    const double us = predict_rows_us(rows, tile_columns, length, workload.threads, target);
    if (us < best_us) best = rows, best_us = us;
  }
  return {{"rows", best}};
}

}  // namespace

void define_row_kernel(autotune::OpDef& op, int64_t (*tile_columns)(const Workload&)) {
  op.config_space = [=](const Workload& w, int64_t length, const Target& target) {
    return row_space(tile_columns(w), length, target);
  };
  op.default_config = [=](const Workload& w, int64_t length, const Target& target) {
    return row_default(w, tile_columns(w), length, target);
  };
  op.predict_us = [=](const Workload& w, const Config& config, int64_t length, const Target& target) {
    if (target.is_gpu()) return predict_gpu_us(config, tile_columns(w), length);
    return predict_rows_us(config.get_int("rows"), tile_columns(w), length, w.threads, target);
  };
  op.grid = [](const Workload&, const Config& config) {
    return std::array<autotune::SizeExpr, 3>{autotune::SizeExpr{1, {{0, config.get_int("rows")}}}};
  };
}

}  // namespace seqtile::kernels

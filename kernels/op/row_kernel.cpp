// kernels/op/row_kernel.cpp -- see seqtile/kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "jit/base/cdiv.h"
#include "seqtile/error.h"

namespace seqtile::kernels {

using autotune::Config;
using autotune::ConfigSpace;
using autotune::Workload;

namespace {

constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 64, 128};

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

constexpr int64_t kMostValues = 128;

/// Values a thread that leave room for what is computed from them in the registers that so many warps have.
int64_t most_values(int64_t num_warps) {
  constexpr int64_t kRegisters = 64 << 10, kOthers = 76;
  return std::min(kMostValues, kRegisters / (32 * num_warps) - kOthers);
}

std::vector<Config> gpu_configs(int64_t tile_columns, int64_t length) {
  constexpr int64_t kMostRows = 32;
  std::vector<Config> configs;
  for (int64_t num_warps = 1; num_warps <= 16; num_warps *= 2)
    for (int64_t rows = 1; rows <= kMostRows; rows *= 2)
      if ((rows == 1 || rows < 2 * length) && values_a_thread(rows, tile_columns, num_warps) <= most_values(num_warps))
        configs.push_back({{"rows", rows}, {"num_warps", num_warps}});
  // Longer rows spill, but work.
  constexpr int64_t kMostWarps = 32;
  if (configs.empty() && values_a_thread(1, tile_columns, kMostWarps) <= kMostValues)
    configs.push_back({{"rows", int64_t{1}}, {"num_warps", kMostWarps}});
  return configs;
}

/// What the operations that share this file differ in.
struct RowModel {
  int64_t (*tile_columns)(const Workload&);
  autotune::Cost (*cost)(const Workload&, std::span<const int64_t> symbols);

  autotune::GpuWork gpu_work(const Workload& w, const Config& config, int64_t length) const {
    constexpr double kInstructionsPerValue = 5, kOtherInstructions = 100;
    const int64_t rows = config.get_int("rows"), num_warps = config.get_int("num_warps");
    const double held = static_cast<double>(values_a_thread(rows, tile_columns(w), num_warps));
    const autotune::Cost whole = cost(w, std::vector<int64_t>{length});
    autotune::GpuWork work;
    work.programs = static_cast<double>(cdiv(length, rows));
    work.threads = 32 * num_warps;
    work.registers = 24 + static_cast<int64_t>(held);
    work.memory_bytes = whole.bytes_read + whole.bytes_written;
    work.l2_bytes = work.memory_bytes / static_cast<double>(length) * static_cast<double>(std::min(rows, length));
    work.warp_instructions = static_cast<double>(num_warps) * (kOtherInstructions + kInstructionsPerValue * held);
    return work;
  }

  /// The first of those that the model finds fastest.
  Config gpu_default(const Workload& w, int64_t length, const Target& target) const {
    const std::vector<Config> configs = gpu_configs(tile_columns(w), length);
    if (configs.empty())
      throw Error(ErrorCode::unsupported,
                  fmt::format("{} {}: with its results a row is {} values to keep in registers, the 1024 threads of a "
                              "block hold {}; take the CPU",
                              w.operation, w.fields.json(), tile_columns(w), 1024 * kMostValues));
    const auto us = [&](const Config& config) { return predict_us(gpu_work(w, config, length), target.gpu); };
    return *std::min_element(configs.begin(), configs.end(),
                             [&](const Config& a, const Config& b) { return us(a) < us(b); });
  }
};

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

autotune::Cost row_cost(const autotune::Schema& schema, int64_t length, double flops_a_row) {
  autotune::Schema of_rows = schema;
  std::erase_if(of_rows.args, [](const autotune::ArgSpec& arg) { return arg.dims.front().symbol.empty(); });
  autotune::Cost cost = traffic_of(of_rows, std::vector<int64_t>(schema.symbols.size(), length));
  cost.flops = flops_a_row * static_cast<double>(length);
  return cost;
}

void define_row_kernel(autotune::OpDef& op, int64_t (*tile_columns)(const Workload&),
                       autotune::Cost (*cost)(const Workload&, std::span<const int64_t> symbols)) {
  const RowModel model{tile_columns, cost};
  op.config_space = [=](const Workload& w, int64_t length, const Target& target) {
    return row_space(tile_columns(w), length, target);
  };
  op.default_config = [=](const Workload& w, int64_t length, const Target& target) {
    if (target.is_gpu()) return model.gpu_default(w, length, target);
    return row_default(w, tile_columns(w), length, target);
  };
  op.predict_us = [=](const Workload& w, const Config& config, int64_t length, const Target& target) {
    return predict_rows_us(config.get_int("rows"), tile_columns(w), length, w.threads, target);
  };
  op.gpu_work = [=](const Workload& w, const Config& config, int64_t length, const Target&) {
    return model.gpu_work(w, config, length);
  };
  op.gpu_samples = [](const Workload& w, const Config& config, int64_t) {
    return std::vector<autotune::GpuSample>{{w, config.get_int("rows"), 1}};  // one program, all of its rows
  };
  op.grid = [](const Workload&, const Config& config) {
    return std::array<autotune::SizeExpr, 3>{autotune::SizeExpr{1, {{0, config.get_int("rows")}}}};
  };
  op.cost = cost;
}

}  // namespace seqtile::kernels

// kernels/norm/rms_norm_backward_config.cpp -- how rms_norm_backward is cut into programs, and the models that rank
// that.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "jit/base/cdiv.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/rows.h"

namespace seqtile::kernels {

namespace rms_norm_backward_op {
namespace {

using Tile = RmsNormBackward::Tile;

constexpr int64_t kMembers = 16, kTiles = 4;  // f32 tiles of a row: dy, x, dx and the terms

/// Values of a program's tiles that each thread of a GPU holds.
int64_t values_a_thread(int64_t n, int64_t rows, int64_t num_warps) { return cdiv(rows * n * kTiles, 32 * num_warps); }

std::vector<Tile> gpu_tiles(int64_t n, int64_t length) {
  constexpr int64_t kRegisters = 64 << 10, kOthers = 64, kMostValues = 160, kMostWarps = 32;
  std::vector<Tile> tiles;
  for (const int64_t programs : {1, 16, 64, 128, 256})
    for (const int64_t rows : {1, 2, 4, 8})
      for (int64_t num_warps = 1; num_warps <= 16; num_warps *= 2) {
        if ((programs > 1 && programs * rows > length + rows) || (rows > 1 && rows >= 2 * length)) continue;
        if (values_a_thread(n, rows, num_warps) > std::min(kMostValues, kRegisters / (32 * num_warps) - kOthers))
          continue;
        tiles.push_back({rows, programs, num_warps});
      }
  if (tiles.empty() && values_a_thread(n, 1, kMostWarps) <= 2 * kMostValues)  // spills, but works
    for (const int64_t programs : {1, 64}) tiles.push_back({1, programs, kMostWarps});
  return tiles;
}

std::vector<Tile> cpu_tiles(int64_t n, const Setting& s) {
  std::vector<Tile> tiles;
  for (const int64_t programs : {1, 2, 4, 8, 16, 32, 64, 128})
    for (const int64_t rows : {1, 2, 4, 8, 16, 32}) {
      if (programs > 1 && (programs > 8 * s.threads || programs * rows > s.length + rows)) continue;
      if (rows > 1 && (rows >= 2 * s.length || rows * n * kTiles * 4 > s.target.l2_bytes)) continue;
      tiles.push_back({rows, programs});
    }
  return tiles;
}

}  // namespace
}  // namespace rms_norm_backward_op

int64_t RmsNormBackward::Tile::members() const { return std::min(rms_norm_backward_op::kMembers, programs); }
int64_t RmsNormBackward::Tile::num_groups() const { return cdiv(programs, rms_norm_backward_op::kMembers); }

std::vector<RmsNormBackward::Tile> RmsNormBackward::tiles(const Setting& s) const {
  using namespace rms_norm_backward_op;
  return s.target.is_gpu() ? gpu_tiles(n, s.length) : cpu_tiles(n, s);
}

void RmsNormBackward::refuse(const Target&) const {
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: a row of {} values does not fit the registers of 1024 threads; take the CPU", kName, n));
}

std::vector<autotune::Workspace> RmsNormBackward::workspaces(const Tile& tile) const {
  const int64_t groups = tile.num_groups();
  std::vector<autotune::Workspace> result = {{"parts", DType::f32, {tile.programs * n}}};
  if (groups > 1) result.push_back({"group_sums", DType::f32, {groups * n}});
  result.push_back({"arrived", DType::i32, {groups + 1}});
  return result;
}

double RmsNormBackward::predict_us(const Tile& tile, const Setting& s) const {
  using namespace rms_norm_backward_op;
  if (s.target.is_gpu()) return autotune::predict_us(gpu_work(tile, s), s.target.gpu);
  constexpr double kProgramUs = 0.3, kTileUs = 0.05, kRowUs = 0.02, kNearBytesPerUs = 20e3, kFarBytesPerUs = 10e3;
  const int64_t length = s.length, rows = tile.rows, programs = tile.programs;
  const double row_bytes = static_cast<double>(n * kTiles * 4);
  const int64_t share = cdiv(cdiv(length, programs), rows) * rows, busy = cdiv(length, share);
  const double rounds = static_cast<double>(cdiv(busy, s.threads));
  const double tile_bytes = static_cast<double>(rows) * row_bytes;
  const double rate = tile_bytes <= static_cast<double>(s.target.l1_bytes) ? kNearBytesPerUs : kFarBytesPerUs;
  const double tiles = static_cast<double>(cdiv(std::min(share, length), rows));
  const double part_us = row_bytes / 2 / kNearBytesPerUs;  // read and written for each tile, and once more at the end
  const double row_us = kRowUs + row_bytes / rate;
  return rounds * (kProgramUs + static_cast<double>(std::min(share, length)) * row_us + tiles * (kTileUs + part_us)) +
         static_cast<double>(programs) * part_us;
}

autotune::GpuWork RmsNormBackward::gpu_work(const Tile& tile, const Setting& s) const {
  using namespace rms_norm_backward_op;
  constexpr double kInstructionsPerValue = 6, kOtherInstructions = 200;
  const int64_t length = s.length, rows = tile.rows, num_warps = tile.num_warps.value_or(4);
  const double programs = static_cast<double>(tile.programs);
  const double tensors = residual ? 4 : 3;
  const double bytes = tensors * static_cast<double>(n * length * dtype_bytes(dtype));
  const double tiles = static_cast<double>(cdiv(length, rows)) / programs;
  autotune::GpuWork work;
  work.programs = programs;
  work.threads = 32 * num_warps;
  work.registers = 32 + values_a_thread(n, rows, num_warps);
  work.memory_bytes = bytes + 8 * programs * static_cast<double>(n);
  // One program after the other adds up the parts of its group, then one the groups' sums.
  const double merged = 4 * static_cast<double>(n * (tile.members() + tile.num_groups()));
  work.l2_bytes = bytes / programs + merged;
  work.warp_instructions =
      static_cast<double>(num_warps) *
      (kOtherInstructions + tiles * kInstructionsPerValue * static_cast<double>(values_a_thread(n, rows, num_warps)));
  return work;
}

}  // namespace seqtile::kernels

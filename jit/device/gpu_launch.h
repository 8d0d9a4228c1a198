// jit/device/gpu_launch.h -- how GPUs launch a kernel: grids of blocks, arguments, and what the artifact store keeps.
// SPDX-License-Identifier: Apache-2.0
//
// A kernel of several ranks (GpuLaunch::ranks_in_launch) takes one table of arguments instead of slots. Device::launch
// gets the table as its slots, and the programs of all ranks as its grid: devices need not know what a rank is.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "seqtile/device.h"

namespace seqtile {

/// Values that a tensor map is encoded from. The innermost dimension comes first, as the hardware counts.
struct TensorMapFacts {
  int rank = 0;
  uint64_t base = 0;
  std::array<uint64_t, 5> sizes{};         ///< elements
  std::array<uint64_t, 4> stride_bytes{};  ///< element i: the stride of dimension i + 1
  std::array<uint32_t, 5> box{};
  bool operator==(const TensorMapFacts&) const = default;
};
TensorMapFacts facts_of(const TensorMapSpec& map, std::span<const uint64_t> slots);

/// JSON for the artifact store; empty text for CPU kernels.
std::string to_text(const GpuLaunch& launch);
/// The launch that `text` describes; nothing for other texts.
std::optional<GpuLaunch> parse_gpu_launch(std::string_view text);

/// The blocks that a GPU launches for a grid.
struct GpuGrid {
  std::array<uint32_t, 3> blocks{};
  std::array<uint64_t, 3> programs{};  ///< up to whole clusters
  bool is_empty() const { return blocks[0] == 0 || blocks[1] == 0 || blocks[2] == 0; }
};
/// `resident_blocks`: how many blocks run at once on `device`.
/// Errors: invalid_argument for a grid that GPUs do not take, out_of_resources for blocks that wait for each other and
/// do not run at once.
GpuGrid gpu_grid(const KernelBinary& binary, const Grid& grid, int64_t resident_blocks, std::string_view device);

/// The slots are one parameter, a table. Else each slot is one.
inline bool takes_table(const GpuLaunch& launch) { return launch.ranks_in_launch > 1; }
/// The sides of GpuGrid::programs are parameters behind the slots.
inline bool takes_grid(const GpuLaunch& launch) { return launch.is_persistent && !takes_table(launch); }
/// The number of slots that Device::launch takes on a GPU.
size_t num_launch_slots(const KernelBinary& binary);
/// Errors: invalid_argument where the number of slots is another one.
void check_slots(const KernelBinary& binary, std::span<const uint64_t> slots);

/// Arguments of one of the ranks that share a launch. A rank without slots does nothing.
struct RankArguments {
  Grid grid{};
  std::span<const uint64_t> slots;
};
/// Arguments of Device::launch for all ranks that share the launch.
struct JointArguments {
  Grid grid{};                  ///< for each rank as many programs as the rank with the most has
  std::vector<uint64_t> slots;  ///< the table: for each rank a row of its slots and the three sides of its grid
};
/// `ranks`: the arguments, by rank; ranks that it leaves out do nothing. Errors: invalid_argument for too many ranks,
/// another number of slots or a grid that GPUs do not take.
JointArguments joint_arguments(const KernelBinary& binary, std::span<const RankArguments> ranks,
                               std::string_view device);
/// Device::launch; of a kernel that ranks share it launches the first rank alone.
void launch_alone(Device& device, const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots,
                  Stream stream = {}, GridRange range = {});

}  // namespace seqtile

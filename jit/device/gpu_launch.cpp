// jit/device/gpu_launch.cpp -- see gpu_launch.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/device/gpu_launch.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile {

using nlohmann::json;

TensorMapFacts facts_of(const TensorMapSpec& map, std::span<const uint64_t> slots) {
  constexpr uint64_t kStrideUnit = 16;
  TensorMapFacts facts;
  facts.rank = static_cast<int>(map.box.size());
  const uint64_t bytes = static_cast<uint64_t>(dtype_bytes(map.dtype));
  const size_t rank = map.box.size(), first = map.first_slot;
  facts.base = slots[first];
  for (size_t i = 0; i < rank; ++i) {
    const size_t d = rank - 1 - i;
    facts.sizes[i] = slots[first + 1 + d];
    facts.box[i] = map.box[d];
    if (i == 0) continue;
    const uint64_t stride = slots[first + 1 + rank + d] * bytes;
    // The stride of a single element means nothing; the hardware still wants one.
    facts.stride_bytes[i - 1] = facts.sizes[i] == 1 ? (stride + kStrideUnit - 1) / kStrideUnit * kStrideUnit : stride;
  }
  return facts;
}

std::string to_text(const GpuLaunch& launch) {
  if (launch.threads == 0) return "";
  json maps = json::array();
  for (const TensorMapSpec& map : launch.tensor_maps)
    maps.push_back({{"slot", map.first_slot},
                    {"dtype", dtype_name(map.dtype)},
                    {"box", map.box},
                    {"swizzle_bytes", map.swizzle_bytes}});
  return json{{"threads", launch.threads},
              {"shared_bytes", launch.shared_bytes},
              {"cluster", launch.cluster},
              {"is_persistent", launch.is_persistent},
              {"is_in_order", launch.is_in_order},
              {"ranks_in_launch", launch.ranks_in_launch},
              {"is_cooperative", launch.is_cooperative},
              {"tensor_maps", maps},
              {"loop", launch.loop}}
      .dump();
}

std::optional<GpuLaunch> parse_gpu_launch(std::string_view text) {
  if (text.empty()) return GpuLaunch{};
  try {
    const json object = json::parse(text);
    GpuLaunch launch;
    object.at("threads").get_to(launch.threads);
    object.at("shared_bytes").get_to(launch.shared_bytes);
    object.at("cluster").get_to(launch.cluster);
    object.at("is_persistent").get_to(launch.is_persistent);
    launch.is_in_order = object.value("is_in_order", false);
    launch.ranks_in_launch = object.value("ranks_in_launch", 1u);
    object.at("is_cooperative").get_to(launch.is_cooperative);
    for (const json& each : object.at("tensor_maps")) {
      const auto dtype = parse_dtype(each.at("dtype").get<std::string>());
      if (!dtype) return std::nullopt;
      launch.tensor_maps.push_back({each.at("slot"), *dtype, each.at("box"), each.at("swizzle_bytes")});
    }
    object.at("loop").get_to(launch.loop);
    return launch;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

namespace {

/// At most 2^63 programs.
uint64_t count_of(const GpuGrid& grid) { return grid.programs[0] * grid.programs[1] * grid.programs[2]; }

/// A grid in whole clusters: its programs, and a block for each. Errors: invalid_argument for grids that GPUs do not
/// take.
GpuGrid whole_clusters(const KernelBinary& binary, const Grid& grid, std::string_view device) {
  constexpr int64_t kMost[] = {INT32_MAX, 65535, 65535};
  const std::array<uint32_t, 3>& cluster = binary.gpu.cluster;
  GpuGrid whole;
  for (size_t axis = 0; axis < 3; ++axis) {
    if (grid[axis] < 0 || grid[axis] > kMost[axis])
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("kernel {}: a grid of {} x {} x {} programs, {} takes at most {} x {} x {}",
                              binary.symbol, grid[0], grid[1], grid[2], device, kMost[0], kMost[1], kMost[2]));
    whole.blocks[axis] = (static_cast<uint32_t>(grid[axis]) + cluster[axis] - 1) / cluster[axis] * cluster[axis];
    whole.programs[axis] = whole.blocks[axis];
  }
  if (binary.gpu.is_persistent && count_of(whole) > INT32_MAX)
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {} programs, {} takes at most {} in turn",
                                                         binary.symbol, count_of(whole), device, INT32_MAX));
  return whole;
}

}  // namespace

GpuGrid gpu_grid(const KernelBinary& binary, const Grid& grid, int64_t resident_blocks, std::string_view device) {
  GpuGrid launched = whole_clusters(binary, grid, device);
  if (launched.is_empty()) return launched;
  const uint64_t all = count_of(launched);
  const auto resident = static_cast<uint64_t>(std::max<int64_t>(resident_blocks, 0));
  if (binary.gpu.is_cooperative && !binary.gpu.is_in_order && all > resident)
    throw Error(ErrorCode::out_of_resources,
                fmt::format("kernel {}: {} blocks wait for each other, {} runs {} at once; use larger blocks or a "
                            "shorter call",
                            binary.symbol, all, device, resident));
  if (!binary.gpu.is_persistent) return launched;
  const uint64_t ranks = binary.gpu.ranks_in_launch;
  if (resident < ranks && ranks > 1)
    throw Error(
        ErrorCode::out_of_resources,
        fmt::format("kernel {}: {} ranks wait for each other in one launch, {} runs {} blocks at once; use fewer "
                    "ranks or smaller blocks",
                    binary.symbol, ranks, device, resident));
  const uint64_t step = ranks * binary.gpu.cluster[0];
  launched.blocks = {static_cast<uint32_t>(std::min(std::max(resident / step * step, step), all)), 1, 1};
  return launched;
}

size_t num_launch_slots(const KernelBinary& binary) {
  if (!takes_table(binary.gpu)) return binary.num_slots;
  return binary.gpu.ranks_in_launch * (binary.num_slots + GpuGrid{}.programs.size());
}

void check_slots(const KernelBinary& binary, std::span<const uint64_t> slots) {
  if (slots.size() != num_launch_slots(binary))
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {} argument slots were given, it takes {}",
                                                         binary.symbol, slots.size(), num_launch_slots(binary)));
}

JointArguments joint_arguments(const KernelBinary& binary, std::span<const RankArguments> ranks,
                               std::string_view device) {
  const int64_t all_ranks = binary.gpu.ranks_in_launch;
  if (static_cast<int64_t>(ranks.size()) > all_ranks)
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: a launch of {} ranks, it is compiled for {}",
                                                         binary.symbol, ranks.size(), all_ranks));
  JointArguments joint{{0, 1, 1}, std::vector<uint64_t>(num_launch_slots(binary))};
  auto row = joint.slots.begin();
  for (const RankArguments& rank : ranks) {
    const auto next = row + static_cast<std::ptrdiff_t>(binary.num_slots + rank.grid.size());
    if (!rank.slots.empty()) {
      if (rank.slots.size() != binary.num_slots)
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("kernel {}: {} argument slots were given for a rank, it takes {}", binary.symbol,
                                rank.slots.size(), binary.num_slots));
      const GpuGrid own = whole_clusters(binary, rank.grid, device);
      std::ranges::copy(own.programs, std::ranges::copy(rank.slots, row).out);
      joint.grid[0] = std::max(joint.grid[0], all_ranks * static_cast<int64_t>(count_of(own)));
    }
    row = next;
  }
  return joint;
}

void launch_alone(Device& device, const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots,
                  Stream stream, GridRange range) {
  if (!takes_table(kernel.binary().gpu)) return device.launch(kernel, grid, slots, stream, range);
  const RankArguments first{grid, slots};
  const JointArguments joint = joint_arguments(kernel.binary(), {&first, 1}, device.info().name);
  device.launch(kernel, joint.grid, joint.slots, stream, range);
}

}  // namespace seqtile

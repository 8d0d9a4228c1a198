// jit/device/kernel.cpp -- see seqtile/device.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/device.h"

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

GpuGrid gpu_grid(const KernelBinary& binary, const Grid& grid, int64_t resident_blocks, std::string_view device) {
  constexpr int64_t kMost[] = {INT32_MAX, 65535, 65535};
  const std::array<uint32_t, 3>& cluster = binary.gpu.cluster;
  GpuGrid launched;
  for (size_t axis = 0; axis < 3; ++axis) {
    if (grid[axis] < 0 || grid[axis] > kMost[axis])
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("kernel {}: a grid of {} x {} x {} programs, {} takes at most {} x {} x {}",
                              binary.symbol, grid[0], grid[1], grid[2], device, kMost[0], kMost[1], kMost[2]));
    launched.blocks[axis] = (static_cast<uint32_t>(grid[axis]) + cluster[axis] - 1) / cluster[axis] * cluster[axis];
    launched.programs[axis] = launched.blocks[axis];
  }
  if (launched.is_empty()) return launched;
  const uint64_t all = launched.programs[0] * launched.programs[1] * launched.programs[2];  // at most 2^63
  const auto resident = static_cast<uint64_t>(std::max<int64_t>(resident_blocks, 0));
  if (binary.gpu.is_cooperative && !binary.gpu.is_in_order && all > resident)
    throw Error(ErrorCode::out_of_resources,
                fmt::format("kernel {}: {} blocks wait for each other, {} runs {} at once; use larger blocks or a "
                            "shorter call",
                            binary.symbol, all, device, resident));
  if (!binary.gpu.is_persistent) return launched;
  if (all > INT32_MAX)
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {} programs, {} takes at most {} in turn",
                                                         binary.symbol, all, device, INT32_MAX));
  const uint64_t ranks = binary.gpu.ranks_in_launch;
  if (resident < ranks && ranks > 1)
    throw Error(
        ErrorCode::out_of_resources,
        fmt::format("kernel {}: {} ranks wait for each other in one launch, {} runs {} blocks at once; use fewer "
                    "ranks or smaller blocks",
                    binary.symbol, ranks, device, resident));
  const uint64_t whole = std::max<uint64_t>(resident / ranks / cluster[0] * cluster[0], cluster[0]);
  launched.blocks = {static_cast<uint32_t>(std::min(whole, all) * ranks), 1, 1};
  return launched;
}

void check_slots(const KernelBinary& binary, std::span<const uint64_t> slots) {
  if (slots.size() != binary.num_slots)
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {} argument slots were given, it takes {}",
                                                         binary.symbol, slots.size(), binary.num_slots));
}

RankLaunch rank_launch(const KernelBinary& binary, std::span<const RankArguments> ranks, int64_t resident_blocks,
                       std::string_view device) {
  if (ranks.size() > binary.gpu.ranks_in_launch)
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: a launch of {} ranks, it is compiled for {}",
                                                         binary.symbol, ranks.size(), binary.gpu.ranks_in_launch));
  RankLaunch launch;
  const size_t row = binary.num_slots + launch.grid.programs.size();
  launch.table.resize(row * binary.gpu.ranks_in_launch);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].slots.empty()) continue;
    check_slots(binary, ranks[rank].slots);
    const GpuGrid own = gpu_grid(binary, ranks[rank].grid, resident_blocks, device);
    const auto programs = std::copy(ranks[rank].slots.begin(), ranks[rank].slots.end(),
                                    launch.table.begin() + static_cast<std::ptrdiff_t>(rank * row));
    std::copy(own.programs.begin(), own.programs.end(), programs);
    if (!own.is_empty() && own.blocks[0] > launch.grid.blocks[0]) launch.grid = own;
  }
  return launch;
}

}  // namespace seqtile

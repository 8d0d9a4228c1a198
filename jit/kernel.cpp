// jit/kernel.cpp -- see kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/kernel.h"

#include <nlohmann/json.hpp>

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

}  // namespace seqtile

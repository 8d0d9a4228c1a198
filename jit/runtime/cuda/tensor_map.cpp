// jit/runtime/cuda/tensor_map.cpp -- see tensor_map.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/tensor_map.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

namespace seqtile::cuda {
namespace {

constexpr size_t kMaxRank = 5, kEntries = 64;

/// All that a descriptor is made from, innermost dimension first as the driver wants it. Unused places are 0.
struct Key {
  uint64_t base = 0;
  uint64_t sizes[kMaxRank] = {}, stride_bytes[kMaxRank] = {};
  uint32_t box[kMaxRank] = {};
  uint32_t rank = 0;
  int32_t type = 0, swizzle = 0;
  bool operator==(const Key&) const = default;

  uint64_t hash() const {
    uint64_t value = base ^ swizzle;
    const auto mix = [&](uint64_t word) { value = (value ^ word) * 0x9e3779b97f4a7c15u; };
    for (size_t d = 0; d < rank; ++d) mix(sizes[d]), mix(stride_bytes[d]), mix(box[d]);
    return value >> 32;
  }
};

int driver_type(DType dtype) {
  switch (dtype) {
    case DType::i16: return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case DType::i32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::i64: return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case DType::f16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::f32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::f64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case DType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    default: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

int driver_swizzle(uint32_t bytes) {
  return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
         : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
         : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                       : CU_TENSOR_MAP_SWIZZLE_NONE;
}

Key key_of(const TensorMapSpec& spec, std::span<const uint64_t> slots) {
  SEQTILE_ASSERT(spec.rank >= 1 && spec.rank <= kMaxRank && spec.slot + 1 + 2 * spec.rank <= slots.size());
  const uint64_t* view = slots.data() + spec.slot;
  const auto bytes = static_cast<uint64_t>(dtype_bytes(spec.dtype));
  Key key{.base = view[0], .rank = spec.rank};
  key.type = driver_type(spec.dtype);
  key.swizzle = driver_swizzle(spec.swizzle_bytes);
  for (uint32_t d = 0; d < spec.rank; ++d) {
    const uint32_t outer = spec.rank - 1 - d;
    key.sizes[d] = view[1 + outer];
    key.stride_bytes[d] = view[1 + spec.rank + outer] * bytes;
    key.box[d] = spec.box[outer];
  }
  if (key.stride_bytes[0] != bytes && key.sizes[0] > 1)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a tensor whose neighbours in a row are {} elements apart: the "
                            "kernel takes contiguous rows",
                            key.stride_bytes[0] / bytes));
  key.stride_bytes[0] = 0;
  return key;
}

void encode(const Context& context, const Key& key, CUtensorMap& map) {
  constexpr uint32_t kSteps[kMaxRank] = {1, 1, 1, 1, 1};
  // The innermost dimension is contiguous: its stride is not given.
  const CUresult result = context.driver().cuTensorMapEncodeTiled(
      &map, key.type, key.rank, reinterpret_cast<void*>(key.base), key.sizes, key.stride_bytes + 1, key.box, kSteps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, key.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: describe tiles of {} x {} of a tensor of {} x {} at {:#x}, rows {} bytes apart: {}; base "
                  "and rows have to be multiples of 16 bytes",
                  context.name(), key.box[1], key.box[0], key.sizes[1], key.sizes[0], key.base, key.stride_bytes[1],
                  context.driver().describe(result)));
}

}  // namespace

const CUtensorMap& tensor_map(const Context& context, const TensorMapSpec& spec, std::span<const uint64_t> slots) {
  struct Entry {
    Key key;
    CUtensorMap map;
  };
  thread_local std::array<Entry, kEntries> entries{};
  const Key key = key_of(spec, slots);
  Entry& entry = entries[key.hash() % kEntries];
  if (entry.key == key) return entry.map;
  entry.key = {};  // if encoding fails the place is empty
  encode(context, key, entry.map);
  entry.key = key;
  return entry.map;
}

}  // namespace seqtile::cuda

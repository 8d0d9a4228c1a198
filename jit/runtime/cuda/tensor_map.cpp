// jit/runtime/cuda/tensor_map.cpp -- see tensor_map.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/tensor_map.h"

#include "jit/base/assert.h"

#include <array>

#include <fmt/format.h>

namespace seqtile::cuda {
namespace {

constexpr size_t kEntries = 64;

/// All that a descriptor is made from. A default one, of rank 0, stands for an empty place.
struct Key {
  TensorMapFacts facts;
  int type = 0, swizzle = 0;
  bool operator==(const Key&) const = default;

  uint64_t hash() const {
    uint64_t value = facts.base;
    const auto mix = [&](uint64_t word) { value = (value ^ word) * 0x9e3779b97f4a7c15u; };
    for (int d = 0; d < facts.rank; ++d) mix(facts.sizes[d]), mix(facts.box[d]);
    for (int d = 0; d + 1 < facts.rank; ++d) mix(facts.stride_bytes[d]);
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
  const size_t rank = spec.box.size();
  SEQTILE_ASSERT(rank >= 1 && rank <= 5 && spec.first_slot + 1 + 2 * rank <= slots.size());
  Key key{facts_of(spec, slots), driver_type(spec.dtype), driver_swizzle(spec.swizzle_bytes)};
  const uint64_t step = slots[spec.first_slot + 2 * rank];
  if (step != 1 && key.facts.sizes[0] > 1)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a tensor whose neighbours in a row are {} elements apart: the "
                            "kernel takes contiguous rows",
                            step));
  return key;
}

void encode(const Context& context, const Key& key, CUtensorMap& map) {
  constexpr uint32_t kSteps[5] = {1, 1, 1, 1, 1};
  const TensorMapFacts& facts = key.facts;
  const CUresult result = context.driver().cuTensorMapEncodeTiled(
      &map, key.type, static_cast<uint32_t>(facts.rank), reinterpret_cast<void*>(facts.base), facts.sizes.data(),
      facts.stride_bytes.data(), facts.box.data(), kSteps, CU_TENSOR_MAP_INTERLEAVE_NONE, key.swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: describe tiles of {} x {} of a tensor of {} x {} at {:#x}, rows {} bytes apart: {}; base "
                  "and rows have to be multiples of 16 bytes",
                  context.name(), facts.box[1], facts.box[0], facts.sizes[1], facts.sizes[0], facts.base,
                  facts.stride_bytes[0], context.driver().describe(result)));
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

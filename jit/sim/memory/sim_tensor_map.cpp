// jit/sim/memory/sim_tensor_map.cpp -- see the header.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/memory/sim_tensor_map.h"

#include <fmt/format.h>

#include "seqtile/error.h"

namespace seqtile::sim {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, "tensor map: " + what); }

}  // namespace

int tensor_element_bytes(TensorElement element) {
  switch (element) {
    case TensorElement::u8: return 1;
    case TensorElement::u16:
    case TensorElement::f16:
    case TensorElement::bf16: return 2;
    case TensorElement::u64:
    case TensorElement::s64:
    case TensorElement::f64: return 8;
    default: return 4;
  }
}

TensorMap encode_tensor_map(TensorElement element, const void* base, std::span<const uint64_t> size,
                            std::span<const uint64_t> stride_bytes, std::span<const uint32_t> box, Swizzle swizzle,
                            std::span<const uint32_t> element_strides, bool fill_nan) {
  TensorMap map;
  map.magic = TensorMap::kMagic;
  map.rank = static_cast<uint32_t>(size.size());
  map.element = element, map.swizzle = swizzle, map.fill_nan = fill_nan;
  map.base = reinterpret_cast<uint64_t>(base);
  if (map.rank < 1 || map.rank > 5) refuse(fmt::format("{} dimensions, 1 to 5 are possible", map.rank));
  if (box.size() != map.rank || stride_bytes.size() + 1 != map.rank) refuse("box and strides do not fit the rank");
  if (map.base % 16 != 0) refuse("the base is not aligned to 16 bytes");
  for (uint32_t d = 0; d < map.rank; ++d) {
    map.size[d] = static_cast<uint32_t>(size[d]);
    map.box[d] = box[d];
    map.step[d] = d == 0 || element_strides.empty() ? 1 : element_strides[d];
    if (size[d] == 0 || size[d] >> 32 != 0) refuse(fmt::format("dimension {} has {} elements", d, size[d]));
    if (box[d] == 0 || box[d] > 256) refuse(fmt::format("box extent {} of dimension {} is not in 1..256", box[d], d));
    if (map.step[d] == 0 || map.step[d] > 8) refuse(fmt::format("element stride {} is not in 1..8", map.step[d]));
    if (d == 0) continue;
    map.stride[d - 1] = stride_bytes[d - 1];
    if (stride_bytes[d - 1] % 16 != 0)
      refuse(fmt::format("stride {} of dimension {} is no multiple of 16", stride_bytes[d - 1], d));
  }
  const uint32_t inner = box[0] * static_cast<uint32_t>(tensor_element_bytes(element));
  if (inner % 16 != 0) refuse(fmt::format("the box's inner extent of {} bytes is no multiple of 16", inner));
  const uint32_t span = 16u << static_cast<uint32_t>(swizzle);
  if (swizzle != Swizzle::none && inner > span)
    refuse(fmt::format("the box's inner extent of {} bytes is beyond the swizzle's {}", inner, span));
  if (swizzle != Swizzle::none && inner < span)
    refuse(fmt::format("an inner extent of {} bytes with a swizzle of {} is not modelled; take the swizzle that fits",
                       inner, span));
  return map;
}

}  // namespace seqtile::sim

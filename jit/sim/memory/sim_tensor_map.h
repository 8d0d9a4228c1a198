// jit/sim/memory/sim_tensor_map.h -- the machine's own tensor map: the facts that a driver would encode, in 128
// readable bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace seqtile::sim {

enum class Swizzle : uint32_t { none, b32, b64, b128 };
enum class TensorElement : uint32_t { u8, u16, u32, s32, f16, f32, bf16, tf32, u64, s64, f64 };

struct alignas(64) TensorMap {
  static constexpr uint32_t kMagic = 0x504d5453;
  uint32_t magic = 0;
  uint32_t rank = 0;
  TensorElement element = TensorElement::u8;
  Swizzle swizzle = Swizzle::none;
  uint64_t base = 0;
  uint32_t size[5] = {};  ///< elements, innermost first
  uint32_t box[5] = {};
  uint64_t stride[4] = {};  ///< bytes; element i: the stride of dimension i + 1
  uint32_t step[5] = {};    ///< element strides
  uint32_t fill_nan = 0;    ///< outside of the tensor: NaN instead of zero

  bool is_map() const { return magic == kMagic; }
};
static_assert(sizeof(TensorMap) == 128);

/// Encodes a tensor map by the rules of cuTensorMapEncodeTiled.
/// Requires: 1 to 5 dimensions, innermost first; base and strides multiples of 16; every box extent 1 to 256; the box's
///   inner extent a multiple of 16 bytes, and with a swizzle just its span (a device also takes less: not modelled).
/// Errors: invalid_argument naming the value that breaks a rule.
TensorMap encode_tensor_map(TensorElement element, const void* base, std::span<const uint64_t> size,
                            std::span<const uint64_t> stride_bytes, std::span<const uint32_t> box, Swizzle swizzle,
                            std::span<const uint32_t> element_strides = {}, bool fill_nan = false);

int tensor_element_bytes(TensorElement element);

/// The shared address where a byte lands: bits of the row number go into the number of the 16-byte chunk.
inline uint32_t swizzled(uint32_t address, Swizzle swizzle) {
  const auto bits = static_cast<uint32_t>(swizzle);
  return address ^ ((address >> 7 & ((1u << bits) - 1)) << 4);
}

}  // namespace seqtile::sim

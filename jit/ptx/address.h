// jit/ptx/address.h -- where the address spaces lie.
// SPDX-License-Identifier: Apache-2.0
//
// A global address is the host's own pointer. The other spaces are windows of the 64-bit generic space in which no
// host pointer lies. Inside its window a space starts behind 0, so that a null pointer is never valid.
#pragma once
#include <cstdint>

namespace seqtile::sim {

constexpr uint64_t kSharedWindow = uint64_t{1} << 60;
constexpr uint64_t kLocalWindow = uint64_t{1} << 61;
constexpr uint64_t kParamWindow = uint64_t{1} << 62;
/// Shared memory starts here as it does on a device; 1024 keeps swizzled tiles aligned.
constexpr uint32_t kSharedBase = 1024;
constexpr uint32_t kLocalBase = 64;
/// mapa puts the CTA's rank in the cluster plus one above the 24 bits of a shared address; 0 means the CTA that runs.
constexpr int kRankShift = 24;
constexpr uint32_t kSharedOffsetMask = (1u << kRankShift) - 1;

}  // namespace seqtile::sim

// jit/sim/device/lone_memory.h -- memory with nothing else near it.
// SPDX-License-Identifier: Apache-2.0
//
// An address beyond such memory lies in no other memory, so that the machine reports it. Ordinary allocators put blocks
// side by side: an index that is too large by some rows would read the neighbouring block, which kernels may read.
#pragma once
#include <cstddef>
#include <span>

namespace seqtile::sim {

class LoneMemory {
 public:
  /// The memory begins at a multiple of a page. Errors: out_of_resources.
  explicit LoneMemory(size_t bytes);
  ~LoneMemory();
  LoneMemory(LoneMemory&& other) noexcept;
  LoneMemory& operator=(LoneMemory&&) = delete;

  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  size_t size_, mapped_;
  std::byte* data_;
};

}  // namespace seqtile::sim

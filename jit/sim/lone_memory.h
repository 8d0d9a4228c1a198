// jit/sim/lone_memory.h -- memory with nothing else near it.
// SPDX-License-Identifier: Apache-2.0
//
// An address that leaves such memory is in no other, so that the machine reports it. Allocators put blocks side by
// side: an index that is too large by some rows would read a neighbour there, which is memory that a kernel may read.
#pragma once
#include <cstddef>
#include <span>

namespace seqtile::sim {

class LoneMemory {
 public:
  /// At a multiple of a page. Errors: out_of_resources.
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

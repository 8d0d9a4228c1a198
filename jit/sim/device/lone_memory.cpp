// jit/sim/device/lone_memory.cpp -- see lone_memory.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/device/lone_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile::sim {
namespace {

constexpr size_t kPage = 4096, kLeastGap = size_t{256} << 20;
constexpr uintptr_t kFirst = uintptr_t{0x20} << 40, kRoom = uintptr_t{0x30} << 40;  // where nothing else is mapped

/// Another place at each call, with as much room before the next one as the memory has bytes, or more.
void* next_place(size_t mapped) {
  static std::atomic<uintptr_t> used{0};
  return reinterpret_cast<void*>(kFirst + used.fetch_add(mapped + std::max(kLeastGap, mapped)) % kRoom);
}

}  // namespace

LoneMemory::LoneMemory(size_t bytes) : size_(bytes), mapped_((bytes / kPage + 1) * kPage) {
  void* data = mmap(next_place(mapped_), mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw Error(ErrorCode::out_of_resources, fmt::format("no memory for {} bytes of a simulated GPU", bytes));
  data_ = static_cast<std::byte*>(data);
}

LoneMemory::LoneMemory(LoneMemory&& other) noexcept
    : size_(other.size_), mapped_(other.mapped_), data_(std::exchange(other.data_, nullptr)) {}

LoneMemory::~LoneMemory() {
  if (data_) munmap(data_, mapped_);
}

}  // namespace seqtile::sim

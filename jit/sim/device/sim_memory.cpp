// jit/sim/device/sim_memory.cpp -- see sim_memory.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/device/sim_memory.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile::sim {
namespace {

constexpr size_t kCapacity = size_t{16} << 30;  ///< of the simulated GPU, so that running out is an error of it
constexpr int kFresh = 0xff;                    ///< NaN in every float format, for runs without checks

}  // namespace

void SimMemory::name(const void* pointer, std::string name) {
  const std::lock_guard lock(world_.mutex());
  if (!allocations_.contains(static_cast<const std::byte*>(pointer)))
    throw Error(ErrorCode::invalid_argument, fmt::format("memory '{}': no allocation begins there", name));
  world_.machine().rename(pointer, std::move(name));
}

void* SimMemory::allocate(size_t bytes, bool is_for_peers) {
  const std::lock_guard lock(world_.mutex());
  if (const size_t free = kCapacity - used_; bytes > free)
    throw Error(
        ErrorCode::out_of_resources,
        fmt::format("no memory for {} bytes on the simulated GPU: {} of its {} are free", bytes, free, kCapacity));
  LoneMemory memory(bytes);
  std::byte* data = memory.bytes().data();
  std::memset(data, kFresh, bytes);
  world_.machine().register_memory(fmt::format("memory {}", ++num_made_), data, bytes, device_, is_for_peers);
  world_.machine().poison(data, bytes);
  allocations_.emplace(data, std::move(memory));
  used_ += bytes;
  return data;
}

void SimMemory::free(void* pointer) noexcept {
  const std::lock_guard lock(world_.mutex());
  const auto found = allocations_.find(static_cast<std::byte*>(pointer));
  if (found == allocations_.end()) return;
  world_.machine().unregister_memory(pointer);
  used_ -= found->second.bytes().size();
  allocations_.erase(found);
}

void SimMemory::check(const void* pointer, size_t bytes, const char* what) {
  const auto* begin = static_cast<const std::byte*>(pointer);
  auto after = allocations_.upper_bound(begin);
  if (after == allocations_.begin()) return;
  const auto& [data, memory] = *std::prev(after);
  const auto offset = static_cast<size_t>(begin - data);
  const size_t size = memory.bytes().size();
  if (offset < size && bytes > size - offset)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} of {} bytes at {}: {} bytes are left of the allocation", what, bytes,
                            world_.machine().describe(pointer), size - offset));
}

void SimMemory::do_in_order(Stream stream, std::function<void()> work) {
  streams_.add(stream, {[this, work = std::move(work)] {
                 if (world_.is_shared()) world_.add(device_, work);
                 else work();
               }});
}

void SimMemory::copy(void* to, const void* from, size_t bytes, Stream stream) {
  do_in_order(stream, [=, this] {
    const std::lock_guard lock(world_.mutex());
    check(to, bytes, "copy to device memory");
    check(from, bytes, "copy from device memory");
    std::memmove(to, from, bytes);
    world_.machine().unpoison(to, bytes);
  });
}

void SimMemory::fill(void* pointer, uint8_t byte, size_t bytes, Stream stream) {
  do_in_order(stream, [=, this] {
    const std::lock_guard lock(world_.mutex());
    check(pointer, bytes, "fill");
    std::memset(pointer, byte, bytes);
    world_.machine().unpoison(pointer, bytes);
  });
}

}  // namespace seqtile::sim

// jit/fabric/transport/process_memory.cpp -- see process_memory.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/transport/process_memory.h"

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

namespace seqtile::fabric {
namespace {

std::vector<uint64_t> addresses_in(const Mapping& mapping, int world_size, size_t stride) {
  std::vector<uint64_t> addresses;
  for (int rank = 0; rank < world_size; ++rank)
    addresses.push_back(reinterpret_cast<uint64_t>(mapping.data()) + stride * static_cast<size_t>(rank));
  return addresses;
}

}  // namespace

void fail(ErrorCode code, const std::string& what) { throw Error(code, "process fabric: " + what); }

std::string system_reason() { return std::strerror(errno); }

Mapping::Mapping(int fd, size_t offset, size_t bytes) : bytes_(bytes) {
  data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (data_ == MAP_FAILED)
    fail(ErrorCode::out_of_resources, fmt::format("cannot map {} bytes: {}", bytes, system_reason()));
}

Mapping::~Mapping() { munmap(data_, bytes_); }

FileMemory::FileMemory(std::shared_ptr<SharedFile> file, int world_size, size_t offset, size_t stride, size_t bytes)
    : FileMemory(std::make_unique<Mapping>(file->descriptor.get(), offset, file_bytes(world_size, stride)), world_size,
                 stride, bytes) {
  file_ = std::move(file), world_size_ = static_cast<uint32_t>(world_size), offset_ = offset;
  held_bytes_ = file_bytes(world_size, stride);
  num_gone_ = reinterpret_cast<std::atomic<uint32_t>*>(static_cast<std::byte*>(mapping_->data()) + held_bytes_ - kPage);
  file_->held_bytes += held_bytes_;
}

FileMemory::FileMemory(std::unique_ptr<Mapping> mapping, int world_size, size_t stride, size_t bytes)
    : SymmetricMemory(addresses_in(*mapping, world_size, stride), bytes), mapping_(std::move(mapping)) {}

FileMemory::~FileMemory() {
  file_->held_bytes -= held_bytes_;
  if (num_gone_->fetch_add(1) + 1 != world_size_) return;
  fallocate(file_->descriptor.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_),
            static_cast<off_t>(held_bytes_));
}

}  // namespace seqtile::fabric

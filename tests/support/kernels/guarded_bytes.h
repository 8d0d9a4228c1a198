// tests/support/kernels/guarded_bytes.h -- memory before a page that must not be touched.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>

namespace seqtile::testing {

/// `size` bytes with the value `fill`. Reading or writing the byte behind them ends the process.
class GuardedBytes {
 public:
  GuardedBytes(size_t size, std::byte fill) : size_(size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (size + page - 1) / page * page + page;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("no memory for a guarded tensor");
    mprotect(static_cast<std::byte*>(base_) + mapped_ - page, page, PROT_NONE);
    data_ = static_cast<std::byte*>(base_) + mapped_ - page - size;
    std::memset(data_, static_cast<int>(fill), size);
  }
  ~GuardedBytes() { munmap(base_, mapped_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  std::byte* data() const { return data_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  size_t size_, mapped_ = 0;
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace seqtile::testing

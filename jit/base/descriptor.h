// jit/base/descriptor.h -- a file descriptor that is closed with its owner.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <utility>

#include <unistd.h>

namespace seqtile {

class Descriptor {
 public:
  /// Negative: none.
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (is_open()) close(fd_);
  }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace seqtile

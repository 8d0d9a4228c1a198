// jit/fabric/transport/process_memory.h -- memory that processes share: parts of a file that has no name.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "jit/base/descriptor.h"
#include "seqtile/error.h"
#include "seqtile/fabric.h"

namespace seqtile::fabric {

constexpr size_t kPage = 4096;

[[noreturn]] void fail(ErrorCode code, const std::string& what);
/// The system's reason for the failure of its last call.
std::string system_reason();

/// A shared mapping of a part of the file. Errors: out_of_resources.
class Mapping {
 public:
  Mapping(int fd, size_t offset, size_t bytes);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

/// The file that ranks share, as this rank has it.
struct SharedFile {
  explicit SharedFile(Descriptor descriptor) : descriptor(std::move(descriptor)) {}
  Descriptor descriptor;
  std::atomic<size_t> held_bytes{0};  ///< bytes of all live buffers, with the parts of all ranks
};

/// A buffer with the parts of all ranks, `stride` bytes apart from `offset` on, and behind them a page that counts the
/// ranks that have let go of it.
class FileMemory final : public SymmetricMemory {
 public:
  FileMemory(std::shared_ptr<SharedFile> file, int world_size, size_t offset, size_t stride, size_t bytes);
  /// Peers may still store here, or read: the last rank that lets go gives all parts back to the system. If a rank has
  /// died, the parts go with the file.
  ~FileMemory() override;

  static size_t file_bytes(int world_size, size_t stride) { return stride * static_cast<size_t>(world_size) + kPage; }

 private:
  FileMemory(std::unique_ptr<Mapping> mapping, int world_size, size_t stride, size_t bytes);

  std::unique_ptr<Mapping> mapping_;
  std::shared_ptr<SharedFile> file_;  ///< the buffer may outlive its fabric
  uint32_t world_size_ = 0;
  size_t offset_ = 0, held_bytes_ = 0;
  std::atomic<uint32_t>* num_gone_ = nullptr;  ///< in the memory that ranks share, which begins as zeros
};

}  // namespace seqtile::fabric

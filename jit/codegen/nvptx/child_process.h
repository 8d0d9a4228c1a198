// jit/codegen/nvptx/child_process.h -- another program, run to its end under limits, its files in memory.
// SPDX-License-Identifier: Apache-2.0
//
// The child (jit/base/spawn.h) leads a process group of its own, so that whatever it starts ends with it. Files that it
// reads and writes have no name on disk: they are private, and gone whatever happens to either process. Thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace seqtile {

/// A file in memory. Errors of making or writing one: out_of_resources.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view contents = {});
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();
  int descriptor() const { return fd_; }
  std::string path() const;  ///< for a child that inherits the file
  /// The first `limit` bytes of the contents.
  std::string read(size_t limit) const;

 private:
  int fd_;
};

struct ChildLimits {
  double seconds = 120;                       ///< until the group is killed: bounds a child that hangs
  double processor_seconds = 25;              ///< of each process
  uint64_t memory_bytes = uint64_t{4} << 30;  ///< address space of each process
};

struct ChildResult {
  int exit_status = 0;  ///< where the child ended by itself
  int signal = 0;       ///< the signal that ended the child
  bool is_timed_out = false;
  double processor_seconds = 0;  ///< that the child took
  std::string output;            ///< standard output and error, in order; the first 64 KiB
  bool ok() const { return exit_status == 0 && signal == 0 && !is_timed_out; }
  /// "exit status 3", "signal 11 (Segmentation fault)", "no answer within 120 s".
  std::string cause(const ChildLimits& limits) const;
};

/// Runs `arguments[0]` (a path) and waits for it. It has `files` open, and no other file of this process.
/// Errors: unsupported when the program cannot be started.
ChildResult run_child(std::span<const std::string> arguments, std::span<const MemoryFile* const> files,
                      const ChildLimits& limits);

}  // namespace seqtile

// tools/cli/simulate/foreign_call.h -- the memory, parameters and results of one launch of a foreign kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <string>
#include <vector>

#include "jit/sim/device/lone_memory.h"
#include "jit/sim/exec/machine.h"
#include "tools/cli/simulate/kernel_argument.h"
#include "tools/cli/simulate/simulate_foreign.h"

namespace seqtile::cli {

class ForeignCall {
 public:
  /// Makes the buffers and the parameter block. Errors: invalid_argument if the arguments do not fit the kernel's
  /// parameters in number, size or type (the message lists the parameters), or if --dump or --expect names no buffer.
  ForeignCall(const sim::Program& program, const sim::LaunchShape& shape, const ForeignOptions& options);

  sim::Machine& machine() { return machine_; }
  const sim::LaunchShape& shape() const { return shape_; }
  std::array<int, 3> block() const { return {shape_.threads, shape_.threads_yz[0], shape_.threads_yz[1]}; }
  const std::vector<std::byte>& parameters() const { return parameters_; }

  /// Called after the launch: writes the --dump files and compares with the --expect files.
  void finish();
  /// A line for each buffer, with the elements that the kernel has changed.
  std::vector<std::string> describe_buffers() const;
  /// A line for each --expect file that differs.
  const std::vector<std::string>& differences() const { return differences_; }

 private:
  struct Buffer {
    size_t argument;
    std::vector<std::byte> before;
    sim::LoneMemory now;
    const std::byte* data() const { return now.bytes().data(); }
  };
  struct FileOf {
    size_t argument;
    std::string path;
  };
  std::string parameter_list() const;
  void check_count() const;
  void check_fit(size_t index) const;
  void place(size_t index);
  FileOf parse_file_of(const std::string& flag, const std::string& text) const;
  const Buffer& buffer_of(const FileOf& file) const;
  void compare(const FileOf& file);

  const sim::Program& program_;
  const sim::LaunchShape& shape_;
  const ForeignOptions& options_;
  std::vector<KernelArgument> arguments_;
  std::vector<FileOf> dumps_, expectations_;
  std::vector<std::byte> parameters_;
  std::vector<uint64_t> pointers_;  ///< pointers by argument; 0 for arguments without a pointer
  std::vector<Buffer> buffers_;
  std::vector<std::string> differences_;
  sim::Machine machine_;
};

}  // namespace seqtile::cli

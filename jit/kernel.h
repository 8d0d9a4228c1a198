// jit/kernel.h -- a compiled kernel as bytes, and what a launch needs to know of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace seqtile {

/// What a kernel takes of a GPU, as the assembler says.
struct ResourceUse {
  int registers = 0;  ///< of a thread
  int64_t spill_store_bytes = 0, spill_load_bytes = 0, stack_bytes = 0;
  int64_t shared_bytes = 0;           ///< static shared memory of a block
  std::vector<std::string> warnings;  ///< "(C7510) Potential Performance Loss: ..."
};

/// Machine code of one kernel. For the CPU: one relocation-free block, text and constants laid out together, that
/// can be mapped anywhere at a page boundary. For GPUs: PTX or cubin (the `stage`).
struct KernelBinary {
  std::string symbol;  ///< <kernel>_<dtype>_<config...>_<target>; also the name in profiles
  std::string target;  ///< e.g. "cpu:avx512bf16"; a device refuses a binary of another target
  std::string stage;   ///< "blob" | "ptx" | "cubin"
  std::vector<std::byte> code;
  uint64_t entry_offset = 0;             ///< of the program function in `code`
  uint64_t arena_bytes = 0;              ///< scratch memory that one running program needs, 64-byte aligned
  uint32_t num_slots = 0;                ///< 8-byte slots of the argument block
  uint32_t threads = 0;                  ///< GPUs: of a block
  uint32_t shared_bytes = 0;             ///< GPUs: dynamic shared memory of a block
  std::optional<ResourceUse> resources;  ///< of a cubin that was just assembled; not kept in stores
};

using Grid = std::array<int64_t, 3>;  ///< programs along axes 0 (fastest), 1, 2

}  // namespace seqtile

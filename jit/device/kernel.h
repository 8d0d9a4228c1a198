// jit/device/kernel.h -- a compiled kernel as bytes, and what a launch needs to know of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/base/dtype.h"

namespace seqtile {

/// The resources of a GPU that a kernel takes, as the assembler reports them.
struct ResourceUse {
  int registers = 0;  ///< a thread
  int64_t spill_store_bytes = 0, spill_load_bytes = 0, stack_bytes = 0;
  int64_t shared_bytes = 0;           ///< static shared memory of a block
  std::vector<std::string> warnings;  ///< "(C7510) Potential Performance Loss: ..."
};

/// A kernel parameter of 128 bytes that a launch encodes from a view of the argument block. It describes what one TMA
/// copy moves.
struct TensorMapSpec {
  uint32_t first_slot = 0;  ///< the view's first slot: base, sizes, strides
  DType dtype = DType::bf16;
  std::vector<uint32_t> box;   ///< elements along each dimension of the view, outermost first; at most 256 each
  uint32_t swizzle_bytes = 0;  ///< 32, 64, 128, or 0 for none: how the box lies in shared memory
  bool operator==(const TensorMapSpec&) const = default;
};

/// Values that a tensor map is encoded from. The innermost dimension comes first, as the hardware counts.
struct TensorMapFacts {
  int rank = 0;
  uint64_t base = 0;
  std::array<uint64_t, 5> sizes{};         ///< elements
  std::array<uint64_t, 4> stride_bytes{};  ///< element i: the stride of dimension i + 1
  std::array<uint32_t, 5> box{};
  bool operator==(const TensorMapFacts&) const = default;
};
TensorMapFacts facts_of(const TensorMapSpec& map, std::span<const uint64_t> slots);

/// How a GPU launches a kernel. Parameters: the argument block's slots; for a persistent kernel the grid's three sides;
/// then the tensor maps. Ranks that share a launch have a table of slots and sides instead, with a row for each rank.
struct GpuLaunch {
  uint32_t threads = 0;                         ///< a block
  uint32_t shared_bytes = 0;                    ///< dynamic shared memory of a block
  std::array<uint32_t, 3> cluster = {1, 1, 1};  ///< blocks; grids are rounded up to whole clusters
  bool is_persistent = false;   ///< as many blocks as fit the GPU take the programs in turn, first along axis 0
  bool is_cooperative = false;  ///< blocks wait for each other: all of them must run at once
  std::vector<TensorMapSpec> tensor_maps;
  std::string loop;          ///< form of the loop of products: "wgmma", or "portable: " and why; empty: there is none
  bool is_in_order = false;  ///< persistent programs wait for earlier ones alone: any number of blocks is enough
  uint32_t ranks_in_launch = 1;  ///< ranks that run side by side, each in the same number of neighbouring blocks
  bool operator==(const GpuLaunch&) const = default;
};

/// JSON for the artifact store; empty text for CPU kernels.
std::string to_text(const GpuLaunch& launch);
/// The inverse; nothing where the text is not one.
std::optional<GpuLaunch> parse_gpu_launch(std::string_view text);

/// Machine code of one kernel. For the CPU: one relocation-free block, text and constants laid out together, that
/// can be mapped anywhere at a page boundary. For GPUs: PTX or cubin (the `stage`).
struct KernelBinary {
  std::string symbol;  ///< <kernel>_<dtype>_<config...>_<target>; also the name in profiles
  std::string target;  ///< e.g. "cpu:avx512bf16"; a device refuses a binary of another target
  std::string stage;   ///< "blob" | "ptx" | "cubin"
  std::vector<std::byte> code;
  uint64_t entry_offset = 0;             ///< where the program function begins in `code`
  uint64_t arena_bytes = 0;              ///< scratch memory that one running program needs, 64-byte aligned
  uint32_t num_slots = 0;                ///< 8-byte slots of the argument block
  GpuLaunch gpu;                         ///< GPUs only
  std::optional<ResourceUse> resources;  ///< for a cubin that was just assembled; not kept in stores
};

using Grid = std::array<int64_t, 3>;  ///< programs along axes 0 (fastest), 1, 2

/// The blocks that a GPU launches for a grid.
struct GpuGrid {
  std::array<uint32_t, 3> blocks{};
  std::array<uint64_t, 3> programs{};  ///< up to whole clusters; parameters of a persistent kernel
  bool is_empty() const { return blocks[0] == 0 || blocks[1] == 0 || blocks[2] == 0; }
};
/// `resident_blocks`: how many blocks run at once on `device`. Where ranks share the launch, the result counts the
/// blocks of all ranks and the programs of one rank.
/// Errors: invalid_argument for a grid that GPUs do not take, out_of_resources for blocks that wait for each other and
/// do not run at once.
GpuGrid gpu_grid(const KernelBinary& binary, const Grid& grid, int64_t resident_blocks, std::string_view device);

/// Arguments of one of the ranks that share a launch. A rank without slots does nothing.
struct RankArguments {
  Grid grid{};
  std::span<const uint64_t> slots;
};
/// One launch for the ranks that share it.
struct RankLaunch {
  GpuGrid grid;                 ///< with blocks for the rank that has the most programs
  std::vector<uint64_t> table;  ///< the parameters
};
/// `ranks`: the arguments, by rank; ranks that it leaves out do nothing. Errors: as gpu_grid(), invalid_argument for
/// too many ranks or another number of slots.
RankLaunch rank_launch(const KernelBinary& binary, std::span<const RankArguments> ranks, int64_t resident_blocks,
                       std::string_view device);
/// Errors: invalid_argument where the number of slots is not the kernel's.
void check_slots(const KernelBinary& binary, std::span<const uint64_t> slots);

}  // namespace seqtile

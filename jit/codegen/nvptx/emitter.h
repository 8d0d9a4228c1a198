// jit/codegen/nvptx/emitter.h -- the small vocabulary of GPU lowering: threads, loops, shared memory.
// SPDX-License-Identifier: Apache-2.0
//
// One program is one block of threads. A scalar of the tile IR is the same in all its threads. Every hardware
// instruction that LLVM 19 has no sound intrinsic for is inline PTX (Emitter::assembly).
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jit/codegen/control_flow.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "seqtile/target.h"
#include "seqtile/tensor.h"

namespace seqtile::nvptx {

constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;

/// Parameters and warps of a kernel function.
struct KernelShape {
  /// Parameters: slots of 64 bits each; a persistent kernel's sides of the grid, also 64 bits each; tensor maps of 128
  /// bytes each.
  int num_slots, num_sides, num_maps;
  int num_warps, num_more_warps;  ///< warps that layouts know, and further warps
  int num_ranks = 1;  ///< ranks that share a launch; above 1: a table of each rank's slots and sides, no tensor maps
};

class Emitter {
 public:
  Emitter(llvm::Module& module, const Target& target, const std::string& symbol, const KernelShape& shape);

  llvm::Module& module;
  llvm::LLVMContext& context;
  const Target& target;
  const int num_warps;
  const bool is_hopper;  ///< sm_90a: has the instructions that came with it
  llvm::IRBuilder<> b;
  llvm::Function* function;
  llvm::Value *thread, *lane, *warp;  ///< i32, in the block; lane and warp in it

  llvm::Value* i64(int64_t value) { return b.getInt64(static_cast<uint64_t>(value)); }
  llvm::Value* i32(int64_t value) { return b.getInt32(static_cast<uint32_t>(value)); }
  llvm::Value* f32(double value) { return llvm::ConstantFP::get(b.getFloatTy(), value); }
  /// `value` as a constant of any element type.
  llvm::Value* constant(DType dtype, double value);
  llvm::Type* type_of(DType dtype);
  llvm::Type* memory_type(DType dtype) { return dtype == DType::i1 ? b.getInt8Ty() : type_of(dtype); }

  /// Parameter `index` of this block's rank: the slots, then the sides of a persistent kernel's grid.
  llvm::Value* parameter(int index);
  /// Number of the warp group, known to be the same in all threads of a warp.
  llvm::Value* warp_group();
  llvm::Value* program_id(int axis);
  llvm::Value* num_programs(int axis);
  /// Number of this block and how many its rank has, along axis 0; i32.
  std::pair<llvm::Value*, llvm::Value*> block_and_count();
  /// From here on the program is number `index` (i32) of the grid that the parameters give.
  void set_program(llvm::Value* index);

  /// for (i = lo; i < hi; i += step) carried = body(i, carried). All threads run the same number of iterations.
  std::vector<llvm::Value*> loop(llvm::Value* lo, llvm::Value* hi, llvm::Value* step, std::vector<llvm::Value*> inits,
                                 const codegen::LoopBody& body);
  /// while (test(carried)) carried = body(). All threads run the same number of iterations.
  void loop_while(const std::vector<llvm::Value*>& inits,
                  const std::function<llvm::Value*(std::vector<llvm::Value*>)>& test,
                  const std::function<std::vector<llvm::Value*>()>& body);
  /// Tells ptxas not to unroll the loop() that has just ended, because it rarely runs.
  void keep_rolled();
  /// The values of `body` where `condition` holds, else `otherwise`. `body` runs under the condition.
  std::vector<llvm::Value*> choose(llvm::Value* condition, const std::function<std::vector<llvm::Value*>()>& body,
                                   const std::vector<llvm::Value*>& otherwise);
  void if_then(llvm::Value* condition, const std::function<void()>& body);

  /// The same i64, hidden from LLVM's analyses.
  llvm::Value* opaque(llvm::Value* value);
  /// Inline PTX with side effects; `result` is void for none.
  llvm::Value* assembly(llvm::Type* result, const std::string& text, const std::string& constraints,
                        const std::vector<llvm::Value*>& operands);

  /// The generic address (i64) of a tensor map parameter.
  llvm::Value* tensor_map(int index);

  /// Waits for all threads of the block; their writes to shared memory are visible afterwards.
  void sync();
  /// The number of emitted sync()s that every thread comes to. A sync() under a condition does not count.
  int num_syncs() const { return num_syncs_; }
  /// The `value` of another lane of the warp: bfly: the lane whose number is this lane's number exclusive-ored with
  /// `lane`; idx: lane number `lane`.
  enum class Shuffle : uint8_t { bfly, idx };
  llvm::Value* shuffle(Shuffle mode, llvm::Value* value, llvm::Value* lane);
  /// From here on sync() waits for the first num_warps warps only.
  void sync_consumers_only() { syncs_all_ = false; }
  /// Sets the first `bytes` of the shared memory aside for the whole kernel. Requires: no scratch() before.
  void reserve(int64_t bytes);
  /// Byte `offset` of the reserved memory, plus `more` (i32; null: none).
  llvm::Value* reserved(int64_t offset, llvm::Value* more);
  /// Shared memory that is free between two barriers: every user calls sync_before_scratch(), writes, and sync()s.
  llvm::Value* scratch(int64_t bytes);
  /// A sync(), left out if the scratch memory cannot have been used before. `is_needed`: not left out.
  void sync_before_scratch(bool is_needed = false);
  int64_t shared_bytes() const { return reserved_bytes_ + scratch_bytes_; }
  /// TMA stores read the scratch memory: it is free again when they have read it. It begins at a multiple of
  /// `alignment`.
  void scratch_is_stored(int64_t alignment);
  void await_stores();
  /// Fixes the size of the shared memory; nothing may ask for more afterwards.
  void finish_shared();

  /// `width` neighbours at `pointer` where `condition` holds (null: always), else `fill`. Requires: the pointer is
  /// aligned to the whole access.
  std::vector<llvm::Value*> load(DType dtype, llvm::Value* pointer, int width, llvm::Value* condition,
                                 llvm::Value* fill);
  void store(DType dtype, llvm::Value* pointer, std::vector<llvm::Value*> values, llvm::Value* condition);
  /// A pointer as the integer that inline PTX takes.
  llvm::Value* address_of(llvm::Value* pointer);
  /// The same bits as `count` values of type `element`.
  std::vector<llvm::Value*> repacked(const std::vector<llvm::Value*>& values, llvm::Type* element, int count);
  llvm::Value* element_pointer(llvm::Value* base, llvm::Value* index, DType dtype);

  /// Two f32 to 16-bit floats, in one instruction.
  std::array<llvm::Value*, 2> narrowed(llvm::Value* low, llvm::Value* high, DType to);
  /// Value conversion between element types.
  llvm::Value* convert(llvm::Value* value, DType from, DType to);

 private:
  void find_rank(int num_ranks, int64_t row_words);

  llvm::GlobalVariable* shared_ = nullptr;
  int num_slots_, num_sides_;
  struct RankBlocks {
    llvm::Value *row, *block, *count;
  };
  std::optional<RankBlocks> rank_;         ///< if ranks share the launch: this rank's parameters and blocks
  std::array<llvm::Value*, 3> program_{};  ///< null: the block's number
  bool syncs_all_ = true, is_scratch_used_ = false, is_scratch_stored_ = false;
  int loop_depth_ = 0, num_syncs_ = 0;
  int64_t reserved_bytes_ = 0, scratch_bytes_ = 0;
};

}  // namespace seqtile::nvptx

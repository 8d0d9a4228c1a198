// jit/codegen/nvptx/emitter.h -- the small vocabulary that GPU lowering is written in: threads, loops, shared memory.
// SPDX-License-Identifier: Apache-2.0
//
// One program is one block of threads; scalars of the tile IR are the same in all of them. Every hardware instruction
// that LLVM 19 has no sound intrinsic for is inline PTX, emitted here and in ops.h only.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "jit/dtype.h"
#include "jit/target.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace seqtile::nvptx {

constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;

class Emitter {
 public:
  /// Starts the kernel function `symbol` with `num_slots` parameters of 64 bits.
  Emitter(llvm::Module& module, const Target& target, const std::string& symbol, int num_slots, int num_warps);

  llvm::Module& module;
  llvm::LLVMContext& context;
  const Target& target;
  const int num_warps;
  llvm::IRBuilder<> b;
  llvm::Function* function;
  llvm::Value *thread, *lane, *warp;  ///< i32, in the block; lane and warp in it

  llvm::Value* i64(int64_t value) { return b.getInt64(static_cast<uint64_t>(value)); }
  llvm::Value* i32(int64_t value) { return b.getInt32(static_cast<uint32_t>(value)); }
  llvm::Value* f32(double value) { return llvm::ConstantFP::get(b.getFloatTy(), value); }
  llvm::Type* type_of(DType dtype);
  llvm::Type* memory_type(DType dtype) { return dtype == DType::i1 ? b.getInt8Ty() : type_of(dtype); }

  llvm::Value* program_id(int axis);
  llvm::Value* num_programs(int axis);

  /// for (i = lo; i < hi; i += step) carried = body(i, carried). All threads take the same number of turns.
  using Body = std::function<std::vector<llvm::Value*>(llvm::Value*, std::vector<llvm::Value*>)>;
  std::vector<llvm::Value*> loop(llvm::Value* lo, llvm::Value* hi, llvm::Value* step, std::vector<llvm::Value*> inits,
                                 const Body& body);
  void if_then(llvm::Value* condition, const std::function<void()>& body);

  /// Inline PTX with side effects; `result` is void for none.
  llvm::Value* assembly(llvm::Type* result, const std::string& text, const std::string& constraints,
                        const std::vector<llvm::Value*>& operands);

  /// Waits for all threads of the block; their writes to shared memory are visible afterwards.
  void sync();
  /// Shared memory that is free between two sync()s; every user of it syncs before and after writing.
  llvm::Value* scratch(int64_t bytes);
  int64_t shared_bytes() const { return scratch_bytes_; }
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

  /// Value conversion between element types.
  llvm::Value* convert(llvm::Value* value, DType from, DType to);

 private:
  llvm::GlobalVariable* shared_ = nullptr;
  int64_t scratch_bytes_ = 0;
};

}  // namespace seqtile::nvptx

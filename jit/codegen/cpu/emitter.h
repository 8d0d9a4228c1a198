// jit/codegen/cpu/emitter.h -- the small vocabulary of CPU lowering: loops, arena, vectors, conversions.
// SPDX-License-Identifier: Apache-2.0
//
// 16-bit floats live in registers as their bits (i16): every conversion is explicit and no target needs a library call.
// A masked-out lane of a load reads as zero bits.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "jit/codegen/control_flow.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "seqtile/target.h"
#include "seqtile/tensor.h"

namespace seqtile::cpu {

class Emitter {
 public:
  Emitter(llvm::Module& module, const Target& target, const std::string& symbol);

  llvm::Module& module;
  llvm::LLVMContext& context;
  const Target& target;
  llvm::IRBuilder<> b;
  llvm::Function* function;                 ///< the program function
  llvm::Value *slots, *pid, *grid, *arena;  ///< its arguments
  const int lanes;                          ///< f32 lanes of one vector register

  llvm::Value* i64(int64_t value) { return b.getInt64(static_cast<uint64_t>(value)); }
  llvm::Value* i32(int64_t value) { return b.getInt32(static_cast<uint32_t>(value)); }
  llvm::Value* f32(double value) { return llvm::ConstantFP::get(b.getFloatTy(), value); }
  /// The type a value of `dtype` has in registers (i16 for f16 and bf16).
  llvm::Type* type_of(DType dtype);
  /// The type a value of `dtype` has in memory (i8 for i1).
  llvm::Type* memory_type(DType dtype);

  /// for (i = lo; i < hi; i += step) body(i). `step` > 0.
  void loop(llvm::Value* lo, llvm::Value* hi, int64_t step, const std::function<void(llvm::Value*)>& body);
  /// loop() with values carried from one iteration to the next. Returns the carried values after the last iteration.
  std::vector<llvm::Value*> loop(llvm::Value* lo, llvm::Value* hi, llvm::Value* step, std::vector<llvm::Value*> inits,
                                 const codegen::LoopBody& body) {
    return codegen::emit_loop(b, lo, hi, step, std::move(inits), body);
  }
  void if_then(llvm::Value* condition, const std::function<void()>& body) { codegen::emit_if(b, condition, body); }

  /// Reserves arena bytes (64-byte aligned) for the whole program; returns the offset.
  int64_t reserve(int64_t bytes);
  int64_t arena_bytes() const { return arena_bytes_; }
  llvm::Value* arena_ptr(int64_t offset);
  /// base + index * bytes(dtype).
  llvm::Value* element_ptr(llvm::Value* base, llvm::Value* index, DType dtype);

  llvm::Value* splat(llvm::Value* scalar, int count);
  /// A vector {0, 1, .. count - 1} of the integer type.
  llvm::Value* lane_ids(llvm::Type* integer, int count);
  /// lane_ids < count, as a mask of `width` lanes.
  llvm::Value* lanes_below(llvm::Value* count, int width);

  /// `width` consecutive elements (a scalar where width is 1); mask may be null.
  llvm::Value* load(DType dtype, llvm::Value* ptr, int width, llvm::Value* mask = nullptr);
  void store(DType dtype, llvm::Value* value, llvm::Value* ptr, llvm::Value* mask = nullptr);

  /// A constant of zero bytes, enough for `lanes` elements of any type.
  llvm::Value* zeros();
  /// A store past the caches of an aligned, whole vector; a fence must follow before the program ends.
  void stream(llvm::Value* value, llvm::Value* ptr);
  void stream_fence();

  /// Value conversion between register representations; scalars and vectors.
  llvm::Value* convert(llvm::Value* value, DType from, DType to);
  /// load + convert to f32.
  llvm::Value* load_f32(DType dtype, llvm::Value* ptr, int width, llvm::Value* mask = nullptr);
  llvm::Value* min_i64(llvm::Value* a, llvm::Value* b_value);
  llvm::Value* max_i64(llvm::Value* a, llvm::Value* b_value);

  /// A private function (never inlined) with attributes for this target, left at its entry block by the caller.
  llvm::Function* private_function(const std::string& name, std::vector<llvm::Type*> params);

 private:
  void set_attributes(llvm::Function* fn);
  llvm::Value* to_f32(llvm::Value* value, DType from);
  llvm::Value* from_f32(llvm::Value* value, DType to);

  int64_t arena_bytes_ = 0;
};

/// Width of a value: 1 for scalars.
int width_of(const llvm::Value* value);

}  // namespace seqtile::cpu

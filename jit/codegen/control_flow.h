// jit/codegen/control_flow.h -- loops and branches in LLVM IR.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <vector>

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace seqtile::codegen {

/// while (test(carried)) carried = body(). Values that `test` computes may be used in `body` and after the loop.
void emit_while(llvm::IRBuilderBase& b, const std::vector<llvm::Value*>& inits,
                const std::function<llvm::Value*(std::vector<llvm::Value*>)>& test,
                const std::function<std::vector<llvm::Value*>()>& body);

/// Returns the next carried values from the index and the carried values of one iteration.
using LoopBody = std::function<std::vector<llvm::Value*>(llvm::Value*, std::vector<llvm::Value*>)>;

/// for (i = lo; i < hi; i += step) carried = body(i, carried). Returns the carried values after the last iteration.
std::vector<llvm::Value*> emit_loop(llvm::IRBuilderBase& b, llvm::Value* lo, llvm::Value* hi, llvm::Value* step,
                                    std::vector<llvm::Value*> inits, const LoopBody& body);
void emit_if(llvm::IRBuilderBase& b, llvm::Value* condition, const std::function<void()>& body);

}  // namespace seqtile::codegen

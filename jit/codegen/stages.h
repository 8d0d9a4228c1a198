// jit/codegen/stages.h -- the part of LLVM that all backends use: target machines, checks, passes, code.
// SPDX-License-Identifier: Apache-2.0
//
// LLVM is initialised once, for all targets of the build and before any of them compiles: some of its switches belong
// to the process. A target machine serves one thread.
#pragma once
#include <cstdint>
#include <string>

#include "seqtile/target.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Support/CodeGen.h>

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace seqtile::codegen {

bool has_code_generator(const Target& target);

/// One per thread and target: making it computes tables for every subtarget that it meets.
/// Errors: unsupported where this build's LLVM has no code generator for the target.
llvm::TargetMachine& target_machine(const Target& target);

/// LLVM crashes on IR that breaks its rules; finding out takes a hundredth of the compilation.
/// Errors: internal, naming `kernel`.
void verify(const llvm::Module& module, const std::string& kernel);

/// The lowering has tiled, unrolled and vectorised already; the passes only clean up after it. The passes give the
/// code of O3 in a fifth of its time, and assume no library function; none forms calls of memset or memcpy (loop-idiom
/// would).
enum class Cleanup : uint8_t {
  plain,
  addresses,  ///< also puts sums of addresses into one order; code generation looks for no further common parts
};
void clean_up(llvm::Module& module, llvm::TargetMachine& machine, Cleanup cleanup);

/// LLVM IR as text.
std::string print(const llvm::Module& module);

/// Assembly text or an object file. Rewrites the module.
llvm::SmallVector<char, 0> generate(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type,
                                    Cleanup cleanup);

}  // namespace seqtile::codegen

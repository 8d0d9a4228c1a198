// jit/codegen/nvptx/overlap.h -- the state of a loop of two products that overlap; see overlapped.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

struct Program::Overlap {
  const ir::Op *first, *second;  ///< scores, and weights times values
  const ir::Value* carried;      ///< the second product's sums, in the loop's body
  size_t position;               ///< of the sums among the carried values
  /// The second product of the turn before: its operand a and sums, and where its operand b is. Empty in the first
  /// turn.
  std::vector<llvm::Value*> words, sums;
  std::optional<Staged> right;
  llvm::Value* slot = nullptr;        ///< of `right`
  std::vector<llvm::Value*> initial;  ///< the sums that the first turn starts from
};

}  // namespace seqtile::nvptx

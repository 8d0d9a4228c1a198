// jit/codegen/nvptx/pipeline/overlap.h -- the state of a loop of two products that overlap; see overlapped.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

struct Program::Overlap {
  const ir::Op *first, *second;  ///< scores, and weights times values
  const ir::Value* carried;      ///< the second product's sums, in the loop's body
  size_t position;               ///< place of the sums among the carried values

  std::vector<llvm::Value*> queries;  ///< the first product's operand a, where it is in registers
  /// Values that one turn (iteration) hands to the next: `others`: the carried values without the sums; `words` and
  /// `sums`: operand a and the sums of the second product.
  std::vector<llvm::Value*> others, words, sums;
  std::vector<llvm::Value*> flat() const;
  void take(const std::vector<llvm::Value*>& flat);

  std::vector<llvm::Value*> scores;     ///< scores of this turn
  llvm::Value* slot_before = nullptr;   ///< slot of the turn before, whose second product is in flight
  llvm::Value* is_in_flight = nullptr;  ///< the second product: not in the first turn
};

}  // namespace seqtile::nvptx

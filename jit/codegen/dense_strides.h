// jit/codegen/dense_strides.h -- the strides of a view without gaps.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "llvm/IR/IRBuilder.h"

namespace seqtile::codegen {

/// Strides in elements, outermost first, from sizes (i64). A stride of constant sizes is a constant.
inline std::vector<llvm::Value*> dense_strides(llvm::IRBuilderBase& b, const std::vector<llvm::Value*>& sizes) {
  std::vector<llvm::Value*> strides(sizes.size(), b.getInt64(1));
  for (size_t d = sizes.size() - 1; d > 0; --d) strides[d - 1] = b.CreateMul(sizes[d], strides[d]);
  return strides;
}

}  // namespace seqtile::codegen

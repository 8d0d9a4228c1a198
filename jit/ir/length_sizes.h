// jit/ir/length_sizes.h -- the sizes of a kernel that may follow a length in device memory.
// SPDX-License-Identifier: Apache-2.0
//
// A function with the attribute {length_sizes = [slot, plus, slot, plus, ...]} has one more slot at the end of its
// argument block: the address of the length in device memory, or 0. Where it is not 0, each named size is the smaller
// one of what its slot holds and length + plus. So one binary serves calls whose block has their sizes, and graphs
// whose block has those of the largest call: the length of a replay is no argument of it.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "jit/ir/function.h"

namespace seqtile::ir {

struct LengthSize {
  int64_t slot = 0;  ///< of the size in the argument block
  int64_t plus = 0;  ///< added to the length
};

Attribute length_sizes_attribute(const std::vector<LengthSize>& sizes);
/// Nothing where the function has no such attribute. Errors: compile_failed where it is malformed or a slot is not a
/// run-time size of a view.
std::optional<std::vector<LengthSize>> length_sizes(const Function& function);

}  // namespace seqtile::ir

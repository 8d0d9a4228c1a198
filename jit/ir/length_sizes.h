// jit/ir/length_sizes.h -- the sizes of a kernel that may follow a length in device memory.
// SPDX-License-Identifier: Apache-2.0
//
// A function with the attribute {length_sizes = [slot, plus, slot, plus, ...]} has one more slot at the end of its
// argument block: the address of the length in device memory, or 0. If the address is not 0, each named size is the
// minimum of its slot's value and length + plus. So one binary serves calls, whose argument block has the sizes of the
// call, and graphs, whose block has the sizes of the largest call: a replay reads its length from device memory.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "seqtile/ir.h"

namespace seqtile::ir {

struct LengthSize {
  int64_t slot = 0;  ///< the size's slot in the argument block
  int64_t plus = 0;  ///< added to the length
};

Attribute length_sizes_attribute(const std::vector<LengthSize>& sizes);
/// Nothing where the function has no such attribute. Errors: compile_failed where it is malformed or a slot is not a
/// run-time size of a view.
std::optional<std::vector<LengthSize>> length_sizes(const Function& function);

}  // namespace seqtile::ir

// jit/ir/length_sizes.cpp -- see length_sizes.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ir/length_sizes.h"

#include <set>
#include <string>

#include "seqtile/error.h"

namespace seqtile::ir {
namespace {

std::set<int64_t> run_time_sizes(const Function& function) {
  std::set<int64_t> slots;
  int64_t first = 0;
  for (const Value* param : function.body().arguments) {
    for (int d = 0; param->type.is_view() && d < param->type.rank; ++d)
      if (param->type.shape[d] == kDynamic) slots.insert(first + 1 + d);
    first += num_slots(param->type);
  }
  return slots;
}

}  // namespace

Attribute length_sizes_attribute(const std::vector<LengthSize>& sizes) {
  std::vector<int64_t> pairs;
  for (const LengthSize& size : sizes) pairs.insert(pairs.end(), {size.slot, size.plus});
  return pairs;
}

std::optional<std::vector<LengthSize>> length_sizes(const Function& function) {
  const auto found = function.attributes.find("length_sizes");
  if (found == function.attributes.end()) return std::nullopt;
  const auto fail = [&](const std::string& problem) {
    throw Error(ErrorCode::compile_failed, "function " + function.name() + ": attribute length_sizes: " + problem);
  };
  const auto* pairs = std::get_if<std::vector<int64_t>>(&found->second);
  if (!pairs || pairs->size() % 2) fail("must be pairs of a slot and what is added to the length");
  const std::set<int64_t> slots = run_time_sizes(function);
  std::vector<LengthSize> sizes;
  for (size_t i = 0; i < pairs->size(); i += 2) {
    sizes.push_back({(*pairs)[i], (*pairs)[i + 1]});
    if (!slots.contains(sizes.back().slot))
      fail("slot " + std::to_string(sizes.back().slot) + " is not a run-time size of a view");
  }
  return sizes;
}

}  // namespace seqtile::ir

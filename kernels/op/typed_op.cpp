// kernels/op/typed_op.cpp -- see typed_op.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/typed_op.h"

#include <algorithm>

namespace seqtile::kernels {

bool fill_as_declared(const SchemaMaker& declared, const Tensor& tensor, size_t arg, uint64_t seed) {
  const auto& rules = declared.schema.indices;
  const auto rule = std::ranges::find(rules, declared.schema.args[arg].name, &autotune::IndexRule::arg);
  if (rule != rules.end()) fill_uniform_int(tensor, 0, rule->limit.size - 1, seed);
  else if (const auto& normal = declared.normals[arg]) fill_normal(tensor, normal->mean, normal->deviation, seed);
  else return false;
  return true;
}

}  // namespace seqtile::kernels

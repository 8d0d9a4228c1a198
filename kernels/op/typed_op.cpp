// kernels/op/typed_op.cpp -- see seqtile/kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/kernel.h"

#include <algorithm>

#include "autotune/call_sizes.h"

namespace seqtile::kernels {

namespace {

using autotune::IndexRule;

bool is_named(const IndexRule& rule, std::string_view arg) { return rule.arg == arg || rule.counts == arg; }

/// Begins of lists that share `rows` rows, or their lengths.
void fill_lists(const Tensor& tensor, const IndexRule& rule, bool is_counts, int64_t rows) {
  const int64_t num_lists = tensor.sizes[0] - (rule.kind == IndexRule::Kind::borders);
  const auto begin = [&](int64_t list) { return list * rows / num_lists; };
  for (int64_t i = 0; i < tensor.sizes[0]; ++i)
    write_element(tensor, i * tensor.strides[0], static_cast<double>(is_counts ? begin(i + 1) - begin(i) : begin(i)));
}

}  // namespace

bool fill_as_declared(const SchemaMaker& declared, const autotune::Problem& p, size_t arg, uint64_t seed) {
  const autotune::Schema& schema = declared.schema;
  const Tensor& tensor = p.tensors[arg];
  const std::string& name = schema.args[arg].name;
  const auto rule = std::ranges::find_if(schema.indices, [&](const IndexRule& r) { return is_named(r, name); });
  if (rule != schema.indices.end()) {
    const int64_t rows = size_of(rule->limit, schema, p.symbols);
    if (rule->kind == IndexRule::Kind::places) fill_uniform_int(tensor, 0, rows - 1, seed);
    else fill_lists(tensor, *rule, rule->counts == name, rows);
  } else if (const auto& normal = declared.normals[arg]) {
    fill_normal(tensor, normal->mean, normal->deviation, seed);
  } else {
    return false;
  }
  return true;
}

}  // namespace seqtile::kernels

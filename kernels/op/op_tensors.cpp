// kernels/op/op_tensors.cpp -- see seqtile/operation.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/operation.h"

#include <fmt/format.h>

#include <algorithm>

#include "autotune/call_sizes.h"
#include "seqtile/builder.h"
#include "seqtile/error.h"

namespace seqtile::kernels {

using autotune::ArgRole;
using autotune::ArgSpec;
using autotune::Dim;
using autotune::IndexRule;

namespace {

Dim dim_of(const Extent& extent) {
  Dim dim(extent.size);
  dim.symbol = extent.symbol;
  return dim;
}

IndexRule rule_of(IndexRule::Kind kind, const std::string& arg, const RowLists& lists) {
  IndexRule rule{.kind = kind,
                 .arg = arg,
                 .limit = dim_of(lists.limit),
                 .counts = std::string(lists.counts),
                 .least = lists.least,
                 .is_disjoint = lists.is_disjoint};
  if (lists.most) rule.most = dim_of(*lists.most);
  return rule;
}

}  // namespace

void SchemaMaker::add(ArgRole role, std::string_view name, Extents extents, const TensorOptions& options) {
  ArgSpec arg{.name = std::string(name), .role = role, .dtype = options.dtype.value_or(dtype_), .dense = options.dense};
  for (const Extent& extent : extents) {
    arg.dims.push_back(dim_of(extent));
    if (extent.is_dynamic() && std::ranges::find(schema.symbols, extent.symbol) == schema.symbols.end())
      schema.symbols.emplace_back(extent.symbol);
  }
  for (const std::string_view input : options.in_place)
    if (std::ranges::find(schema.args, input, &ArgSpec::name) != schema.args.end()) arg.in_place.emplace_back(input);
  if (options.rows_of) schema.indices.push_back({.arg = arg.name, .limit = *options.rows_of});
  if (options.borders) schema.indices.push_back(rule_of(IndexRule::Kind::borders, arg.name, *options.borders));
  if (options.spans) schema.indices.push_back(rule_of(IndexRule::Kind::spans, arg.name, *options.spans));
  schema.args.push_back(std::move(arg));
  normals.emplace_back();
  if (options.mean) normals.back() = {*options.mean, options.deviation};
}

void ViewMaker::visit(ArgRole, std::string_view name, Var& view, Extents extents, const TensorOptions& options) {
  if (view.value()) return;
  std::vector<int64_t> sizes;
  for (const Extent& extent : extents) sizes.push_back(extent.is_dynamic() ? kDynamic : extent.size);
  view = b_.view(std::string(name), options.dtype.value_or(dtype_), sizes);
}

autotune::Cost traffic_of(const autotune::Schema& schema, std::span<const int64_t> symbols) {
  autotune::Cost cost;
  for (const autotune::ArgSpec& arg : schema.args) {
    if (std::ranges::any_of(schema.indices, [&](const auto& rule) {
          return rule.kind != autotune::IndexRule::Kind::places && (rule.arg == arg.name || rule.counts == arg.name);
        }))
      continue;
    int64_t bytes = dtype_bytes(arg.dtype);
    for (const autotune::Dim& dim : arg.dims) bytes *= size_of(dim, schema, symbols);
    (arg.role == autotune::ArgRole::output ? cost.bytes_written : cost.bytes_read) += static_cast<double>(bytes);
  }
  return cost;
}

void refuse_tensors(std::string_view operation, const autotune::Schema& schema, std::string_view missing) {
  std::string names;
  for (const ArgSpec& arg : schema.args) names += (names.empty() ? "" : ", ") + arg.name;
  const std::string problem = missing.empty() ? "a tensor is given that these fields do not take; they"
                                              : fmt::format("the tensor '{}' is not given; these fields", missing);
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {} take {}", operation, problem, names));
}

}  // namespace seqtile::kernels

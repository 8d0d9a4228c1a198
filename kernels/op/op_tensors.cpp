// kernels/op/op_tensors.cpp -- see op_tensors.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/op_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "jit/base/error.h"
#include "jit/ir/builder.h"

namespace seqtile::kernels {

using autotune::ArgRole;
using autotune::ArgSpec;

void SchemaMaker::add(ArgRole role, std::string_view name, Extents extents, const TensorOptions& options) {
  ArgSpec arg{.name = std::string(name), .role = role, .dtype = options.dtype.value_or(dtype_), .dense = options.dense};
  for (const Extent& extent : extents)
    arg.dims.push_back(extent.is_length ? autotune::Dim("length") : autotune::Dim(extent.size));
  for (const std::string_view input : options.in_place)
    if (std::ranges::find(schema.args, input, &ArgSpec::name) != schema.args.end()) arg.in_place.emplace_back(input);
  if (options.rows_of) schema.indices.push_back({.arg = arg.name, .limit = *options.rows_of});
  schema.args.push_back(std::move(arg));
  normals.emplace_back();
  if (options.mean) normals.back() = {*options.mean, options.deviation};
}

void ViewMaker::visit(ArgRole, std::string_view name, Var& view, Extents extents, const TensorOptions& options) {
  if (view.value()) return;
  std::vector<int64_t> sizes;
  for (const Extent& extent : extents) sizes.push_back(extent.is_length ? kDynamic : extent.size);
  view = b_.view(std::string(name), options.dtype.value_or(dtype_), sizes);
}

autotune::Cost traffic_of(const autotune::Schema& schema, int64_t length) {
  autotune::Cost cost;
  for (const ArgSpec& arg : schema.args) {
    int64_t bytes = dtype_bytes(arg.dtype);
    for (const autotune::Dim& dim : arg.dims) bytes *= dim.symbol.empty() ? dim.size : length;
    (arg.role == ArgRole::output ? cost.bytes_written : cost.bytes_read) += static_cast<double>(bytes);
  }
  return cost;
}

void refuse_tensors(std::string_view operation, const autotune::Schema& schema) {
  std::string names;
  for (const ArgSpec& arg : schema.args) names += (names.empty() ? "" : ", ") + arg.name;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: a tensor is given that these fields do not take; they take {}", operation, names));
}

}  // namespace seqtile::kernels

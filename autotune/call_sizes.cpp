// autotune/call_sizes.cpp -- see call_sizes.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/call_sizes.h"

#include <fmt/format.h>

#include "jit/base/cdiv.h"
#include "jit/base/machine_memory.h"
#include "seqtile/error.h"

namespace seqtile::autotune {

std::vector<int64_t> call_symbols(const OpDef& op, const Workload& workload, const Schema& schema, int64_t length) {
  std::vector<int64_t> symbols = op.symbols ? op.symbols(workload, length) : std::vector<int64_t>{length};
  if (symbols.size() == schema.symbols.size()) symbols.resize(schema.symbols.size() + schema.scalars.size(), 0);
  if (symbols.size() != schema.symbols.size() + schema.scalars.size())
    throw Error(ErrorCode::invalid_argument, "operation " + op.name + " gives " + std::to_string(symbols.size()) +
                                                 " run-time values, its schema has " +
                                                 std::to_string(schema.symbols.size()) + " symbols and " +
                                                 std::to_string(schema.scalars.size()) + " scalars");
  return symbols;
}

int64_t size_of(const Dim& dim, const Schema& schema, std::span<const int64_t> symbols) {
  if (dim.symbol.empty()) return dim.size;
  size_t place = 0;
  for (const auto* names : {&schema.symbols, &schema.scalars})
    for (const std::string& name : *names) {
      if (name == dim.symbol) return symbols[place] + dim.size;
      ++place;
    }
  throw Error(ErrorCode::invalid_argument,
              "a tensor has the dimension " + dim.symbol + ", which is no symbol of the schema");
}

Tensor describe_arg(const ArgSpec& arg, const Schema& schema, std::span<const int64_t> symbols) {
  Tensor tensor{nullptr, arg.dtype, static_cast<int>(arg.dims.size()), {}, {}};
  for (int d = 0; d < tensor.rank; ++d) tensor.sizes[d] = size_of(arg.dims[d], schema, symbols);
  int64_t stride = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.strides[d] = stride;
    stride *= tensor.sizes[d];
    if (d == tensor.rank - 1 && arg.alignment > 0)
      stride = round_up(stride * dtype_bytes(arg.dtype), arg.alignment) / dtype_bytes(arg.dtype);
  }
  return tensor;
}

std::vector<Tensor> describe_args(const Schema& schema, std::span<const int64_t> symbols) {
  std::vector<Tensor> tensors;
  for (const ArgSpec& arg : schema.args) tensors.push_back(describe_arg(arg, schema, symbols));
  return tensors;
}

size_t tensor_bytes(const Tensor& tensor) {
  if (tensor.rank == 0) return 0;
  return static_cast<size_t>(tensor.sizes[0] * tensor.strides[0] * dtype_bytes(tensor.dtype));
}

double call_bytes(const OpDef& op, const Workload& workload, int64_t length) {
  const Schema schema = op.schema(workload);
  const auto symbols = call_symbols(op, workload, schema, length);
  double bytes = 0;
  for (const ArgSpec& arg : schema.args) {
    double elements = 1;
    for (const Dim& dim : arg.dims) elements *= static_cast<double>(size_of(dim, schema, symbols));
    bytes += elements * static_cast<double>(dtype_bytes(arg.dtype));
  }
  return bytes;
}

void check_memory(const OpDef& op, const Workload& workload, int64_t length) {
  const double bytes = call_bytes(op, workload, length);
  if (bytes > machine_bytes())
    throw Error(ErrorCode::out_of_resources,
                fmt::format("the tensors of {} at length {} need {:.0f} bytes of memory, this machine has {:.0f}; take "
                            "shorter lengths",
                            op.name, length, bytes, machine_bytes()));
}

}  // namespace seqtile::autotune

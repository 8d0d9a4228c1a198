// autotune/call_sizes.h -- the sizes of a call: of its tensors, and of their memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "seqtile/op.h"

namespace seqtile::autotune {

/// Values of Schema::symbols, then of Schema::scalars, in the representative call at `length`.
/// Errors: invalid_argument if OpDef::symbols returns another number of values.
std::vector<int64_t> call_symbols(const OpDef& op, const Workload& workload, const Schema& schema, int64_t length);
/// A dimension's size in a call with these symbols, of which the last may be missing.
/// Errors: invalid_argument on a dimension that is no symbol of the schema.
int64_t size_of(const Dim& dim, const Schema& schema, std::span<const int64_t> symbols);
/// Dtype, sizes and strides of an argument, with a null data pointer. Rows are padded to ArgSpec::alignment.
/// Errors: as size_of().
Tensor describe_arg(const ArgSpec& arg, const Schema& schema, std::span<const int64_t> symbols);
/// All arguments, as describe_arg() describes them.
std::vector<Tensor> describe_args(const Schema& schema, std::span<const int64_t> symbols);
/// Bytes of all rows, with their padding.
size_t tensor_bytes(const Tensor& tensor);
/// Bytes of the tensors of one call at `length`. A double, because a wrong request may exceed 2^64 bytes.
double call_bytes(const OpDef& op, const Workload& workload, int64_t length);
/// Errors: out_of_resources if the tensors of one call at `length` exceed this machine's memory.
void check_memory(const OpDef& op, const Workload& workload, int64_t length);

}  // namespace seqtile::autotune

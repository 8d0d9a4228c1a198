// tests/support/ranks/rank_tensors.h -- tensors of an operation on one of its ranks, with gaps and poison around
// values.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "autotune/op_def.h"

namespace seqtile::testing {

/// Bytes that nobody has written; NaN in every format.
constexpr int kPoisonByte = 0xff;

/// With a gap behind each row, unless the schema says dense. `symbols` are those of the rank.
Tensor rank_tensor(const autotune::Schema& schema, const autotune::ArgSpec& spec, std::span<const int64_t> symbols,
                   void* data);
/// With the gaps behind its rows.
size_t bytes_of(const Tensor& tensor);

/// Visits row and column of all elements and their offset; those of a rank-1 tensor are rows of one.
template <class Visit>
void for_each_element(const Tensor& tensor, const Visit& visit) {
  const int64_t columns = tensor.rank > 1 && tensor.sizes[0] > 0 ? tensor.num_elements() / tensor.sizes[0] : 1;
  for (int64_t row = 0; row < tensor.sizes[0]; ++row)
    for (int64_t column = 0; column < columns; ++column) visit(row, column, row * tensor.strides[0] + column);
}

bool is_poison(std::span<const std::byte> bytes);
/// What is left of an output's bytes when its values are taken out.
std::vector<std::byte> around(const Tensor& tensor, std::vector<std::byte> bytes);
/// What is wrong with the bytes of an output that lies at their begin: a value that is not written, or one too many.
/// Empty: nothing.
std::string fault_of(const std::string& name, Tensor tensor, const std::vector<std::byte>& bytes);

}  // namespace seqtile::testing

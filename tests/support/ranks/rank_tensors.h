// tests/support/ranks/rank_tensors.h -- tensors of an operation on one rank, with gaps and poison around values.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "seqtile/op.h"

namespace seqtile::testing {

/// Value of unwritten bytes; NaN in all formats.
constexpr int kPoisonByte = 0xff;

/// Makes a tensor with a gap behind each row, unless the schema says dense. `symbols` are the rank's.
Tensor rank_tensor(const autotune::Schema& schema, const autotune::ArgSpec& spec, std::span<const int64_t> symbols,
                   void* data);
/// The bytes of a tensor, with the gaps behind its rows.
size_t bytes_of(const Tensor& tensor);

/// Visits row, column and offset of all elements; the elements of a rank-1 tensor are rows of one element.
template <class Visit>
void for_each_element(const Tensor& tensor, const Visit& visit) {
  const int64_t columns = tensor.rank > 1 && tensor.sizes[0] > 0 ? tensor.num_elements() / tensor.sizes[0] : 1;
  for (int64_t row = 0; row < tensor.sizes[0]; ++row)
    for (int64_t column = 0; column < columns; ++column) visit(row, column, row * tensor.strides[0] + column);
}

bool is_poison(std::span<const std::byte> bytes);
/// The bytes of an output without its values.
std::vector<std::byte> around(const Tensor& tensor, std::vector<std::byte> bytes);
/// The fault in the bytes of an output that begins at `bytes`: a value that is not written, or one too many. Empty:
/// none.
std::string fault_of(const std::string& name, Tensor tensor, const std::vector<std::byte>& bytes);

}  // namespace seqtile::testing

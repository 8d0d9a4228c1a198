// tests/support/ranks/rank_tensors.h -- tensors of an operation on one rank, with gaps and poison around values.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "seqtile/op.h"

namespace seqtile::testing {

/// Makes a tensor with a gap behind each row, unless the schema says dense. `symbols` are the rank's.
Tensor rank_tensor(const autotune::Schema& schema, const autotune::ArgSpec& spec, std::span<const int64_t> symbols,
                   void* data);
/// The bytes of a tensor, with the gaps behind its rows.
size_t bytes_of(const Tensor& tensor);

/// The bytes of an output without its values.
std::vector<std::byte> around(const Tensor& tensor, std::vector<std::byte> bytes);
/// The fault in the bytes of an output that begins at `bytes`: a value that is not written, or one too many. Empty:
/// none.
std::string fault_of(const std::string& name, Tensor tensor, const std::vector<std::byte>& bytes);

}  // namespace seqtile::testing

// kernels/op/tensor_values.h -- reading and filling tensors of any storage format, for references and generated inputs.
// SPDX-License-Identifier: Apache-2.0
//
// Not for the hot path: every element is converted by a switch on its dtype.
#pragma once
#include <cstdint>
#include <vector>

#include "jit/device/tensor.h"

namespace seqtile::kernels {

/// The element `offset` elements after the base, exactly as stored.
double read_element(const Tensor& tensor, int64_t offset);
/// Rounds to the storage format (to nearest even).
void write_element(const Tensor& tensor, int64_t offset, double value);

/// The elements below index `i` of dimension 0 (all of them for rank 1 and i = 0), row-major, strides honoured.
std::vector<double> read_row(const Tensor& tensor, int64_t i);
/// An integer of a rank-1 tensor.
int64_t read_index(const Tensor& tensor, int64_t i);

/// Independent normal values, the same for the same seed.
void fill_normal(const Tensor& tensor, double mean, double deviation, uint64_t seed);
/// Independent whole numbers of lo..hi.
void fill_uniform_int(const Tensor& tensor, int64_t lo, int64_t hi, uint64_t seed);

}  // namespace seqtile::kernels

// tests/support/kernels/sample_kernels.h -- small kernels that several tests use.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "seqtile/ir.h"

namespace seqtile::testing {

/// y[m, n] = x[m, k] w[n, k]^T in blocks; parameters x, w, y; grid (m / block_m, n / block_n).
std::unique_ptr<ir::Function> sample_matmul(int64_t n, int64_t k, int64_t block_m, int64_t block_n, int64_t block_k);
/// y[row, :] = softmax(x[row, :]) for any number of columns up to `block`; parameters x, y; grid (rows).
std::unique_ptr<ir::Function> sample_softmax(int64_t block);
/// Uses all operations of ops.def. Parameters: x, y [8, 8] f32, flags [4] i64, count i64. One program.
std::unique_ptr<ir::Function> sample_every_op();

}  // namespace seqtile::testing

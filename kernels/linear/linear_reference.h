// kernels/linear/linear_reference.h -- linear in plain double loops, in two parts: ranks add up products in between.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <vector>

#include "seqtile/ops/linear.h"

namespace seqtile::kernels::linear_op {

/// x w^T of each weight, [rows, columns], for these rows of x.
std::vector<std::vector<double>> reference_products(const Linear& op, const Linear::Tensors<Tensor>& t,
                                                    const std::vector<std::vector<double>>& x);
/// The outputs: bias, activation, gate, scale, cap, and the residual's rows `rows`.
Linear::Tensors<std::vector<double>> reference_epilogue(const Linear& op, const Linear::Tensors<Tensor>& t,
                                                        std::span<const int64_t> rows,
                                                        std::vector<std::vector<double>> products);

}  // namespace seqtile::kernels::linear_op

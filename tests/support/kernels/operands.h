// tests/support/kernels/operands.h -- memory for one run of a tile kernel, with the same bits every time.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/ir.h"
#include "seqtile/tensor.h"

namespace seqtile::testing {

struct Param {
  DType dtype;
  std::vector<int64_t> sizes;
  double lo = -2, hi = 2;  ///< inputs are uniform, integers rounded down; outputs start as 77
  bool output = false;
  int64_t behind = 0;  ///< rows of values behind the last row that are no part of the tensor
};

struct Operands {
  /// Tensor i takes the memory of tensor alias[i] unless alias[i] is negative.
  explicit Operands(const std::vector<Param>& params, const std::vector<int>& alias = {});
  /// The argument block of a launch; scalars follow the tensors.
  std::vector<uint64_t> slots(const std::vector<int64_t>& scalars) const;

  std::vector<std::vector<std::byte>> memory;
  std::vector<Tensor> tensors;
};

/// Interprets the kernel on `operands`.
void interpret_on(const ir::Function& function, Grid grid, const Operands& operands,
                  const std::vector<int64_t>& scalars);
/// The first element of any tensor, `behind` included, that differs by more than tolerance * (1 + |want|); empty if
/// none does.
std::string first_difference(const ir::Function& function, const std::vector<Param>& params, const Operands& want,
                             const Operands& got, double tolerance);

}  // namespace seqtile::testing

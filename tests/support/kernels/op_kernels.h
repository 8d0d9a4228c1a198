// tests/support/kernels/op_kernels.h -- one tiny kernel for every operation and element type that the IR's rules allow.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tests/support/kernels/operands.h"

namespace seqtile::testing {

struct OpKernel {
  std::string name;  ///< "pow_f64"; also the kernel's symbol
  std::unique_ptr<ir::Function> function;
  std::vector<Param> params;
  double tolerance = 0;  ///< tolerance of the results, relative to 1 + |value|
};

/// All kernels, in the order of ops.def; each runs as one program.
std::vector<OpKernel> every_op_kernel();

}  // namespace seqtile::testing

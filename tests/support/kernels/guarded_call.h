// tests/support/kernels/guarded_call.h -- a call of an operation whose tensors lie in poisoned memory.
// SPDX-License-Identifier: Apache-2.0
//
// All bits set is NaN in every float format and -1 in every integer. Each tensor's rows are padded by such poison and
// surrounded by it, bases and rows start at odd addresses, outputs are poison before a run: reading out of range
// shows in the result, or at the end of an input ends the process; writing out of range shows in the guard, a forgotten
// element in the output.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autotune/op_def.h"
#include "tests/support/kernels/guarded_bytes.h"

namespace seqtile::testing {

/// Calls visit(first byte, bytes) for every run of neighbours of a tensor whose innermost stride is 1.
template <class Visit>
void for_each_row(const Tensor& tensor, Visit visit, int axis = 0, int64_t offset = 0) {
  const int64_t size = dtype_bytes(tensor.dtype);
  if (axis + 1 >= std::min(tensor.rank, kMaxRank)) {
    const int64_t count = tensor.rank == 0 ? 1 : tensor.sizes[axis];
    visit(static_cast<std::byte*>(tensor.data) + offset * size, static_cast<size_t>(count * size));
    return;
  }
  for (int64_t i = 0; i < tensor.sizes[axis]; ++i)
    for_each_row(tensor, visit, axis + 1, offset + i * tensor.strides[axis]);
}

class GuardedCall {
 public:
  /// `symbols` in schema order; inputs are filled by the operation or with normal values, from `seed`. `op` must live
  /// on. Bases and rows are aligned to `alignment` bytes as far as the sizes allow; 1: to nothing.
  GuardedCall(const autotune::OpDef& op, const autotune::Workload& workload, std::vector<int64_t> symbols,
              uint64_t seed, int64_t alignment = 1);
  GuardedCall(const GuardedCall&) = delete;
  GuardedCall& operator=(const GuardedCall&) = delete;

  const autotune::Problem& problem() const { return problem_; }
  /// Errors: internal when the schema has no such argument.
  const Tensor& tensor(const std::string& name) const;
  void poison_outputs();
  /// All rows of the longest output where there are at most `most`, else both ends and some in between.
  std::vector<int64_t> sample_rows(int64_t most) const;
  /// References for `rows`, as OpDef::reference gives them.
  std::vector<std::vector<double>> want(std::span<const int64_t> rows) const;
  /// Empty when outputs agree with `want` and no poison outside of them was touched, else the first thing wrong.
  std::string check(std::span<const int64_t> rows, const std::vector<std::vector<double>>& want) const;
  /// The bytes of all outputs, guards included.
  std::vector<std::vector<std::byte>> output_bytes() const;
  /// All that a kernel may reach, guards included: what a device that shares no memory has to be given.
  const std::vector<std::unique_ptr<GuardedBytes>>& memory() const { return memory_; }

 private:
  const autotune::OpDef& op_;
  autotune::Workload workload_;
  autotune::Schema schema_;
  autotune::Problem problem_;
  std::vector<std::unique_ptr<GuardedBytes>> memory_;
};

}  // namespace seqtile::testing

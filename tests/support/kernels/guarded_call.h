// tests/support/kernels/guarded_call.h -- a call of an operation whose tensors lie in poisoned memory.
// SPDX-License-Identifier: Apache-2.0
//
// Poison (autotune/call/call_values.h) pads the rows of each tensor and surrounds the tensor; bases and rows start at
// odd addresses; outputs are poison before a run. A read out of range shows in the result, or ends the process at the
// end of an input. A write out of range shows in the guard, a forgotten element in the output.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "seqtile/op.h"
#include "tests/support/kernels/guarded_bytes.h"

namespace seqtile::testing {

class GuardedCall {
 public:
  /// `symbols` are in schema order. The operation fills the inputs from `seed`, or they are normal values. Bases and
  /// rows are aligned to `alignment` bytes as far as the sizes allow; 1 aligns nothing. Requires: `op` outlives the
  /// object.
  GuardedCall(const autotune::OpDef& op, const autotune::Workload& workload, std::vector<int64_t> symbols,
              uint64_t seed, int64_t alignment = 1);
  GuardedCall(const GuardedCall&) = delete;
  GuardedCall& operator=(const GuardedCall&) = delete;

  const autotune::Problem& problem() const { return problem_; }
  /// Errors: internal if the schema has no such argument.
  const Tensor& tensor(const std::string& name) const;
  void poison_outputs();
  /// All rows of the longest output if there are at most `most`; else both ends and some rows between them.
  std::vector<int64_t> sample_rows(int64_t most) const;
  /// Reference values of `rows`, in the form of OpDef::reference.
  std::vector<std::vector<double>> want(std::span<const int64_t> rows) const;
  /// Empty if the outputs agree with `want` and the poison around them is intact; else the first fault.
  std::string check(std::span<const int64_t> rows, const std::vector<std::vector<double>>& want) const;
  /// The bytes of all outputs, with their guards.
  std::vector<std::vector<std::byte>> output_bytes() const;
  /// All memory that a kernel may reach, with its guards. A device without shared memory gets all of it.
  const std::vector<std::unique_ptr<GuardedBytes>>& memory() const { return memory_; }

 private:
  const autotune::OpDef& op_;
  autotune::Workload workload_;
  autotune::Schema schema_;
  autotune::Problem problem_;
  std::vector<std::unique_ptr<GuardedBytes>> memory_;
};

}  // namespace seqtile::testing

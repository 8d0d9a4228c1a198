// kernels/op/workload_reader.h -- strict reading of a workload's static fields.
// SPDX-License-Identifier: Apache-2.0
//
// Every operation's normalize() reads its fields through this class: defaults are filled in, values out of range and
// unknown names are refused with field, value, limit and next step. The result names every field of the
// operation but those that came late and have their default.
#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/fields.h"

namespace seqtile::kernels {

class WorkloadReader {
 public:
  /// Errors (here and below): invalid_argument. The element type must be f32, bf16 or f16, threads at least 1.
  explicit WorkloadReader(const autotune::Workload& given);

  DType dtype() const { return given_.dtype; }
  int64_t required(std::string_view name, int64_t lo, int64_t hi);
  int64_t integer(std::string_view name, int64_t fallback, int64_t lo, int64_t hi);
  bool flag(std::string_view name) { return integer(name, 0, 0, 1) != 0; }
  double number(std::string_view name, double fallback, double lo, double hi);
  /// The same, but left out of the result where it is the fallback: a field that came later changes no key that was.
  double late_number(std::string_view name, double fallback, double lo, double hi);
  /// One of `choices`; the first is the default.
  std::string choice(std::string_view name, std::initializer_list<std::string_view> choices) {
    return choice(name, std::span(choices.begin(), choices.size()), 0);
  }
  std::string choice(std::string_view name, std::span<const std::string_view> choices, size_t fallback);
  /// Refuses the field where it is given.
  void absent(std::string_view name, const std::string& reason) const;
  [[noreturn]] void refuse(std::string_view name, const std::string& reason) const;

  /// The complete workload. Errors: a field that no call above asked for.
  autotune::Workload finish() const;

 private:
  const autotune::Workload& given_;
  autotune::Workload result_;
  std::vector<std::string> left_out_;  ///< fields that were asked for all the same
};

}  // namespace seqtile::kernels

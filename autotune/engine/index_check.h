// autotune/engine/index_check.h -- the numbers of a call's index tensors against the rules of its schema.
// SPDX-License-Identifier: Apache-2.0
//
// Kernels use these numbers as they are: a row that is not there would be read, or written. So the host looks at every
// one of them before a CPU launches anything; that is a few instructions a number, less than the launch costs.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/op_def.h"
#include "jit/device/tensor.h"

namespace seqtile::autotune {

/// What the numbers of a rule must keep to in one call.
struct IndexBounds {
  int64_t limit, least, most;
};

class IndexCheck {
 public:
  IndexCheck() = default;
  /// `symbols`: the names of the schema's symbols, then those of its scalars.
  /// Errors: invalid_argument on a rule of an argument that is not there or is no list of integers.
  IndexCheck(const Schema& schema, const std::vector<std::string>& symbols);

  /// Errors: invalid_argument naming argument, element, value and limit. Requires: tensors that fit the schema.
  void check(std::span<const Tensor> tensors, std::span<const int64_t> symbols) const {
    for (const Rule& rule : rules_)
      if (!is_kept(rule, tensors, symbols)) [[unlikely]]
        refuse(rule, tensors, symbols);
  }

 private:
  struct Limit {
    int64_t size = 0;
    int symbol = -1;  ///< its value is added
    std::string name;
    int64_t value(std::span<const int64_t> symbols) const { return size + (symbol < 0 ? 0 : symbols[symbol]); }
  };
  struct Rule {
    IndexRule::Kind kind;
    size_t arg, counts;
    std::string arg_name, counts_name;
    Limit limit;
    int64_t least;
    std::optional<Limit> most;
    bool is_disjoint;
  };

  static Limit limit_of(const Dim& dim, const std::vector<std::string>& symbols);
  static IndexBounds bounds_of(const Rule& rule, std::span<const int64_t> symbols);
  static bool is_kept(const Rule& rule, std::span<const Tensor> tensors, std::span<const int64_t> symbols);
  [[noreturn]] static void refuse(const Rule& rule, std::span<const Tensor> tensors, std::span<const int64_t> symbols);

  std::vector<Rule> rules_;
};

}  // namespace seqtile::autotune

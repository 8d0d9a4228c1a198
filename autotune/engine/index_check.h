// autotune/engine/index_check.h -- checks the elements of a call's index tensors against the rules of its schema.
// SPDX-License-Identifier: Apache-2.0
//
// A kernel uses an index without checking it, and a wrong index reads or writes outside of a tensor. The host therefore
// checks every element before a launch on a CPU. The check takes a few instructions an element, less than the launch.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "seqtile/op.h"
#include "seqtile/tensor.h"

namespace seqtile::autotune {

/// Values of a rule's limit, least and most in one call.
struct IndexBounds {
  int64_t limit, least, most;
};

class IndexCheck {
 public:
  IndexCheck() = default;
  /// `symbols`: the names of the schema's symbols, then those of its scalars.
  /// Errors: invalid_argument on a rule of an unknown argument or symbol, or of an argument that is an output, is not
  /// of i32 or i64, or is not of rank 1 under a rule for lists.
  IndexCheck(const Schema& schema, const std::vector<std::string>& symbols);

  /// Requires: the tensors fit the schema. Errors: invalid_argument naming argument, element, value and limit.
  void check(std::span<const Tensor> tensors, std::span<const int64_t> symbols) const {
    for (const Rule& rule : rules_)
      if (!is_kept(rule, tensors, symbols)) [[unlikely]]
        refuse(rule, tensors, symbols);
  }

 private:
  struct Limit {
    int64_t size = 0;
    int symbol = -1;  ///< the symbol whose value is added to `size`; -1: none
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

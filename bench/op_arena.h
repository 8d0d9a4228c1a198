// bench/op_arena.h -- the arena of any operation, made from its definition: operands, reference, our implementation.
// SPDX-License-Identifier: Apache-2.0
//
// Peers are verified like ours, against the operation's plain reference; the unit of errors is the operation's
// tolerance. A peer may round more often (PyTorch stores values that our epilogues keep in registers), so its limit is
// wider: the check only has to prove that it computes the same thing.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/environment.h"
#include "bench/harness.h"
#include "bench/operands.h"
#include "seqtile/engine.h"

namespace seqtile::bench {

class OpArena;
/// Makes an implementation other than "seqtile" ready for the arena's operands.
using EnterOther = std::function<std::unique_ptr<Contestant>(OpArena& arena, const std::string& implementation)>;

class OpArena : public Arena {
 public:
  OpArena(Environment& environment, const autotune::Workload& workload, int64_t length, EnterOther enter_other);

  int copies() const override { return static_cast<int>(copies_.size()); }
  std::unique_ptr<Contestant> enter(const std::string& implementation) override;
  void poison(int copy) override;
  double max_error(int copy) override;
  double error_limit(const std::string& implementation) const override;

  Environment& environment() { return environment_; }
  const autotune::OpDef& op() const { return op_; }
  const autotune::Workload& workload() const { return workload_; }
  int64_t length() const { return length_; }
  /// The tensors of every copy, in schema order.
  std::vector<std::vector<Tensor>> tensors() const;
  const Operand& operand(int copy, std::string_view name) const;
  const Tensor& tensor(int copy, std::string_view name) const { return operand(copy, name).tensor(); }

 private:
  void fill(size_t arg);
  void compute_reference();

  Environment& environment_;
  const autotune::OpDef& op_;
  autotune::Workload workload_;
  int64_t length_;
  autotune::Schema schema_;
  autotune::Problem problem_;  ///< of copy 0
  EnterOther enter_other_;
  std::vector<std::vector<Operand>> copies_;
  std::vector<int64_t> rows_;                   ///< verified rows of dimension 0
  std::vector<std::vector<double>> reference_;  ///< of each output
};

/// A case of an operation: our implementation first, then `others`. Work and roofline follow from the definition.
Case make_op_case(Environment& environment, const autotune::Workload& workload, int64_t length, std::string shape,
                  const std::vector<std::string>& others, EnterOther enter_other);

}  // namespace seqtile::bench

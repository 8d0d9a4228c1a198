// jit/ir/op_rules.h -- the rules of every operation of ops.def, one class over three files.
// SPDX-License-Identifier: Apache-2.0
//
// A rule is one `require` or `choice` call: it names the rule, the values that break it and, where there is one, the
// next step. The message is built only when the rule is broken.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "jit/ir/infer.h"
#include "seqtile/ir.h"

namespace seqtile::ir {

/// The rule that the type by itself breaks (ranks, sizes, alignment); empty where it breaks none.
std::string check_type(const Type& type);
/// `dot %17`, or `store of %3` for operations without results.
std::string op_label(const Op& op);

inline bool is_i1(const Type& type) { return type.dtype == DType::i1; }
inline bool is_number(const Type& type) { return !type.is_view() && !is_i1(type); }
inline bool is_scalar_of(const Type& type, DType dtype) { return type == scalar_type(dtype); }
/// True if every fact that the view `type` states follows from `known`.
bool promises_no_more(const Type& type, const Type& known);

class OpRules {
 public:
  explicit OpRules(const Op& op) : op_(op) {}
  void check() const;

 private:
  struct Named {
    const char* name;
    const Type& type;
  };

  // reporting and access
  const Type& operand(size_t i) const { return op_.operands[i]->type; }
  const Type& result(size_t i = 0) const { return op_.results[i]->type; }
  [[noreturn]] void fail(const std::string& message) const;
  /// "<label>: <rule>: a is <type>, b is <type>; <advice>"
  void require(bool ok, const char* rule, std::initializer_list<Named> types = {}, const char* advice = "") const;
  void require_operands(size_t count) const;
  int64_t int_attribute(std::string_view name, int64_t lo, int64_t hi) const;
  std::string_view string_attribute(std::string_view name) const;
  std::string_view choice(std::string_view name, std::initializer_list<std::string_view> allowed) const;
  /// The axis attribute of an operation on a tile or view.
  int64_t axis_of(const Type& type) const;
  void check_fill() const;
  void check_counts() const;
  void require_result(const Type& expected) const;
  void check_debug() const;

  // control (op_rules_control.cpp)
  /// `region` takes `extra_arguments` arguments and, if `carries`, one of each result's type; it yields `extra_yields`
  /// values and then one of each result's type.
  void check_region(const Block& region, size_t extra_arguments, size_t extra_yields, bool carries) const;
  void check_inits(size_t first) const;
  void check_condition() const;
  void check_control() const;
  void check_for() const;
  void check_while() const;

  // values (op_rules_values.cpp)
  void check_create() const;
  void check_constant() const;
  void check_shape() const;
  void check_broadcast(const Type& a) const;
  void check_trans(const Type& a) const;
  void check_unary() const;
  void check_binary() const;
  void check_select() const;
  void check_reduce() const;
  void check_dot() const;

  // memory and synchronisation (op_rules_memory.cpp)
  /// Operand 0 is a view, the next `groups` times rank operands are i64 scalars, then `extra` more operands follow.
  const Type& check_indices(int groups, size_t extra) const;
  void require_tile_of(const Type& tile, const Type& view) const;
  void require_element_of(const Type& scalar, const Type& view) const;
  void require_rows(const Type& view) const;
  void check_memory() const;
  void check_slice() const;
  void check_at() const;
  void check_view_at() const;
  void check_await() const;
  void check_clock() const;
  void check_gather_scatter() const;
  void check_order(std::initializer_list<std::string_view> orders) const;
  void check_sync() const;

  const Op& op_;
};

}  // namespace seqtile::ir

// jit/ir/verifier.cpp -- rules of a whole function: structure, definitions before uses, parameters.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ir/verifier.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <set>
#include <unordered_set>

#include "jit/ir/infer.h"
#include "jit/ir/length_sizes.h"
#include "jit/ir/op_rules.h"
#include "seqtile/error.h"

namespace seqtile::ir {
namespace {

std::string check_view(const Type& type) {
  if (type.rank < 1 || type.rank > kMaxViewRank) return "views have 1 to 4 dimensions";
  for (const int64_t size : type.dims())
    if (size < 1 && size != kDynamic) return "the size " + std::to_string(size) + " must be positive or dynamic";
  const bool is_power = type.alignment > 0 && std::has_single_bit(static_cast<unsigned>(type.alignment));
  if (!is_power || type.alignment < dtype_bytes(type.dtype))
    return "the alignment must be a power of two of at least the element's " + std::to_string(dtype_bytes(type.dtype)) +
           " bytes";
  return "";
}

std::string check_tile(const Type& type) {
  if (type.rank < 1 || type.rank > kMaxTileRank) return "tiles have 1 to 3 dimensions";
  int64_t elements = 1;
  for (const int64_t size : type.dims()) {
    if (size < 1) return "the size " + std::to_string(size) + " must be positive";
    elements = size > kMaxTileElements ? kMaxTileElements + 1 : elements * size;
    if (elements > kMaxTileElements)
      return "more than " + std::to_string(kMaxTileElements) + " elements; use a smaller block";
  }
  return "";
}

class FunctionRules {
 public:
  explicit FunctionRules(const Function& function) : function_(function) {}

  void check() {
    check_params();
    check_block(function_.body());
  }

 private:
  [[noreturn]] void fail(const std::string& message) {
    throw Error(ErrorCode::compile_failed, "function " + function_.name() + ": " + message);
  }

  void check_params() {
    if (!is_word(function_.name())) fail("the name must consist of letters, digits, '_', '.' and '$'");
    std::set<std::string_view> names;
    const auto& arguments = function_.body().arguments;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& name = function_.param_names()[i];
      const Type& type = arguments[i]->type;
      if (!is_word(name) || !names.insert(name).second)
        fail("parameter " + std::to_string(i) + ": the name '" + name +
             "' must be unique and consist of letters, digits, '_', '.' and '$'");
      if (type.is_tile()) fail("parameter " + name + ": parameters are views or scalars, not " + to_string(type));
      if (const std::string problem = check_type(type); !problem.empty())
        fail("parameter " + name + ": " + to_string(type) + ": " + problem);
    }
  }

  void check_block(const Block& block) {
    std::vector<const Value*> defined;
    const auto define = [&](const Value* value) {
      visible_.insert(value);
      defined.push_back(value);
    };
    for (const Value* argument : block.arguments) define(argument);
    for (const Op* op : block.ops) {
      if (op->parent != &block) fail(op_label(*op) + ": its parent is another block");
      check_op(*op, block);
      for (const Value* result : op->results) define(result);
    }
    for (const Value* value : defined) visible_.erase(value);
  }

  void check_op(const Op& op, const Block& block) {
    for (const Value* operand : op.operands) {
      if (operand && !visible_.contains(operand))
        throw Error(ErrorCode::compile_failed, op_label(op) + ": operand %" + std::to_string(operand->id) +
                                                   " is not defined before this operation in an enclosing block");
    }
    verify_op(op);
    if (op.kind == OpKind::yield && (block.parent == nullptr || &op != block.ops.back()))
      throw Error(ErrorCode::compile_failed, op_label(op) + ": a yield ends a nested block and stands nowhere else");
    for (const Block* region : op.regions) check_block(*region);
  }

  const Function& function_;
  std::unordered_set<const Value*> visible_;
};

}  // namespace

std::string check_type(const Type& type) {
  if (type.is_view()) return check_view(type);
  return type.is_tile() ? check_tile(type) : "";
}

bool is_word(std::string_view name) {
  const auto is_char = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '$'; };
  return !name.empty() && std::all_of(name.begin(), name.end(), is_char);
}

std::string op_label(const Op& op) {
  std::string label(op.info().name);
  if (!op.results.empty()) return label + " %" + std::to_string(op.results[0]->id);
  if (!op.operands.empty() && op.operands[0]) label += " of %" + std::to_string(op.operands[0]->id);
  return label;
}

void verify(const Function& function) {
  FunctionRules(function).check();
  length_sizes(function);
}

}  // namespace seqtile::ir

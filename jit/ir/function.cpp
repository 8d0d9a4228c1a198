// jit/ir/function.cpp -- construction of the tile IR.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ir.h"

#include "jit/base/forever.h"

#include <algorithm>
#include <iterator>

namespace seqtile::ir {
namespace {

constexpr OpInfo kOps[] = {
#define SEQTILE_OP(name, group, operands, results, regions, effects) \
  {#name, OpGroup::group, operands, results, regions, OpEffects::effects},
#include "seqtile/ops.def"
#undef SEQTILE_OP
};

template <class T>
const T* find_attribute(const Attributes& attributes, std::string_view name) {
  const auto it = attributes.find(name);
  return it == attributes.end() ? nullptr : std::get_if<T>(&it->second);
}

}  // namespace

const OpInfo& op_info(OpKind kind) { return kOps[static_cast<int>(kind)]; }

std::optional<OpKind> parse_op_kind(std::string_view name) {
  for (size_t i = 0; i < std::size(kOps); ++i)
    if (kOps[i].name == name) return static_cast<OpKind>(i);
  return std::nullopt;
}

int64_t Op::int_attr(std::string_view name, int64_t fallback) const {
  const auto* value = find_attribute<int64_t>(attributes, name);
  return value ? *value : fallback;
}

double Op::float_attr(std::string_view name, double fallback) const {
  const auto* value = find_attribute<double>(attributes, name);
  return value ? *value : fallback;
}

std::string_view Op::string_attr(std::string_view name, std::string_view fallback) const {
  const auto* value = find_attribute<std::string>(attributes, name);
  return value ? std::string_view(*value) : fallback;
}

const std::vector<Value*>& Block::yielded() const {
  static const auto& kNone = forever(std::vector<Value*>());
  return ops.empty() || ops.back()->kind != OpKind::yield ? kNone : ops.back()->operands;
}

Function::Function(std::string name) : name_(std::move(name)), body_(add_block(nullptr)) {}

Value* Function::new_value(const Type& type) {
  Value& value = values_.emplace_back();
  value.type = type;
  value.id = next_id_++;
  return &value;
}

void Function::set_id(Value* value, int id) {
  value->id = id;
  next_id_ = std::max(next_id_, id + 1);
}

Value* Function::add_param(std::string name, const Type& type) {
  param_names_.push_back(std::move(name));
  return add_block_argument(body_, type);
}

Block* Function::add_block(Op* parent) {
  Block& block = blocks_.emplace_back();
  block.parent = parent;
  if (parent) parent->regions.push_back(&block);
  return &block;
}

Value* Function::add_block_argument(Block* block, const Type& type) {
  Value* value = new_value(type);
  value->block = block;
  value->index = static_cast<int>(block->arguments.size());
  block->arguments.push_back(value);
  return value;
}

Op* Function::append(Block* block, OpKind kind, std::vector<Value*> operands, std::vector<Type> result_types,
                     Attributes attributes) {
  Op& op = ops_.emplace_back();
  op.kind = kind;
  op.operands = std::move(operands);
  op.attributes = std::move(attributes);
  op.parent = block;
  for (const Type& type : result_types) {
    Value* value = new_value(type);
    value->def = &op;
    value->index = static_cast<int>(op.results.size());
    op.results.push_back(value);
  }
  block->ops.push_back(&op);
  return &op;
}

int num_slots(const Type& type) { return type.is_view() ? 1 + 2 * type.rank : 1; }

int num_slots(const Function& function) {
  int slots = 0;
  for (const Value* param : function.body().arguments) slots += num_slots(param->type);
  return slots + (function.attributes.contains("length_sizes") ? 1 : 0);  // see length_sizes.h
}

}  // namespace seqtile::ir

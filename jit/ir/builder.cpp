// jit/ir/builder.cpp -- the kernel builder: operands, control flow, creation, shapes and memory.
// SPDX-License-Identifier: Apache-2.0
//
// Each operation is checked by the verifier the moment it is appended, so that a mistake is reported from the line of
// the kernel that makes it. Arithmetic is in builder_arithmetic.cpp.
#include "seqtile/builder.h"

#include "jit/ir/infer.h"
#include "jit/ir/row_alignment.h"
#include "jit/ir/verifier.h"
#include "seqtile/error.h"

namespace seqtile {

using ir::Attributes;
using ir::OpKind;
using ir::Type;
using ir::Value;

namespace {

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::compile_failed, message); }

std::vector<Value*> values_of(const std::vector<Var>& vars) {
  std::vector<Value*> values;
  for (const Var& var : vars) values.push_back(var.value());
  return values;
}

std::vector<Var> vars_of(KernelBuilder* builder, const std::vector<Value*>& values) {
  std::vector<Var> vars;
  for (Value* value : values) vars.emplace_back(builder, value);
  return vars;
}

std::vector<Type> types_of(const std::vector<Value*>& values, std::string_view what) {
  std::vector<Type> types;
  for (const Value* value : values) {
    if (!value) fail(std::string(what) + ": a value is missing (a default-constructed Var)");
    types.push_back(value->type);
  }
  return types;
}

Type checked_tile(const std::vector<int64_t>& shape, DType dtype, std::string_view what) {
  if (shape.empty() || shape.size() > ir::kMaxTileRank)
    fail(std::string(what) + ": the shape has " + std::to_string(shape.size()) + " dimensions; tiles have 1 to 3");
  return ir::tile_type(shape, dtype);
}

}  // namespace

const Type& Var::type() const {
  if (!value_) fail("a kernel uses a default-constructed Var; initialise it with a value of the builder");
  return value_->type;
}

KernelBuilder::KernelBuilder(std::string name)
    : function_(std::make_unique<ir::Function>(std::move(name))), block_(&function_->body()) {}

// operands

ir::Function& KernelBuilder::function() {
  if (!function_) fail("the builder is empty: finish() was called");
  return *function_;
}

Var KernelBuilder::emit(OpKind kind, std::vector<Value*> operands, const Type& type, Attributes attributes) {
  types_of(operands, ir::op_info(kind).name);
  ir::Op* op = function().append(block_, kind, std::move(operands), {type}, std::move(attributes));
  ir::verify_op(*op);
  return {this, op->results[0]};
}

void KernelBuilder::emit_effect(OpKind kind, std::vector<Value*> operands, Attributes attributes) {
  types_of(operands, ir::op_info(kind).name);
  ir::verify_op(*function().append(block_, kind, std::move(operands), {}, std::move(attributes)));
}

Value* KernelBuilder::as_index(const Operand& operand) { return as_like(operand, ir::scalar_type(DType::i64)).value(); }

Var KernelBuilder::as_like(const Operand& operand, const Type& type) {
  Var var = operand.is_literal() ? constant(type.dtype, operand.literal()) : operand.var();
  if (!type.is_tile() || var.type() == type || var.type().is_view()) return var;
  const Type stretched = ir::with_dtype(type, var.type().dtype);
  if (var.type().is_scalar()) return emit(OpKind::full, {var.value()}, stretched);
  return var.type() == stretched ? var : emit(OpKind::broadcast, {var.value()}, stretched);
}

void KernelBuilder::append_indices(std::vector<Value*>& operands, const std::vector<Operand>& indices) {
  for (const Operand& index : indices) operands.push_back(as_index(index));
}

// parameters

Var KernelBuilder::view(std::string name, DType dtype, std::span<const int64_t> sizes, ViewFacts facts) {
  if (sizes.size() == 0 || sizes.size() > ir::kMaxViewRank)
    fail("view '" + name + "': " + std::to_string(sizes.size()) + " dimensions; views have 1 to 4");
  Type type{ir::TypeKind::view, dtype, static_cast<int>(sizes.size())};
  int i = 0;
  for (const int64_t size : sizes) type.shape[i++] = size;
  type.contiguous = facts.contiguous;
  type.noalias = facts.noalias;
  type.alignment =
      facts.alignment ? facts.alignment : row_alignment(dtype, type.dims(), type.contiguous ? row_alignment_ : 1);
  return {this, function().add_param(std::move(name), type)};
}

void KernelBuilder::schedule(ir::Attributes attributes) {
  for (auto& [name, value] : attributes) function().attributes.insert_or_assign(name, std::move(value));
}

Var KernelBuilder::scalar(std::string name, DType dtype) {
  return {this, function().add_param(std::move(name), ir::scalar_type(dtype))};
}

// control

Var KernelBuilder::program_id(int axis) {
  return emit(OpKind::program_id, {}, ir::scalar_type(DType::i64), {{"axis", int64_t{axis}}});
}

Var KernelBuilder::num_programs(int axis) {
  return emit(OpKind::num_programs, {}, ir::scalar_type(DType::i64), {{"axis", int64_t{axis}}});
}

template <class Body>
void KernelBuilder::in_block(ir::Block* block, Body body) {
  ir::Block* outer = std::exchange(block_, block);
  const std::vector<Var> yielded = body();
  emit_effect(OpKind::yield, values_of(yielded));
  block_ = outer;
}

std::vector<Var> KernelBuilder::for_loop(Operand lo, Operand hi, Operand step, std::vector<Var> inits,
                                         const LoopBody& body, Attributes schedule) {
  std::vector<Value*> operands = {as_index(lo), as_index(hi), as_index(step)};
  const std::vector<Value*> init_values = values_of(inits);
  const std::vector<Type> types = types_of(init_values, "for_loop");
  operands.insert(operands.end(), init_values.begin(), init_values.end());
  ir::Op* op = function().append(block_, OpKind::for_loop, std::move(operands), types, std::move(schedule));
  ir::Block* block = function().add_block(op);
  const Var index(this, function().add_block_argument(block, ir::scalar_type(DType::i64)));
  for (const Type& type : types) function().add_block_argument(block, type);
  in_block(block, [&] { return body(index, vars_of(this, {block->arguments.begin() + 1, block->arguments.end()})); });
  ir::verify_op(*op);
  return vars_of(this, op->results);
}

std::vector<Var> KernelBuilder::if_then(Var condition, const BranchBody& then_body, const BranchBody& else_body) {
  // The branches come first: what they yield decides the result types.
  ir::Block* branches[] = {function().add_block(nullptr), function().add_block(nullptr)};
  in_block(branches[0], then_body);
  in_block(branches[1], [&] { return else_body ? else_body() : std::vector<Var>{}; });
  ir::Op* op =
      function().append(block_, OpKind::if_then, {condition.value()}, types_of(branches[0]->yielded(), "if_then"));
  for (ir::Block* branch : branches) {
    branch->parent = op;
    op->regions.push_back(branch);
  }
  ir::verify_op(*op);
  return vars_of(this, op->results);
}

void KernelBuilder::for_each(Operand lo, Operand hi, Operand step, const std::function<void(Var index)>& body) {
  for_loop(lo, hi, step, {}, [&](Var index, const std::vector<Var>&) {
    body(index);
    return std::vector<Var>{};
  });
}

void KernelBuilder::when(Var condition, const std::function<void()>& then_body,
                         const std::function<void()>& else_body) {
  const auto branch = [](const std::function<void()>& body) {
    return [&body] {
      if (body) body();
      return std::vector<Var>{};
    };
  };
  if_then(condition, branch(then_body), branch(else_body));
}

std::vector<Var> KernelBuilder::while_loop(std::vector<Var> inits,
                                           const std::function<Var(std::vector<Var>)>& condition,
                                           const std::function<std::vector<Var>(std::vector<Var>)>& body) {
  const std::vector<Value*> operands = values_of(inits);
  const std::vector<Type> types = types_of(operands, "while_loop");
  ir::Op* op = function().append(block_, OpKind::while_loop, operands, types);
  ir::Block* test = function().add_block(op);
  ir::Block* next = function().add_block(op);
  for (ir::Block* block : {test, next})
    for (const Type& type : types) function().add_block_argument(block, type);
  in_block(test, [&] {
    std::vector<Var> carried = vars_of(this, test->arguments);
    std::vector<Var> yielded = {condition(carried)};
    yielded.insert(yielded.end(), carried.begin(), carried.end());
    return yielded;
  });
  in_block(next, [&] { return body(vars_of(this, next->arguments)); });
  ir::verify_op(*op);
  return vars_of(this, op->results);
}

void KernelBuilder::assume(Var condition) { emit_effect(OpKind::assume, {condition.value()}); }

// create

Var KernelBuilder::constant(DType dtype, std::variant<int64_t, double> value) {
  if (is_float(dtype)) {
    const double number = std::visit([](auto v) { return static_cast<double>(v); }, value);
    return emit(OpKind::constant, {}, ir::scalar_type(dtype), {{"value", number}});
  }
  if (const double* number = std::get_if<double>(&value)) {
    const bool is_whole =
        *number >= -0x1p62 && *number <= 0x1p62 && *number == static_cast<double>(static_cast<int64_t>(*number));
    if (!is_whole)
      fail("the literal " + std::to_string(*number) + " meets " + std::string(dtype_name(dtype)) +
           " values; it is not a whole number: cast the other side or round the literal");
    value = static_cast<int64_t>(*number);
  }
  return emit(OpKind::constant, {}, ir::scalar_type(dtype), {{"value", std::get<int64_t>(value)}});
}

Var KernelBuilder::full(std::vector<int64_t> shape, double value, DType dtype) {
  return full(std::move(shape), constant(dtype, value));
}

Var KernelBuilder::full(std::vector<int64_t> shape, Var scalar) {
  return emit(OpKind::full, {scalar.value()}, checked_tile(shape, scalar.type().dtype, "full"));
}

Var KernelBuilder::iota(int64_t n) { return emit(OpKind::iota, {}, ir::tile_type({n}, DType::i32)); }

Var KernelBuilder::rand(Operand seed, Var counters) {
  return emit(OpKind::rand, {as_index(seed), counters.value()}, ir::with_dtype(counters.type(), DType::f32));
}

// shape

Var KernelBuilder::expand(Var tile, int axis) {
  return emit(OpKind::expand, {tile.value()}, ir::expanded(tile.type(), axis), {{"axis", int64_t{axis}}});
}

Var KernelBuilder::broadcast(Var tile, std::vector<int64_t> shape) {
  return emit(OpKind::broadcast, {tile.value()}, checked_tile(shape, tile.type().dtype, "broadcast"));
}

Var KernelBuilder::reshape(Var tile, std::vector<int64_t> shape) {
  return emit(OpKind::reshape, {tile.value()}, checked_tile(shape, tile.type().dtype, "reshape"));
}

Var KernelBuilder::trans(Var tile, std::vector<int64_t> perm) {
  const Type type = ir::permuted(tile.type(), perm);
  return emit(OpKind::trans, {tile.value()}, type, {{"perm", std::move(perm)}});
}

std::pair<Var, Var> KernelBuilder::split(Var tile) {
  const Type& type = tile.type();
  const Type half = ir::with_last_dim(type, ir::last_dim(type) / 2);
  ir::Op* op = function().append(block_, OpKind::split, {tile.value()}, {half, half});
  ir::verify_op(*op);
  return {Var(this, op->results[0]), Var(this, op->results[1])};
}

Var KernelBuilder::join(Var even, Var odd) {
  const Type& type = even.type();
  return emit(OpKind::join, {even.value(), odd.value()}, ir::with_last_dim(type, ir::last_dim(type) * 2));
}

Var KernelBuilder::concat(Var left, Var right) {
  const Type& type = left.type();
  const int64_t size = ir::last_dim(type) + ir::last_dim(right.type());
  return emit(OpKind::concat, {left.value(), right.value()}, ir::with_last_dim(type, size));
}

// memory

Var KernelBuilder::size(Var view, int axis) {
  return emit(OpKind::size, {view.value()}, ir::scalar_type(DType::i64), {{"axis", int64_t{axis}}});
}

Var KernelBuilder::address(Var view) { return emit(OpKind::address, {view.value()}, ir::scalar_type(DType::i64)); }

Var KernelBuilder::slice(Var view, std::vector<Operand> offsets, std::vector<Operand> sizes) {
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  append_indices(operands, sizes);
  const std::span<Value* const> indices = std::span(operands).subspan(1);
  const Type type = ir::sliced(view.type(), indices.first(offsets.size()), indices.subspan(offsets.size()));
  return emit(OpKind::slice, std::move(operands), type);
}

Var KernelBuilder::at(Var view, int axis, Operand index) {
  return emit(OpKind::at, {view.value(), as_index(index)}, ir::indexed(view.type(), axis), {{"axis", int64_t{axis}}});
}

Var KernelBuilder::view_at(Var address, DType dtype, std::vector<Operand> sizes) {
  std::vector<Value*> operands = {address.value()};
  append_indices(operands, sizes);
  const Type type = ir::placed_view(dtype, std::span<Value* const>(operands).subspan(1), row_alignment_);
  return emit(OpKind::view_at, std::move(operands), type);
}

Var KernelBuilder::load(Var view, std::vector<Operand> offsets, std::vector<int64_t> shape, double fill) {
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  return emit(OpKind::load, std::move(operands), checked_tile(shape, view.type().dtype, "load"), {{"fill", fill}});
}

Var KernelBuilder::load_scalar(Var view, std::vector<Operand> offsets) {
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  return emit(OpKind::load_scalar, std::move(operands), ir::scalar_type(view.type().dtype));
}

void KernelBuilder::store(Var view, std::vector<Operand> offsets, Var tile) {
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  operands.push_back(tile.value());
  emit_effect(OpKind::store, std::move(operands));
}

void KernelBuilder::store_scalar(Var view, std::vector<Operand> offsets, Operand scalar) {
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  operands.push_back(as_like(scalar, ir::scalar_type(view.type().dtype)).value());
  emit_effect(OpKind::store_scalar, std::move(operands));
}

void KernelBuilder::store_add(Var view, std::vector<Operand> offsets, Var tile) {
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  operands.push_back(tile.value());
  emit_effect(OpKind::store_add, std::move(operands));
}

Var KernelBuilder::gather(Var view, Var rows, Operand column, int64_t num_columns, double fill) {
  const Type& rows_type = rows.type();
  return emit(OpKind::gather, {view.value(), rows.value(), as_index(column)},
              ir::tile_type({rows_type.shape[0], num_columns}, view.type().dtype), {{"fill", fill}});
}

void KernelBuilder::scatter(Var view, Var rows, Operand column, Var tile) {
  emit_effect(OpKind::scatter, {view.value(), rows.value(), as_index(column), tile.value()});
}

void KernelBuilder::prefetch(Var view, std::vector<Operand> offsets) {
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  emit_effect(OpKind::prefetch, std::move(operands));
}

std::unique_ptr<ir::Function> KernelBuilder::finish() {
  if (!function_) fail("the builder is empty: finish() was called before");
  ir::verify(*function_);
  block_ = nullptr;
  return std::move(function_);
}

}  // namespace seqtile

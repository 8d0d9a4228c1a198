// jit/codegen/cpu/program.cpp -- blocks, scalars, views and memory for tiles of one program.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/program.h"
#include "jit/codegen/cpu/kernels/micro_kernel.h"
#include "jit/codegen/dense_strides.h"

#include <algorithm>

#include "seqtile/error.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpGroup;
using ir::OpKind;
using llvm::Value;

Program::Program(llvm::Module& module, const Target& target, const ir::Function& function)
    : e_(module, target, function.name()), function_(function), dims_(function) {
  e_.reserve(256);  // masked-out scalar loads read here
  number(function.body());
}

void Program::fail(const Op& op, const std::string& why) const {
  throw Error(ErrorCode::compile_failed, "kernel " + function_.name() + ": " + std::string(op.info().name) + " %" +
                                             std::to_string(op.results.empty() ? -1 : op.results[0]->id) + " " + why);
}

void Program::number(const ir::Block& block) {
  for (const Op* op : block.ops) {
    position_[op] = static_cast<int>(position_.size());
    for (const ir::Value* operand : op->operands) users_[operand].push_back(op);
    for (const ir::Block* region : op->regions) number(*region);
  }
}

void Program::lower() {
  bind_parameters();
  llvm::BasicBlock* entry = e_.b.GetInsertBlock();
  lower_block(function_.body());
  if (uses_matrix_registers_) release_matrix_registers(e_);
  e_.b.CreateRetVoid();
  if (!uses_matrix_registers_) return;
  e_.b.SetInsertPoint(entry, entry->getFirstInsertionPt());
  configure_matrix_registers(e_);
}

void Program::bind_parameters() {
  int slot = 0;
  const auto next = [&](llvm::Type* type) {
    Value* pointer = e_.b.CreateConstInBoundsGEP1_64(e_.b.getInt64Ty(), e_.slots, static_cast<uint64_t>(slot++));
    return e_.b.CreateLoad(type, pointer);
  };
  for (const ir::Value* param : function_.body().arguments) {
    if (param->type.is_scalar()) {
      scalars_[param] = next(e_.type_of(param->type.dtype));
      continue;
    }
    const ir::Type& type = param->type;
    ViewRef& ref = views_[param];
    ref.base = next(e_.b.getPtrTy());
    for (int d = 0; d < type.rank; ++d) {
      Value* size = next(e_.b.getInt64Ty());
      ref.sizes.push_back(type.shape[d] == ir::kDynamic ? size : e_.i64(type.shape[d]));
    }
    for (int d = 0; d < type.rank; ++d) {
      Value* stride = next(e_.b.getInt64Ty());
      ref.strides.push_back(type.contiguous && d == type.rank - 1 ? e_.i64(1) : stride);
    }
  }
}

void Program::lower_block(const ir::Block& block) {
  scope_.push_back(&block);
  for (const Op* op : block.ops) {
    current_ = op;
    lower_op(*op);
  }
  if (block.ops.empty() || block.ops.back()->kind != OpKind::yield) {
    is_after_current_ = true;
    flush();
    is_after_current_ = false;
  }
  scope_.pop_back();
}

void Program::lower_op(const Op& op) {
  const bool scalar = !op.results.empty() && op.results[0]->type.is_scalar();
  switch (op.info().group) {
    case OpGroup::control:
      if (op.kind == OpKind::for_loop) return lower_for(op);
      if (op.kind == OpKind::if_then) return lower_if(op);
      if (op.kind == OpKind::while_loop) return lower_while(op);
      if (scalar) return lower_scalar(op);
      return;  // yield is read by the operation that owns the block; assume has no lowering
    case OpGroup::create:
    case OpGroup::unary:
    case OpGroup::binary:
      if (scalar) return lower_scalar(op);
      if (op.kind == OpKind::select && op.results[0]->type.is_view()) return lower_view(op);
      if (op.kind == OpKind::rand) return lower_rand(op);
      return;
    case OpGroup::shape: return lower_shape(op);
    case OpGroup::reduce: return lower_reduce(op);
    case OpGroup::dot: return lower_dot(op);
    case OpGroup::memory:
      if (op.kind == OpKind::size || op.kind == OpKind::address) return lower_scalar(op);
      if (op.kind == OpKind::slice || op.kind == OpKind::at || op.kind == OpKind::view_at) return lower_view(op);
      if (op.kind == OpKind::store || op.kind == OpKind::store_add) return lower_store(op);
      if (op.kind == OpKind::load || op.kind == OpKind::gather) return;
      return lower_element(op);
    case OpGroup::sync: return lower_sync(op);
    case OpGroup::debug: return;
  }
}

void Program::lower_scalar(const Op& op) {
  const ir::Value* result = op.results[0];
  Value*& lowered = scalars_[result];
  llvm::Type* type = e_.type_of(result->type.dtype);
  const auto coordinate = [&](Value* base) {
    return e_.b.CreateLoad(e_.b.getInt64Ty(), e_.b.CreateConstInBoundsGEP1_64(
                                                  e_.b.getInt64Ty(), base, static_cast<uint64_t>(op.int_attr("axis"))));
  };
  switch (op.kind) {
    case OpKind::program_id: lowered = coordinate(e_.pid); return;
    case OpKind::num_programs: lowered = coordinate(e_.grid); return;
    case OpKind::size: lowered = views_.at(op.operands[0]).sizes[op.int_attr("axis")]; return;
    case OpKind::address: lowered = e_.b.CreatePtrToInt(views_.at(op.operands[0]).base, type); return;
    case OpKind::constant: {
      const DType dtype = result->type.dtype;
      if (!is_float(dtype)) {
        lowered = llvm::ConstantInt::get(type, static_cast<uint64_t>(op.int_attr("value")), true);
      } else {
        const auto& value = op.attributes.at("value");
        const double real = std::holds_alternative<double>(value) ? std::get<double>(value)
                                                                  : static_cast<double>(std::get<int64_t>(value));
        lowered = dtype == DType::f64 ? llvm::ConstantFP::get(type, real) : e_.convert(e_.f32(real), DType::f32, dtype);
      }
      return;
    }
    default: break;
  }
  std::vector<Value*> operands;
  for (const ir::Value* operand : op.operands) operands.push_back(scalars_.at(operand));
  Value* value = scalar_arithmetic(op, operands);
  scalars_[result] = value;
}

void Program::lower_view(const Op& op) {
  const ir::Value* result = op.results[0];
  ViewRef ref;
  if (op.kind == OpKind::select) {
    Value* condition = scalars_.at(op.operands[0]);
    const ViewRef &a = views_.at(op.operands[1]), &b = views_.at(op.operands[2]);
    ref.base = e_.b.CreateSelect(condition, a.base, b.base);
    for (size_t d = 0; d < a.sizes.size(); ++d) {
      ref.sizes.push_back(e_.b.CreateSelect(condition, a.sizes[d], b.sizes[d]));
      ref.strides.push_back(e_.b.CreateSelect(condition, a.strides[d], b.strides[d]));
    }
  } else if (op.kind == OpKind::view_at) {
    ref.base = e_.b.CreateIntToPtr(scalars_.at(op.operands[0]), e_.b.getPtrTy());
    for (size_t d = 1; d < op.operands.size(); ++d) ref.sizes.push_back(scalars_.at(op.operands[d]));
    ref.strides = codegen::dense_strides(e_.b, ref.sizes);
  } else {
    const ir::Value* view = op.operands[0];
    ref = views_.at(view);
    const int rank = view->type.rank;
    Value* elements = e_.i64(0);
    if (op.kind == OpKind::at) {
      const auto axis = op.int_attr("axis");
      elements = e_.b.CreateMul(scalars_.at(op.operands[1]), ref.strides[axis]);
      ref.sizes.erase(ref.sizes.begin() + axis);
      ref.strides.erase(ref.strides.begin() + axis);
    } else {
      for (int d = 0; d < rank; ++d) {
        Value* offset = scalars_.at(op.operands[1 + d]);
        elements = e_.b.CreateAdd(elements, e_.b.CreateMul(offset, ref.strides[d]));
        ref.sizes[d] = scalars_.at(op.operands[1 + rank + d]);
      }
    }
    ref.base = e_.element_ptr(ref.base, elements, view->type.dtype);
  }
  views_[result] = ref;
}

// Shape operations are free inside an expression, but for those that move elements between rows.
void Program::lower_shape(const Op& op) {
  const ir::Value *from = op.operands[0], *to = op.results[0];
  if (op.kind == OpKind::reshape) {
    std::vector<int64_t> before, after;
    for (int64_t size : from->type.dims())
      if (size != 1) before.push_back(size);
    for (int64_t size : to->type.dims())
      if (size != 1) after.push_back(size);
    if (before == after) return;
    Buffer buffer = reserve_dense(from->type);
    copy_to(from, buffer);
    buffer.strides.assign(to->type.rank, 1);
    for (int d = to->type.rank - 2; d >= 0; --d) buffer.strides[d] = buffer.strides[d + 1] * to->type.shape[d + 1];
    buffers_[to] = buffer;
  } else if (op.kind == OpKind::concat && !is_only_stored(to)) {
    ir::Type padded = to->type;
    padded.shape[padded.rank - 1] += e_.lanes;  // the last part starts anywhere, and its last vector may run over
    const Buffer buffer = reserve_tile(padded);
    Buffer part = buffer;
    for (const ir::Value* operand : op.operands) {
      copy_to(operand, part);
      part.offset += operand->type.shape[operand->type.rank - 1] * dtype_bytes(to->type.dtype);
    }
    buffers_[to] = buffer;
  }
}

bool Program::is_only_stored(const ir::Value* tile) const {
  const auto it = users_.find(tile);
  if (it == users_.end()) return true;
  return std::all_of(it->second.begin(), it->second.end(), [&](const Op* user) {
    return user->kind == OpKind::store || (user->kind == OpKind::cast && is_only_stored(user->results[0]));
  });
}

void Program::lower_store(const Op& op) {
  const ir::Value* tile = op.operands.back();
  const ir::Value* source = tile;
  while (source->def && source->def->kind == OpKind::cast) source = source->def->operands[0];
  if (source->def && source->def->kind == OpKind::concat && op.kind == OpKind::store && !buffers_.count(source)) {
    int64_t shift = 0;
    for (const ir::Value* part : source->def->operands) {
      Root root{Root::Kind::store, &op, part, {}, 0};
      root.shift = shift;
      add_root(root);
      shift += part->type.shape[part->type.rank - 1];
    }
    return;
  }
  if (buffers_.count(tile) == 0 && tile->type.rank == 0) fail(op, "needs a tile of rank 1 or more");
  add_root({Root::Kind::store, &op, tile, {}, 0});
}

void Program::lower_reduce(const Op& op) {
  const ir::Value *tile = op.operands[0], *result = op.results[0];
  if (op.kind != OpKind::reduce) return lower_ordered(op);
  if (op.int_attr("axis") != tile->type.rank - 1) return reduce_outer(op);
  add_root({Root::Kind::reduce, &op, tile, reserve_tile(result->type), 0});
  if (!result->type.is_scalar()) return;
  flush();
  scalars_[result] = read_buffer(buffers_.at(result), Index{});
}

Buffer Program::reserve_tile(const ir::Type& type) {
  Buffer buffer{0, type.dtype, std::vector<int64_t>(type.rank, 1)};
  const int64_t padding = e_.lanes;  // a row's last vector may run over
  int64_t stride = 1;
  for (int d = type.rank - 1; d >= 0; --d) {
    buffer.strides[d] = stride;
    stride *= d == type.rank - 1 ? (type.shape[d] + padding - 1) / padding * padding : type.shape[d];
  }
  buffer.offset = e_.reserve((stride + padding) * dtype_bytes(type.dtype));
  return buffer;
}

Buffer Program::reserve_row(const ir::Type& type) {
  Buffer buffer{0, type.dtype, std::vector<int64_t>(type.rank, 0)};
  buffer.strides.back() = 1;
  buffer.offset = e_.reserve((type.shape[type.rank - 1] + e_.lanes) * dtype_bytes(type.dtype));
  return buffer;
}

Buffer Program::reserve_dense(const ir::Type& type) {
  Buffer buffer{0, type.dtype, std::vector<int64_t>(type.rank, 1)};
  for (int d = type.rank - 2; d >= 0; --d) buffer.strides[d] = buffer.strides[d + 1] * type.shape[d + 1];
  buffer.offset = e_.reserve((type.num_elements() + e_.lanes) * dtype_bytes(type.dtype));
  return buffer;
}

void Program::copy_to(const ir::Value* tile, const Buffer& buffer) {
  flush();
  Root root{Root::Kind::materialise, nullptr, tile, buffer, 0};
  root.is_private = true;
  add_root(root);
  flush();
}

}  // namespace seqtile::cpu

// jit/codegen/cpu/program.cpp -- blocks, scalars, views and control flow of one program.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/program.h"

#include <algorithm>

#include "jit/codegen/cpu/math.h"
#include "jit/error.h"
#include "llvm/IR/Intrinsics.h"

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
  lower_block(function_.body());
  e_.b.CreateRetVoid();
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
  if (block.ops.empty() || block.ops.back()->kind != OpKind::yield) flush();
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
      if (op.kind == OpKind::size) return lower_scalar(op);
      if (op.kind == OpKind::slice || op.kind == OpKind::at) return lower_view(op);
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
    return e_.b.CreateLoad(e_.b.getInt64Ty(), e_.b.CreateConstInBoundsGEP1_64(e_.b.getInt64Ty(), base,
                                                                             static_cast<uint64_t>(op.int_attr("axis"))));
  };
  switch (op.kind) {
    case OpKind::program_id: lowered = coordinate(e_.pid); return;
    case OpKind::num_programs: lowered = coordinate(e_.grid); return;
    case OpKind::size: lowered = views_.at(op.operands[0]).sizes[op.int_attr("axis")]; return;
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

namespace {

Value* integer_binary(Emitter& e, OpKind kind, Value* a, Value* b) {
  switch (kind) {
    case OpKind::add: return e.b.CreateAdd(a, b);
    case OpKind::sub: return e.b.CreateSub(a, b);
    case OpKind::mul: return e.b.CreateMul(a, b);
    case OpKind::div: return e.b.CreateSDiv(a, b);
    case OpKind::rem: return e.b.CreateSRem(a, b);
    case OpKind::min: return e.b.CreateSelect(e.b.CreateICmpSLT(a, b), a, b);
    case OpKind::max: return e.b.CreateSelect(e.b.CreateICmpSGT(a, b), a, b);
    case OpKind::bit_and: return e.b.CreateAnd(a, b);
    case OpKind::bit_or: return e.b.CreateOr(a, b);
    case OpKind::bit_xor: return e.b.CreateXor(a, b);
    case OpKind::shl: return e.b.CreateShl(a, b);
    case OpKind::shr: return e.b.CreateAShr(a, b);
    default: return nullptr;
  }
}

Value* float_binary(Emitter& e, OpKind kind, Value* a, Value* b) {
  switch (kind) {
    case OpKind::add: return e.b.CreateFAdd(a, b);
    case OpKind::sub: return e.b.CreateFSub(a, b);
    case OpKind::mul: return e.b.CreateFMul(a, b);
    case OpKind::div: return e.b.CreateFDiv(a, b);
    case OpKind::min: return e.b.CreateSelect(e.b.CreateFCmpOLT(a, b), a, b);
    case OpKind::max: return e.b.CreateSelect(e.b.CreateFCmpOGT(a, b), a, b);
    case OpKind::pow: return emit_exp2(e.b, e.b.CreateFMul(emit_log2(e.b, a), b));
    default: return nullptr;
  }
}

Value* compare(Emitter& e, std::string_view predicate, bool real, Value* a, Value* b) {
  using P = llvm::CmpInst::Predicate;
  static const std::map<std::string_view, std::pair<P, P>> kPredicates = {
      {"eq", {P::ICMP_EQ, P::FCMP_OEQ}},  {"ne", {P::ICMP_NE, P::FCMP_UNE}},  {"lt", {P::ICMP_SLT, P::FCMP_OLT}},
      {"le", {P::ICMP_SLE, P::FCMP_OLE}}, {"gt", {P::ICMP_SGT, P::FCMP_OGT}}, {"ge", {P::ICMP_SGE, P::FCMP_OGE}}};
  const auto& [integer, floating] = kPredicates.at(predicate);
  return real ? e.b.CreateFCmp(floating, a, b) : e.b.CreateICmp(integer, a, b);
}

Value* integer_unary(Emitter& e, OpKind kind, Value* a) {
  switch (kind) {
    case OpKind::neg: return e.b.CreateNeg(a);
    case OpKind::bit_not: return e.b.CreateNot(a);
    case OpKind::abs: return e.b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, e.b.getFalse());
    default: return nullptr;
  }
}

// Rounds towards minus infinity without the library call that targets below SSE4.1 would make.
Value* emit_floor(Emitter& e, Value* a) {
  llvm::Type* type = a->getType();
  Value* big = e.b.CreateFCmpUGE(e.b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a), llvm::ConstantFP::get(type, 0x1p23));
  llvm::Type* integer = width_of(a) == 1 ? static_cast<llvm::Type*>(e.b.getInt32Ty())
                                         : llvm::FixedVectorType::get(e.b.getInt32Ty(), width_of(a));
  Value* zero = llvm::Constant::getNullValue(type);
  Value* truncated = e.b.CreateSIToFP(e.b.CreateFPToSI(e.b.CreateSelect(big, zero, a), integer), type);
  Value* above = e.b.CreateFCmpOGT(truncated, a);
  Value* below = e.b.CreateFSub(truncated, llvm::ConstantFP::get(type, 1.0));
  return e.b.CreateSelect(big, a, e.b.CreateSelect(above, below, truncated));
}

Value* float_unary(Emitter& e, OpKind kind, Value* a) {
  Value* one = llvm::ConstantFP::get(a->getType(), 1.0);
  switch (kind) {
    case OpKind::neg: return e.b.CreateFNeg(a);
    case OpKind::abs: return e.b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
    case OpKind::sqrt: return e.b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
    case OpKind::rsqrt: return e.b.CreateFDiv(one, e.b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a));
    case OpKind::rcp: return e.b.CreateFDiv(one, a);
    case OpKind::exp2: return emit_exp2(e.b, a);
    case OpKind::log2: return emit_log2(e.b, a);
    case OpKind::tanh: return emit_tanh(e.b, a);
    case OpKind::erf: return emit_erf(e.b, a);
    case OpKind::sin: return emit_sin(e.b, a);
    case OpKind::cos: return emit_cos(e.b, a);
    case OpKind::floor: return emit_floor(e, a);
    default: return nullptr;
  }
}

bool is_short_float(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

bool is_transcendental(OpKind kind) {
  return kind >= OpKind::exp2 && kind <= OpKind::floor && kind != OpKind::sqrt && kind != OpKind::rsqrt &&
         kind != OpKind::rcp;
}

}  // namespace

// Arithmetic on register values, scalars and vectors alike. 16-bit floats are computed in f32 and rounded.
Value* Program::scalar_arithmetic(const Op& op, const std::vector<Value*>& operands) {
  const DType from = op.operands.back()->type.dtype, to = op.results[0]->type.dtype;
  if (op.kind == OpKind::cast) return e_.convert(operands[0], from, to);
  if (op.kind == OpKind::bitcast) {
    llvm::Type* element = e_.type_of(to);
    const int width = width_of(operands[0]);
    return e_.b.CreateBitCast(operands[0], width == 1 ? element : llvm::FixedVectorType::get(element, width));
  }
  if (op.kind == OpKind::select) return e_.b.CreateSelect(operands[0], operands[1], operands[2]);
  if (is_short_float(from)) {
    std::vector<Value*> wide;
    for (Value* operand : operands) wide.push_back(e_.convert(operand, from, DType::f32));
    Value* result = op.kind == OpKind::cmp ? compare(e_, op.string_attr("predicate"), true, wide[0], wide[1])
                                           : float_arithmetic(op, wide);
    return is_short_float(to) ? e_.convert(result, DType::f32, to) : result;
  }
  if (op.kind == OpKind::cmp) return compare(e_, op.string_attr("predicate"), is_float(from), operands[0], operands[1]);
  if (is_float(from)) {
    if (from == DType::f64 && is_transcendental(op.kind)) fail(op, "is not available in f64 on the CPU; cast to f32");
    return float_arithmetic(op, operands);
  }
  Value* result = op.kind == OpKind::fma ? e_.b.CreateAdd(e_.b.CreateMul(operands[0], operands[1]), operands[2])
                  : operands.size() == 1 ? integer_unary(e_, op.kind, operands[0])
                                         : integer_binary(e_, op.kind, operands[0], operands[1]);
  if (!result) fail(op, "has no lowering for " + std::string(dtype_name(from)) + " on the CPU");
  return result;
}

Value* Program::float_arithmetic(const Op& op, const std::vector<Value*>& operands) {
  Value* result = op.kind == OpKind::fma ? e_.b.CreateFAdd(e_.b.CreateFMul(operands[0], operands[1]), operands[2])
                  : operands.size() == 1 ? float_unary(e_, op.kind, operands[0])
                                         : float_binary(e_, op.kind, operands[0], operands[1]);
  if (!result) fail(op, "has no lowering for floating point on the CPU");
  return result;
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
    if (before == after || is_packed_weight(op)) return;
    Buffer buffer = reserve_dense(from->type);
    copy_to(from, buffer);
    buffer.strides.assign(to->type.rank, 1);
    for (int d = to->type.rank - 2; d >= 0; --d) buffer.strides[d] = buffer.strides[d + 1] * to->type.shape[d + 1];
    buffers_[to] = buffer;
  } else if (op.kind == OpKind::concat && !is_only_stored(to)) {
    const Buffer buffer = reserve_tile(to->type);
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

// Prefix sums and arg-reductions along the last axis go element by element.
void Program::lower_ordered(const Op& op) {
  flush();
  const ir::Value* tile = op.operands[0];
  const int rank = tile->type.rank;
  if (op.int_attr("axis") != rank - 1) fail(op, "runs along the last axis on the CPU");
  const DType dtype = tile->type.dtype;
  const bool is_scan = op.kind == OpKind::scan, maximum = op.string_attr("kind") == "max";
  std::vector<Buffer> outputs;
  for (const ir::Value* result : op.results) outputs.push_back(reserve_tile(result->type));
  std::vector<Value*> at;
  const auto row = [&] {
    const auto element = [&](Value* c) {
      memo_.clear(), row_memo_.clear();
      Index index{1, {}, nullptr};
      for (Value* i : at) index.axes.push_back({i});
      index.axes.push_back({c});
      return std::pair{e_.convert(eval(tile, index), dtype, is_float(dtype) ? DType::f32 : dtype), index};
    };
    const DType wide = is_float(dtype) ? DType::f32 : dtype;
    const auto better = [&](Value* x, Value* best) {
      if (is_float(wide)) return maximum ? e_.b.CreateFCmpOGT(x, best) : e_.b.CreateFCmpOLT(x, best);
      return maximum ? e_.b.CreateICmpSGT(x, best) : e_.b.CreateICmpSLT(x, best);
    };
    Value* first = element(e_.i64(0)).first;
    if (is_scan) write_buffer(outputs[0], e_.convert(first, wide, dtype), element(e_.i64(0)).second);
    const auto last = e_.loop(e_.i64(1), e_.i64(tile->type.shape[rank - 1]), e_.i64(1), {first, e_.i32(0)},
                              [&](Value* c, std::vector<Value*> carried) {
      const auto [x, index] = element(c);
      if (is_scan && !maximum) {
        carried[0] = is_float(wide) ? e_.b.CreateFAdd(carried[0], x) : e_.b.CreateAdd(carried[0], x);
      } else {
        Value* wins = better(x, carried[0]);
        carried[0] = e_.b.CreateSelect(wins, x, carried[0]);
        carried[1] = e_.b.CreateSelect(wins, e_.b.CreateTrunc(c, e_.b.getInt32Ty()), carried[1]);
      }
      if (is_scan) write_buffer(outputs[0], e_.convert(carried[0], wide, dtype), index);
      return carried;
    });
    if (is_scan) return;
    Index index{1, {}, nullptr};
    for (Value* i : at) index.axes.push_back({i});
    write_buffer(outputs[0], e_.convert(last[0], wide, dtype), index);
    write_buffer(outputs[1], last[1], index);
  };
  const auto loops = [&](const auto& self, int d) -> void {
    if (d + 1 == rank) return row();
    e_.loop(e_.i64(0), e_.i64(tile->type.shape[d]), 1, [&](Value* i) {
      at.push_back(i);
      self(self, d + 1);
      at.pop_back();
    });
  };
  loops(loops, 0);
  memo_.clear(), row_memo_.clear();
  for (size_t i = 0; i < outputs.size(); ++i) {
    buffers_[op.results[i]] = outputs[i];
    if (op.results[i]->type.is_scalar()) scalars_[op.results[i]] = read_buffer(outputs[i], Index{});
  }
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

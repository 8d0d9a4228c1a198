// jit/codegen/cpu/arithmetic.cpp -- element-wise arithmetic on register values, scalars and vectors alike.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/forever.h"
#include "jit/codegen/cpu/program.h"
#include "jit/codegen/math.h"
#include "llvm/IR/Intrinsics.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpKind;
using llvm::Value;

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
    case OpKind::pow: return codegen::emit_exp2(e.b, e.b.CreateFMul(codegen::emit_log2(e.b, a), b));
    default: return nullptr;
  }
}

Value* compare(Emitter& e, std::string_view predicate, bool real, Value* a, Value* b) {
  using P = llvm::CmpInst::Predicate;
  static const auto& kPredicates =
      forever(std::map<std::string_view, std::pair<P, P>>{{"eq", {P::ICMP_EQ, P::FCMP_OEQ}},
                                                          {"ne", {P::ICMP_NE, P::FCMP_UNE}},
                                                          {"lt", {P::ICMP_SLT, P::FCMP_OLT}},
                                                          {"le", {P::ICMP_SLE, P::FCMP_OLE}},
                                                          {"gt", {P::ICMP_SGT, P::FCMP_OGT}},
                                                          {"ge", {P::ICMP_SGE, P::FCMP_OGE}}});
  const auto& [integer, floating] = kPredicates.at(predicate);
  if (real) return e.b.CreateFCmp(floating, a, b);
  const bool is_bit = a->getType()->isIntOrIntVectorTy(1);  // true is 1, not -1
  return e.b.CreateICmp(is_bit ? llvm::ICmpInst::getUnsignedPredicate(integer) : integer, a, b);
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
  Value* big =
      e.b.CreateFCmpUGE(e.b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a), llvm::ConstantFP::get(type, 0x1p23));
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
    case OpKind::exp2: return codegen::emit_exp2(e.b, a);
    case OpKind::log2: return codegen::emit_log2(e.b, a);
    case OpKind::tanh: return codegen::emit_tanh(e.b, a);
    case OpKind::erf: return codegen::emit_erf(e.b, a);
    case OpKind::sin: return codegen::emit_sin(e.b, a);
    case OpKind::cos: return codegen::emit_cos(e.b, a);
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

}  // namespace seqtile::cpu

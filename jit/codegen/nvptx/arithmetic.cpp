// jit/codegen/nvptx/arithmetic.cpp -- element-wise arithmetic on one register.
// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "jit/base/forever.h"
#include "jit/codegen/math.h"
#include "jit/codegen/nvptx/program.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

bool is_short_float(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

Value* integer_operation(llvm::IRBuilder<>& b, OpKind kind, const std::vector<Value*>& v) {
  switch (kind) {
    case OpKind::add: return b.CreateAdd(v[0], v[1]);
    case OpKind::sub: return b.CreateSub(v[0], v[1]);
    case OpKind::mul: return b.CreateMul(v[0], v[1]);
    case OpKind::div: return b.CreateSDiv(v[0], v[1]);
    case OpKind::rem: return b.CreateSRem(v[0], v[1]);
    case OpKind::min: return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v[0], v[1]);
    case OpKind::max: return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, v[0], v[1]);
    case OpKind::bit_and: return b.CreateAnd(v[0], v[1]);
    case OpKind::bit_or: return b.CreateOr(v[0], v[1]);
    case OpKind::bit_xor: return b.CreateXor(v[0], v[1]);
    case OpKind::shl: return b.CreateShl(v[0], v[1]);
    case OpKind::shr: return b.CreateAShr(v[0], v[1]);
    case OpKind::fma: return b.CreateAdd(b.CreateMul(v[0], v[1]), v[2]);
    case OpKind::neg: return b.CreateNeg(v[0]);
    case OpKind::bit_not: return b.CreateNot(v[0]);
    case OpKind::abs: return b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, v[0], b.getFalse());
    default: return nullptr;
  }
}

Value* compare(llvm::IRBuilder<>& b, std::string_view predicate, bool is_real, Value* left, Value* right) {
  using P = llvm::CmpInst::Predicate;
  static const auto& kPredicates =
      forever(std::map<std::string_view, std::pair<P, P>>{{"eq", {P::ICMP_EQ, P::FCMP_OEQ}},
                                                          {"ne", {P::ICMP_NE, P::FCMP_UNE}},
                                                          {"lt", {P::ICMP_SLT, P::FCMP_OLT}},
                                                          {"le", {P::ICMP_SLE, P::FCMP_OLE}},
                                                          {"gt", {P::ICMP_SGT, P::FCMP_OGT}},
                                                          {"ge", {P::ICMP_SGE, P::FCMP_OGE}}});
  const auto& [integer, floating] = kPredicates.at(predicate);
  if (is_real) return b.CreateFCmp(floating, left, right);
  const bool is_bit = left->getType()->isIntegerTy(1);  // true is 1, not -1
  return b.CreateICmp(is_bit ? llvm::ICmpInst::getUnsignedPredicate(integer) : integer, left, right);
}

/// 2^x by the special function unit: 2 ulp, flushes results below 2^-126, exact at -inf.
Value* exp2_approx(llvm::IRBuilder<>& b, Value* x) {
  return b.CreateIntrinsic(llvm::Intrinsic::nvvm_ex2_approx_ftz_f, {}, {x});
}

Value* float_operation(llvm::IRBuilder<>& b, OpKind kind, const std::vector<Value*>& v) {
  Value* one = llvm::ConstantFP::get(v[0]->getType(), 1.0);
  switch (kind) {
    case OpKind::add: return b.CreateFAdd(v[0], v[1]);
    case OpKind::sub: return b.CreateFSub(v[0], v[1]);
    case OpKind::mul: return b.CreateFMul(v[0], v[1]);
    case OpKind::div: return b.CreateFDiv(v[0], v[1]);
    case OpKind::min: return b.CreateBinaryIntrinsic(llvm::Intrinsic::minnum, v[0], v[1]);
    case OpKind::max: return b.CreateBinaryIntrinsic(llvm::Intrinsic::maxnum, v[0], v[1]);
    case OpKind::fma: return b.CreateIntrinsic(llvm::Intrinsic::fma, {v[0]->getType()}, {v[0], v[1], v[2]});
    case OpKind::neg: return b.CreateFNeg(v[0]);
    case OpKind::abs: return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v[0]);
    case OpKind::floor: return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, v[0]);
    case OpKind::sqrt: return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, v[0]);
    case OpKind::rsqrt: return b.CreateFDiv(one, b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, v[0]));
    case OpKind::rcp: return b.CreateFDiv(one, v[0]);
    case OpKind::pow: return exp2_approx(b, b.CreateFMul(codegen::emit_log2(b, v[0]), v[1]));
    case OpKind::exp2: return exp2_approx(b, v[0]);
    case OpKind::log2: return codegen::emit_log2(b, v[0]);
    case OpKind::tanh: return codegen::emit_tanh(b, v[0]);
    case OpKind::erf: return codegen::emit_erf(b, v[0]);
    case OpKind::sin: return codegen::emit_sin(b, v[0]);
    case OpKind::cos: return codegen::emit_cos(b, v[0]);
    default: return nullptr;
  }
}

/// Operations that are polynomials or approximate instructions for f32.
bool needs_f32(OpKind kind) {
  switch (kind) {
    case OpKind::exp2:
    case OpKind::log2:
    case OpKind::tanh:
    case OpKind::erf:
    case OpKind::sin:
    case OpKind::cos:
    case OpKind::pow: return true;
    default: return false;
  }
}

}  // namespace

// 16-bit floats are computed in f32 and rounded.
Value* Program::arithmetic(const Op& op, const std::vector<Value*>& operands) {
  const DType from = op.operands.back()->type.dtype, to = op.results[0]->type.dtype;
  if (op.kind == OpKind::cast) return e_.convert(operands[0], from, to);
  if (op.kind == OpKind::bitcast) return e_.b.CreateBitCast(operands[0], e_.type_of(to));
  if (op.kind == OpKind::select) return e_.b.CreateSelect(operands[0], operands[1], operands[2]);
  std::vector<Value*> values = operands;
  if (is_short_float(from))
    for (Value*& value : values) value = e_.convert(value, from, DType::f32);
  if (op.kind == OpKind::cmp) return compare(e_.b, op.string_attr("predicate"), is_float(from), values[0], values[1]);
  if (from == DType::f64 && needs_f32(op.kind)) fail(op, "is not available in f64; cast to f32");
  Value* result = is_float(from) ? float_operation(e_.b, op.kind, values) : integer_operation(e_.b, op.kind, values);
  if (!result) fail(op, "has no lowering for " + std::string(dtype_name(from)));
  return is_short_float(from) ? e_.convert(result, DType::f32, to) : result;
}

}  // namespace seqtile::nvptx
